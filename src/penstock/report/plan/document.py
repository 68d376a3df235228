"""Defines the JSON document of `plan --json`.

The document has the whole answer as plain values, named as in the code.
"""

from typing import Annotated, Any, Literal

from typing_extensions import TypedDict

from penstock.fleet import Parallelism
from penstock.performance.prediction.predict_deployment import Range
from penstock.planning.candidates.replica_capacity import RateCurve
from penstock.planning.optimizer.cash_flow import Order, Paid
from penstock.planning.optimizer.fleet_bill import FleetCost
from penstock.planning.optimizer.problem import PoolPeriod
from penstock.planning.plan_defaults import PlanDefault, plan_defaults
from penstock.planning.plan_result import NoFleet, PlanResult, SharingSaving, SingleDevices, UncheckedLaunch
from penstock.planning.saving_claim import Reading, SavingClaim
from penstock.planning.spec.plan_types import Plan
from penstock.planning.spec.resolve_plan import Confirmer, LeftOut
from penstock.planning.uncertainty.api_break_even import ApiBreakEven
from penstock.planning.uncertainty.confidence_levels import ConfidenceLevel
from penstock.planning.uncertainty.monte_carlo import Blame
from penstock.planning.uncertainty.other_engines import EngineSaving
from penstock.planning.uncertainty.scenarios import DemandScenario, NodeSaving, Owned, RulePrice
from penstock.planning.uncertainty.sensitivity import Flip
from penstock.planning.uncertainty.staffing import PeopleBreakEven
from penstock.planning.uncertainty.uncertain_inputs import KnobKind
from penstock.planning.uncertainty.verdict import Outcome
from penstock.planning.verification.plain_router import PlainRouter
from penstock.planning.verification.serving_fleet import Check
from penstock.report.drawing.json_document import at, build
from penstock.report.plan.sentences import NO_FLEET, headline


class DisaggregatedDocument(TypedDict):
    """A disaggregated unit: prefill and decode replicas.

    The candidate's `parallelism` is the split of the decode replicas.
    """

    prefill_parallelism: Annotated[Parallelism, at("prefill.parallelism")]
    prefill_replicas: int
    decode_replicas: int
    kv_bytes_per_s: float | None


class ReplicaCapacityDocument(TypedDict):
    """The rate that a replica of a candidate sustains within the SLO, for one length."""

    requests_per_s: Range
    curve: RateCurve
    tier: str
    grounds: str
    prefill_fraction: float | None
    measured_engine: str | None


class CandidateDocument(TypedDict):
    """A deployment that could serve a workload."""

    id: str
    workload: str
    accelerator: Annotated[str, at("accelerator.id")]
    weights: str
    engine: Annotated[str, at("measured_engine")]
    parallelism: Annotated[Parallelism, at("deployment.parallelism")]
    disaggregated: DisaggregatedDocument | None
    devices: int
    capacities: list[ReplicaCapacityDocument]


class AssumptionDocument(TypedDict):
    """An input of the plan with its value, range and source."""

    name: str
    confirmed_by: Confirmer
    value: Annotated[float, at("input.value")]
    low: Annotated[float, at("input.low")]
    high: Annotated[float, at("input.high")]
    unit: Annotated[str, at("input.unit")]
    source: Annotated[str, at("input.source")]
    given: Annotated[bool, at("input.given")]


class ClaimDocument(TypedDict):
    """A published saving claim, recomputed."""

    claim: SavingClaim
    readings: list[Reading]
    engineers_for_the_drop: float
    throughput_for_the_claim: float
    verdicts: list[str]


class LoadDocument(TypedDict):
    """The share of a length bucket's requests that replicas of one kind serve."""

    replica: str
    workload: str
    bucket: Any
    share_fraction: float


def _contract_nodes(pool: PoolPeriod) -> dict[str, int]:
    contracts = zip(pool.offer.contracts, pool.contract_nodes, strict=False)
    return {f"{contract.months} months": nodes for contract, nodes in contracts}


def _load(pool: PoolPeriod) -> list[LoadDocument]:
    return [
        LoadDocument(replica=name, workload=workload, bucket=bucket, share_fraction=share)
        for (name, (workload, bucket)), share in pool.load.items()
    ]


class PoolPeriodDocument(TypedDict):
    """Nodes and replicas with one accelerator, at one site, in one period."""

    accelerator: Annotated[str, at("offer.accelerator")]
    vendor: Annotated[str, at("offer.vendor")]
    site: Annotated[str, at("offer.site")]
    period: int
    kept_nodes: int
    owned_nodes: int
    contract_nodes: Annotated[dict[str, int], at(_contract_nodes)]
    rented_nodes: int
    spare_nodes: int
    devices: Annotated[int, at(lambda pool: pool.nodes * pool.offer.devices)]
    replicas: dict[str, int]
    load: Annotated[list[LoadDocument], at(_load)]


class CashDocument(TypedDict):
    """Payments and orders, in undiscounted dollars."""

    capex_usd: float
    first_order_usd: float
    opex_usd: float
    orders: list[Order]
    quarters: list[Paid]
    years: list[Paid]
    after_usd: float
    bought_book_usd: float
    bought_resale_usd: float
    kept_book_usd: float | None


class BillDocument(TypedDict):
    """A fleet and its cost."""

    label: Annotated[str, at("mix.label")]
    cost_usd: Annotated[float, at("mix.cost_usd")]
    gap_fraction: Annotated[float, at("mix.gap_fraction")]
    pools: Annotated[list[PoolPeriodDocument], at("mix.pools")]
    cost: FleetCost
    cash: CashDocument


class VerifiedDocument(TypedDict):
    """A fleet after simulation."""

    met: bool
    checks: list[Check]
    attempts: int
    added_usd: float
    cost_usd: Annotated[float, at("mix.cost_usd")]


class SpanDocument(TypedDict):
    """P10, median and P90 over the draws in which the fleet is feasible; null if there is no such draw."""

    low: float | None
    median: float | None
    high: float | None


class VerdictDocument(TypedDict):
    """The verdict: winner, margin and probability."""

    outcome: Outcome
    of_fleets: Outcome
    api_usd: float | None
    winner: str
    others_usd: dict[str, float]
    probability: float
    likeliest: str
    likeliest_probability: float
    cost_usd: SpanDocument
    near: list[str]
    measure: list[str]


class ConfidenceDocument(TypedDict):
    """Results of the Monte Carlo draws."""

    draws: int
    seed: int
    probability: dict[str, float]
    fleet_usd: SpanDocument
    served_fraction: float
    cost_usd: dict[str, SpanDocument]
    saving_usd: SpanDocument | None
    blame: list[Blame]
    enough_fraction: float
    nodes: SpanDocument


class SwingDocument(TypedDict):
    """The winner's cost, and its saving over the best alternative, at both ends of an input's range.

    Null if the winner, or every alternative, is infeasible.
    """

    kind: KnobKind
    id: str
    subject: str
    name: str
    unit: str
    low: float
    high: float
    saving_at_low_usd: float | None
    saving_at_high_usd: float | None
    cost_at_low_usd: float | None
    cost_at_high_usd: float | None


class FleetDocument(TypedDict):
    """The cheapest fleet, the alternatives, and the confidence in the choice."""

    feasible: Annotated[Literal[True], at(lambda _: True)]
    headline: Annotated[str, at(headline)]
    verdict: VerdictDocument
    people: PeopleBreakEven | None
    winner: BillDocument
    runners_up: list[BillDocument]
    by_label: dict[str, BillDocument]
    confidence: ConfidenceDocument
    tornado: Annotated[list[SwingDocument], at("swings")]
    flips: list[Flip]
    rules: list[RulePrice]
    scenarios: list[DemandScenario]
    owned: Owned | None
    verified: list[VerifiedDocument]
    regret_usd: float | None
    levels: list[ConfidenceLevel]
    engine_saving: EngineSaving | None
    unchecked_launches: list[UncheckedLaunch]
    round_robin: PlainRouter | None
    saving: NodeSaving | None
    api_break_even: ApiBreakEven | None
    single_devices: SingleDevices | None


class NoFleetDocument(TypedDict):
    """The answer if no fleet satisfies every rule."""

    feasible: Annotated[Literal[False], at(lambda _: False)]
    headline: Annotated[str, at(lambda _: NO_FLEET)]
    reasons: list[str]


def _answer(result: PlanResult) -> FleetDocument | NoFleetDocument:
    if isinstance(result.answer, NoFleet):
        return build(NoFleetDocument, result.answer)
    return build(FleetDocument, result.answer)


class PlanDocument(TypedDict):
    """Answer of `plan`: the recommended fleet."""

    schema: Literal["penstock.plan/2"]
    plan: Plan
    periods_years: Annotated[Any, at("terms.periods")]
    capacity: Annotated[str, at("capacity_note")]
    candidates: list[CandidateDocument]
    deployments_considered: Annotated[int, at("considered")]
    left_out: list[LeftOut]
    unpriced: Annotated[list[str], at("resolved.unpriced")]
    unmeasured: Annotated[list[str], at("resolved.unmeasured")]
    assumptions: list[AssumptionDocument]
    defaults: Annotated[list[PlanDefault], at(lambda result: plan_defaults(result.resolved))]
    claims: list[ClaimDocument]
    sharing: SharingSaving | None
    answer: Annotated[FleetDocument | NoFleetDocument, at(_answer)]
