"""What does it draw? The power of a whole node, where each figure comes from, and its average under load."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Final, Literal

from penstock.catalog.accelerator import Accelerator

HOST_WATTS_PER_DEVICE: Final[Mapping[int, float]] = {
    8: median((10_200 / 8 - 700, 14_300 / 8 - 1000, 14_500 / 8 - 1100, 6_500 / 8 - 400)),
    4: 7_500 / 4 - 1400,
}
"""What a node draws beside its devices at board power, over its devices, by how many they are: DGX H100, B200, B300
and A100, and a GB300 tray, from the catalog's node_watts."""
_TYPICAL_DEVICES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawUnderLoad:
    """What a device draws while it serves, as shares of its board power, and on what grounds."""

    median_fraction: float
    low_fraction: float
    high_fraction: float
    grounds: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePower:
    """The whole server at its maximum and while it serves, and how both are known."""

    node_watts: float
    basis: Literal["catalog", "derived", "given"]
    note: str
    serving_watts: float
    """Host at its maximum, devices at what they drew in measured runs; the maximum where nobody measured any."""
    serving_low_watts: float
    serving_high_watts: float
    serving_note: str


def node_power(
    accelerator: Accelerator, drawn: DrawUnderLoad | None = None, *, given_watts: float | None = None
) -> NodePower | None:
    """Take the given or the catalog's node figure, or add a host to board power; None without any.

    `provisioned_watts_per_device` is left alone: it already holds a share of cooling, which PUE would count twice.
    """
    node, tdp_watts = accelerator.node, accelerator.tdp_watts
    if given_watts is not None:
        return _serving(accelerator, drawn, given_watts, "given", "plan file")
    if node.node_watts is not None:
        return _serving(accelerator, drawn, node.node_watts, "catalog", "the server at its maximum, from the catalog")
    if tdp_watts is None:
        return None
    host = HOST_WATTS_PER_DEVICE.get(node.devices, HOST_WATTS_PER_DEVICE[_TYPICAL_DEVICES])
    note = f"{node.devices} x ({tdp_watts:,.0f} W and {host:,.0f} W of host, as in nodes whose maximum is published)"
    return _serving(accelerator, drawn, node.devices * (tdp_watts + host), "derived", note)


def _serving(
    accelerator: Accelerator,
    drawn: DrawUnderLoad | None,
    node_watts: float,
    basis: Literal["catalog", "derived", "given"],
    note: str,
) -> NodePower:
    boards = accelerator.node.devices * (accelerator.tdp_watts or 0.0)
    if drawn is None or not 0 < boards <= node_watts:
        low = typical = high = node_watts
        grounds = "its maximum: no measured draw of its devices"
    else:
        fractions = (drawn.low_fraction, drawn.median_fraction, drawn.high_fraction)
        low, typical, high = (node_watts - boards * (1 - fraction) for fraction in fractions)
        grounds = f"devices at {drawn.median_fraction:.0%} of board power, host at its maximum; {drawn.grounds}"
    return NodePower(
        node_watts=node_watts,
        basis=basis,
        note=note,
        serving_watts=typical,
        serving_low_watts=low,
        serving_high_watts=high,
        serving_note=grounds,
    )


def average_watts(serving_watts: float, *, idle_watts: float, load_fraction: float) -> float:
    """Average draw: affine in load, from the idle draw to that of a node that serves."""
    idle = min(idle_watts, serving_watts)
    return idle + (serving_watts - idle) * min(1.0, max(0.0, load_fraction))
