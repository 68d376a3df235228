"""Computes a node's maximum power and serving power, each with its source, and its average power at a given load."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Final, Literal

from penstock.catalog.accelerator import Accelerator

HOST_WATTS_PER_DEVICE: Final[Mapping[int, float]] = {
    8: median((10_200 / 8 - 700, 14_300 / 8 - 1000, 14_500 / 8 - 1100, 6_500 / 8 - 400)),
    4: 7_500 / 4 - 1400,
}
"""Host watts per device, keyed by the number of devices per node.

The host watts are the maximum node power per device, minus the board power of one device. The maximum node power is the
catalog's `node_watts`. The entry for 8 devices is the median over DGX H100, B200, B300 and A100. The entry for 4
devices is from a GB300 tray."""
_TYPICAL_DEVICES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawUnderLoad:
    """Power that a device draws while it serves, as fractions of its board power. `grounds` states the source."""

    median_fraction: float
    low_fraction: float
    high_fraction: float
    grounds: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePower:
    """Maximum power and serving power of a whole server, with the source of each."""

    node_watts: float
    basis: Literal["catalog", "derived", "given"]
    note: str
    serving_watts: float
    """Maximum power of the host plus the measured power draw of the devices. If the draw of the devices was not
    measured, this is the maximum power of the node."""
    serving_low_watts: float
    serving_high_watts: float
    serving_note: str


def node_power(
    accelerator: Accelerator, drawn: DrawUnderLoad | None = None, *, given_watts: float | None = None
) -> NodePower | None:
    """Return the node power from the plan, else from the catalog, else as the sum of board power and host power.

    The result is None if the plan and the catalog state neither the node power nor the board power.
    `provisioned_watts_per_device` is not used, because it already includes a share of cooling, which PUE would count a
    second time.
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
        grounds = "the node's maximum, because the draw of its devices was not measured"
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
    """Return the average power draw of a node in watts.

    Power rises linearly with load, from idle power to serving power.
    """
    idle = min(idle_watts, serving_watts)
    return idle + (serving_watts - idle) * min(1.0, max(0.0, load_fraction))
