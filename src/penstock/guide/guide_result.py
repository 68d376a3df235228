"""Defines the result of a guide: the cells of its grid, the fleets of each vendor, and where the answer turns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from penstock.guide.grid import Grid, WorkloadShape
from penstock.planning.candidates.replica_capacity import Option
from penstock.planning.spec.resolve_plan import LeftOut

Binding = Literal["capacity", "bandwidth", "compute", "interconnect", "software", "price", "instance size"]
"""The resource that decides a cell: the one that the fleet of the other vendor lacks, or the price."""
Axis = Literal["load", "context"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GuidePool:
    """Units of one kind in a fleet."""

    kind: str
    """Split, weights and engine of a replica."""
    accelerator: str
    unit_devices: int
    units: int
    """Units with their spares."""
    spare_units: int
    replicas: int
    """Serving replicas."""
    way: str
    """Split of a replica, and the tokens drafted per step."""
    weights: str
    engine: str
    """Engine whose measurements predict the speed."""
    tier: str
    """How well the speed is known: measured, calibrated, transferred or roofline."""
    rate_per_s: float
    """Requests per second of one replica in this pool, within the SLO."""
    headroom: float
    """Planned capacity relative to the load, for the plan's confidence."""
    share_fraction: float
    """Share of the requests."""
    acquired: str
    """How the units are acquired: `rent`, `buy`, or the term of a contract in months."""
    usd_per_device_hour: float
    """Levelised cost of a device with engineers per device, without spares."""

    @property
    def devices(self) -> int:
        """Return the number of devices, with spares."""
        return self.units * self.unit_devices


@dataclass(frozen=True, slots=True, kw_only=True)
class GuideFleet:
    """The cheapest fleet of a vendor for one cell."""

    vendor: str
    pools: tuple[GuidePool, ...]
    cost_usd: float
    """Cost over the horizon, with spares and people."""
    usd_per_mtok: float
    """Cost per million input and output tokens at the mean load."""
    rent_usd_per_device_hour: float | None
    """Rent of the fleet's accelerator, by the hour or on its contract; None if the fleet is bought."""
    usd_per_rent: float | None
    """Dollars of the fleet's cost per dollar of that rent."""

    @property
    def accelerator(self) -> str:
        """Return the accelerator."""
        return self.pools[0].accelerator

    @property
    def devices(self) -> int:
        """Return the number of devices, with spares."""
        return sum(pool.devices for pool in self.pools)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuideCell:
    """One workload at one load, and its cheapest fleet of each vendor."""

    shape: WorkloadShape
    requests_per_s: float
    fleets: tuple[GuideFleet, ...]
    """The cheapest fleet of each vendor, the cheapest first; empty if no fleet keeps the SLO."""
    probability: float | None
    """Share of draws in which the winning vendor is cheapest."""
    low_usd: float | None
    high_usd: float | None
    """P10 and P90 of the winning fleet's cost."""
    binding: Binding | None
    flip_rent_usd: float | None
    """Rent of the winner's accelerator above which the other vendor is cheaper."""
    rival_flip_rent_usd: float | None
    """Rent of the other vendor's accelerator below which the other vendor is cheaper."""
    near_tie: GuideFleet | None = None
    """The cheapest fleet of the winner's vendor on another accelerator, if it costs at most 5% more."""
    why_none: str = ""
    """Reason if no fleet keeps the SLO."""

    @property
    def winner(self) -> GuideFleet | None:
        """Return the cheapest fleet."""
        return self.fleets[0] if self.fleets else None

    @property
    def rival(self) -> GuideFleet | None:
        """Return the cheapest fleet of the other vendors."""
        return self.fleets[1] if len(self.fleets) > 1 else None

    @property
    def margin_fraction(self) -> float | None:
        """Return how much more the other vendor's fleet costs, relative to the winner; None without another vendor."""
        return None if self.rival is None else self.rival.cost_usd / self.fleets[0].cost_usd - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """A value of an axis at which another vendor becomes cheapest. Fleets on both sides were sized by simulation."""

    axis: Axis
    shape: WorkloadShape
    """The workload below the crossing."""
    requests_per_s: float
    """Load at the crossing."""
    input_tokens: int
    """Prompt at the crossing."""
    low: float
    high: float
    """Values between which the answer turns: requests per second, or input tokens."""
    below: str
    above: str
    """Cheapest accelerator below and above the crossing."""
    below_vendor: str
    above_vendor: str


@dataclass(frozen=True, kw_only=True)
class GuideResult:
    """The whole guide."""

    name: str
    grid: Grid
    horizon_years: float
    start: str
    confidence: float
    cells: tuple[GuideCell, ...]
    crossings: tuple[Crossing, ...]
    accelerators: tuple[str, ...]
    """Accelerators that were compared."""
    vendors: tuple[str, ...]
    """Vendors of these accelerators."""
    left_out: tuple[LeftOut, ...]
    """Accelerators without a price or measurements, and those that serve no workload of the grid."""
    prices: Mapping[str, str] = field(default_factory=dict)
    """Maps accelerator to the source of its rent."""
    estimated_rents: frozenset[str] = frozenset()
    """Accelerators whose rent is what a median seller would ask, because few sellers publish one."""
    options: Mapping[str, Option] = field(default_factory=dict)
    """Maps the kinds of the guide's pools to their deployment."""
    trace_cells: tuple[GuideCell, ...] = ()
    """Each prompt length of a trace at its own load; empty without a trace."""

    @property
    def served(self) -> Sequence[GuideCell]:
        """Return the cells that a fleet can serve."""
        return [cell for cell in self.cells if cell.fleets]

    def cell(self, shape: WorkloadShape, requests_per_s: float) -> GuideCell:
        """Return the cell of a workload and a load."""
        return next(one for one in self.cells if one.shape == shape and one.requests_per_s == requests_per_s)
