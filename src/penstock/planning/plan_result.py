"""Defines the result of a plan: the answer with its fleets and their bills, or the reasons why there is no fleet."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.planning.candidates.candidate_search import Candidate
from penstock.planning.optimizer.cash_flow import Cash
from penstock.planning.optimizer.competing_fleets import Family
from penstock.planning.optimizer.fleet_bill import FleetCost
from penstock.planning.optimizer.node_costs import BillingTerms
from penstock.planning.optimizer.problem import Mix, Problem
from penstock.planning.saving_claim import ClaimCheck
from penstock.planning.spec.plan_types import Plan
from penstock.planning.spec.resolve_plan import Assumption, LeftOut, Resolved
from penstock.planning.uncertainty.api_break_even import ApiBreakEven
from penstock.planning.uncertainty.confidence_levels import ConfidenceLevel
from penstock.planning.uncertainty.monte_carlo import Confidence
from penstock.planning.uncertainty.next_measurement import NextMeasurement
from penstock.planning.uncertainty.other_engines import EngineSaving
from penstock.planning.uncertainty.scenarios import DemandScenario, NodeSaving, Owned, RulePrice
from penstock.planning.uncertainty.sensitivity import Flip, Swing
from penstock.planning.uncertainty.staffing import PeopleBreakEven
from penstock.planning.uncertainty.verdict import PlanVerdict
from penstock.planning.verification.plain_router import PlainRouter
from penstock.planning.verification.verify_fleet import Verified


@dataclass(frozen=True, kw_only=True)
class Bill:
    """A fleet and its cost."""

    mix: Mix
    cost: FleetCost
    cash: Cash


@dataclass(frozen=True, kw_only=True)
class NoFleet:
    """The reasons why no fleet satisfies every rule."""

    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class UncheckedLaunch:
    """An engine on an accelerator whose launch preflight prints but cannot judge."""

    engine: str
    accelerator: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleDevices:
    """The answer if accelerators with the user's own price and no stated size are also sold by the device."""

    sizes: Mapping[str, tuple[int, ...]]
    """Maps each such accelerator to the sizes of the catalog's SKUs, with which the plan is answered."""
    winner: str
    usd: Mapping[str, float]
    """Maps each label to the cost of its cheapest fleet."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """All results of a plan that has a fleet."""

    family: Family
    winner: Bill
    runners_up: tuple[Bill, ...]
    by_label: Mapping[str, Bill]
    verdict: PlanVerdict
    people: PeopleBreakEven | None
    """The vendor whose fleet is cheaper before engineers are billed; None if hardware and power decide the answer."""
    confidence: Confidence
    swings: tuple[Swing, ...]
    flips: tuple[Flip, ...]
    rules: tuple[RulePrice, ...]
    """Cost of each rule of the plan, sorted by cost, first the most expensive rule."""
    scenarios: tuple[DemandScenario, ...]
    """Scenarios with low, stated and high demand; empty if demand has no range."""
    owned: Owned | None
    """How the already owned nodes are used; None if no nodes are owned."""
    verified: tuple[Verified, ...]
    """The simulated fleets, of which the winner is the first; empty without a simulator."""
    regret_usd: float | None
    missing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Maps each vendor with offers but without a fleet of its own to the rules that it breaks, and by how much."""
    engine_saving: EngineSaving | None = None
    """The saving of engines whose launch preflight does not pass; None if there is none of at least 1%."""
    unchecked_launches: tuple[UncheckedLaunch, ...] = ()
    """Launches of the winner that preflight prints but has no rules to check."""
    round_robin: PlainRouter | None = None
    """The winner with a round-robin router, and the fleet that this router needs; None without a simulator."""
    saving: NodeSaving | None = None
    """The smallest decrease of demand that saves nodes; None if 25% less demand saves none."""
    levels: tuple[ConfidenceLevel, ...] = ()
    """The winning fleet at several confidences, the lowest first."""
    api_break_even: ApiBreakEven | None = None
    """The load up to which the stated API costs less; None unless the plan has one workload, with an API price."""
    single_devices: SingleDevices | None = None
    """The answer with single devices, where their sizes are open; None if no size is."""
    measurement: NextMeasurement | None = None
    """The setup that is most worth a measurement; None if none is worth 1% of the cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingSaving:
    """The models of a plan on shared devices of an accelerator of its fleet."""

    idle_fraction: float
    """Share of time that the devices of the plan's fleet are idle."""
    accelerator: str | None
    """None if no accelerator of the fleet keeps every SLO with shared devices, or the plan's rules forbid them."""
    rented_devices: int | None
    """Devices with spares, in instances that are rented."""
    rent_usd: float | None
    """Rent of these devices over the horizon."""


@dataclass(frozen=True, kw_only=True)
class PlanResult:
    """The result of `penstock plan`."""

    resolved: Resolved
    terms: BillingTerms
    problem: Problem
    candidates: tuple[Candidate, ...]
    considered: int
    left_out: tuple[LeftOut, ...]
    assumptions: tuple[Assumption, ...]
    capacity_note: str
    claims: tuple[ClaimCheck, ...]
    answer: Answer | NoFleet
    sharing: SharingSaving | None = None
    """What the models would cost on shared devices; None unless several models leave their devices idle."""

    @property
    def plan(self) -> Plan:
        """Return the plan with its prices filled in."""
        return self.resolved.plan
