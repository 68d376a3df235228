"""What does it draw? The power of a whole node, where each figure comes from, and its average under load."""

from dataclasses import dataclass
from statistics import median
from typing import Literal

from penstock.catalog.accelerator import Accelerator

NODE_OVER_DEVICES = median((10_200 / (8 * 700), 14_300 / (8 * 1000), 14_500 / (8 * 1100), 6_500 / (8 * 400)))
"""Node power over the sum of its devices' board power: DGX H100, B200, B300 and A100, from the catalog's node_watts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePower:
    """The whole server at its maximum, and how that is known."""

    node_watts: float
    basis: Literal["catalog", "derived", "given"]
    note: str


def node_power(accelerator: Accelerator) -> NodePower | None:
    """Take the catalog's node figure, or scale board power like nodes whose figure is known; None without either.

    `provisioned_watts_per_device` is left alone: it already holds a share of cooling, which PUE would count twice.
    """
    node = accelerator.node
    if node.node_watts is not None:
        return NodePower(
            node_watts=node.node_watts, basis="catalog", note="the server at its maximum, from the catalog"
        )
    if accelerator.tdp_watts is None:
        return None
    return NodePower(
        node_watts=accelerator.tdp_watts * node.devices * NODE_OVER_DEVICES,
        basis="derived",
        note=f"{node.devices} x {accelerator.tdp_watts:,.0f} W x {NODE_OVER_DEVICES:.2f}, the ratio of nodes "
        "whose maximum is published",
    )


def average_watts(node_watts: float, *, idle_fraction: float, load_fraction: float) -> float:
    """Average draw: affine in load, from the idle draw to the maximum."""
    return node_watts * (idle_fraction + (1 - idle_fraction) * min(1.0, max(0.0, load_fraction)))
