"""Derives the benchmark that delivered nodes must pass: one node of each pool serves the plan's load within the SLO."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, inf, log10
from typing import Annotated, ClassVar, Final, Literal

from penstock.errors import UsageError
from penstock.fleet.deployment import Parallelism
from penstock.fleet.disaggregated_replica import Disaggregated
from penstock.planning.candidates.candidate_search import Candidate
from penstock.planning.optimizer.problem import PoolPeriod
from penstock.planning.plan_result import Answer, Bill, PlanResult
from penstock.planning.spec.plan_types import WorkloadPlan
from penstock.planning.verification.simulated_capacity import LoadJudge, PoolLoad
from penstock.reading.file_shape import file_config
from penstock.reading.scalars import LOWER_CASE, Count, Number, Whole, number, whole
from penstock.workload.slo import Slo

ACCEPTANCE_VERSION: Final = 1
_TWO_ERRORS: Final = 0.01
"""Required precision of the measured share of requests within the SLO: two standard errors are at most 0.01."""
_MIN_REQUESTS: Final = 500
_PASSABLE: Final = 0.95
"""Maximum load required of the nodes under test, relative to the load that these nodes sustain alone in simulation.

Requests that queue together miss the SLO together, so results vary between runs. A node whose speed equals the estimate
passed 8 of 12 runs at full load, and 11 of 12 runs at 95% of full load.
"""
_LOADS: Final = (("half", 0.5), ("peak", 1.0))
_DIGITS: Final = 4
"""Number of significant digits of a required rate."""
_ROUNDING: Final = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedLength:
    """Requests of one length, with their share of a node's load."""

    input_tokens: Count
    output_tokens: Count
    share_fraction: Annotated[float, number(high=1.0, digits=9)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedLoad:
    """One run: Poisson arrivals at a rate, and the share of requests that must meet the SLO."""

    name: str
    requests_per_s: Number
    requests: Count
    at_least_fraction: Annotated[float, number(high=1.0)]

    def __post_init__(self) -> None:
        if self.requests_per_s <= 0 or self.requests < 1 or not 0 < self.at_least_fraction <= 1:
            raise UsageError(
                "a load needs `requests_per_s` and `requests` above 0, and `at_least_fraction` above 0 and at most 1"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillReplicas:
    """Prefill-only replicas of a disaggregated benchmark; the benchmark's other replicas then only decode."""

    replicas: Count
    split: Parallelism


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceCase:
    """A benchmark that nodes of one pool must pass before they are paid for."""

    name: str
    workload: str
    accelerator: str
    vendor: str
    nodes: Count
    """Number of nodes under test: one, or as many as one replica spans."""
    replicas: Count
    """Number of replicas on the nodes under test. One router sends each request to the replica with the fewest
    requests."""
    model: str
    weights: str
    kv: str
    engine: str
    split: Parallelism
    drafted_tokens: Annotated[int, whole(high=64)] = 0
    """Tokens drafted per step by the checkpoint's own draft layers; 0 without speculative decoding."""
    prefill: PrefillReplicas | None = None
    """Prefill replicas of a disaggregated benchmark; `replicas` and `split` then describe the decode replicas."""
    lengths: tuple[AcceptedLength, ...]
    slo: Slo
    loads: tuple[AcceptedLoad, ...]
    node_watts_at_most: Number

    def __post_init__(self) -> None:
        total = sum(length.share_fraction for length in self.lengths)
        if abs(total - 1) > 1e-6:  # rounded in a file
            raise UsageError(f"the shares of the lengths must add up to 100%, not {total:.4%}")


@dataclass(frozen=True, kw_only=True)
class Margin:
    """The plan's estimate for a benchmark, compared with the rate the benchmark requires; vendors do not see it."""

    case: AcceptanceCase
    sent_requests_per_s: float
    """Peak request rate in the plan of the same number of replicas as in the benchmark."""
    estimate_requests_per_s: float
    low_requests_per_s: float
    high_requests_per_s: float
    """P90 of the rate that the nodes under test, without other nodes, sustain within the SLO.

    `estimate_requests_per_s` is the estimate of the same rate, and `low_requests_per_s` is the P10.
    """
    turns_below_requests_per_s: float | None
    """If the nodes under test sustain less than this rate, a different fleet is cheapest; None if no such rate was
    found."""

    @property
    def margin_fraction(self) -> float:
        """Return the fraction by which the estimated rate exceeds the required rate."""
        return self.estimate_requests_per_s / self.case.loads[-1].requests_per_s - 1


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """The acceptance benchmark of a plan."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = file_config(expert_parallel="ep")

    version: Whole = ACCEPTANCE_VERSION
    plan: str
    arrivals: Annotated[Literal["poisson"], LOWER_CASE] = "poisson"
    cases: tuple[AcceptanceCase, ...]


def margins_of(result: PlanResult, answer: Answer, sustained: LoadJudge | None = None) -> tuple[Margin, ...]:
    """Derive required rates and margins for the pools of the chosen fleet, and of the best fleet of each other label.

    A single node has fewer replicas than its pool, so bursts are spread less well over its replicas. Therefore
    `sustained` simulates the replicas under test by themselves, and the required rate never exceeds their simulated
    rate. Without `sustained`, the predicted capacity of a replica is used.
    """
    found: dict[str, Margin] = {}
    for bill in (answer.winner, *answer.by_label.values()):
        for pool, entry in _of_fleet(result, bill):
            if entry.id not in found:
                found[entry.id] = _margin(result, answer, pool, entry, sustained)
    return tuple(found.values())


def _of_fleet(result: PlanResult, bill: Bill) -> Iterator[tuple[PoolPeriod, Candidate]]:
    """Yield each kind of replica of a fleet once, with the pool and period in which its load per replica is highest."""
    hardest: dict[str, tuple[float, PoolPeriod]] = {}
    for pool in bill.mix.pools:
        for name in pool.replicas:
            rate = sum(_rates(result, pool, name).values())
            if rate > hardest.get(name, (0.0, pool))[0]:
                hardest[name] = (rate, pool)
    by_id = {entry.id: entry for entry in result.candidates}
    for name, (_, pool) in hardest.items():
        yield pool, by_id[name]


def _rates(result: PlanResult, pool: PoolPeriod, name: str) -> dict[int, float]:
    """Map each length bucket to its peak rate per replica, in requests per second, including the plan's headroom."""
    most = 1 / result.problem.utilisation_fraction
    peaks = {demand.key: demand.requests_per_s[pool.period] * most for demand in result.problem.demands}
    return {
        demand[1]: share * peaks[demand] / pool.replicas[name]
        for (runs, demand), share in pool.load.items()
        if runs == name and share > 0
    }


def _margin(
    result: PlanResult, answer: Answer, pool: PoolPeriod, entry: Candidate, sustained: LoadJudge | None
) -> Margin:
    rates = _rates(result, pool, entry.id)
    workload = next(plan for plan in result.plan.workloads if plan.name == entry.workload)
    _, units = _system(entry)
    sent = sum(rates.values()) * units
    judged, low, high = (bound * units for bound in _replica_rate(entry, rates))
    alone = 0.0 if sustained is None else sustained(_load(workload, entry, rates, units))
    estimate = alone or judged
    turns = _turns_below(answer, entry.accelerator.id)
    return Margin(
        case=_case(result, workload, entry, rates, min(sent, _PASSABLE * estimate if alone else estimate)),
        sent_requests_per_s=sent,
        estimate_requests_per_s=estimate,
        low_requests_per_s=low * estimate / judged,
        high_requests_per_s=high * estimate / judged,
        turns_below_requests_per_s=None if turns is None else turns * estimate,
    )


def _load(workload: WorkloadPlan, entry: Candidate, rates: Mapping[int, float], units: int) -> PoolLoad:
    """Return the replicas under test as a separate pool, with the lengths that the benchmark sends."""
    total = sum(rates.values())
    return PoolLoad(
        option=entry.option,
        replicas=units,
        mix=tuple((workload.shares[index].bucket.at_its_mean(), rate / total) for index, rate in sorted(rates.items())),
        requests_per_s=total * units,
        slo=workload.slo,
    )


def _case(
    result: PlanResult, workload: WorkloadPlan, entry: Candidate, rates: Mapping[int, float], peak_requests_per_s: float
) -> AcceptanceCase:
    nodes, units = _system(entry)
    unit = entry.disaggregated
    return AcceptanceCase(
        name=entry.id.replace(" ", "-"),
        workload=workload.name,
        accelerator=entry.accelerator.id,
        vendor=entry.accelerator.vendor,
        nodes=nodes,
        replicas=units if unit is None else units * unit.decode_replicas,
        model=workload.model,
        weights=entry.weights,
        kv=entry.deployment.chosen_cache_dtype.value,
        engine=entry.measured_engine,
        split=entry.deployment.parallelism,
        drafted_tokens=0 if entry.speculation is None else entry.speculation.drafted_tokens,
        lengths=tuple(_lengths(workload, rates)),
        slo=workload.slo,
        loads=tuple(_loads(workload.slo, peak_requests_per_s)),
        node_watts_at_most=result.resolved.power[entry.accelerator.id].node_watts,
        prefill=None if unit is None else _prefill(unit, units),
    )


def _prefill(unit: Disaggregated, units: int) -> PrefillReplicas:
    return PrefillReplicas(replicas=units * unit.prefill_replicas, split=unit.prefill.parallelism)


def _lengths(workload: WorkloadPlan, rates: Mapping[int, float]) -> Iterator[AcceptedLength]:
    total = sum(rates.values())
    for index, rate in sorted(rates.items()):
        bucket = workload.shares[index].bucket
        yield AcceptedLength(
            input_tokens=bucket.input_tokens, output_tokens=bucket.output_tokens, share_fraction=rate / total
        )


def _loads(slo: Slo, peak_requests_per_s: float) -> Iterator[AcceptedLoad]:
    attained = slo.attainment_fraction
    requests = max(_MIN_REQUESTS, ceil(attained * (1 - attained) / (_TWO_ERRORS / 2) ** 2))
    for name, load in _LOADS:
        rate = _short(peak_requests_per_s * load)
        yield AcceptedLoad(name=name, requests_per_s=rate, requests=requests, at_least_fraction=attained)


def _system(entry: Candidate) -> tuple[int, int]:
    """Return the numbers of nodes and replicas under test: one node, or all nodes that one large replica spans."""
    node = entry.accelerator.node.devices
    return (1, node // entry.devices) if entry.devices <= node else (entry.devices // node, 1)


def _replica_rate(entry: Candidate, rates: Mapping[int, float]) -> Sequence[float]:
    """Return the estimate, the P10 and the P90 of the rate that a replica sustains for a mix of lengths.

    Each length is weighted by the time that its requests take.
    """
    total = sum(rates.values())
    found = []
    for bound in ("value", "low", "high"):
        carried = {bucket: getattr(entry.capacities[bucket].requests_per_s, bound) for bucket in rates}
        busy = sum(rate / carried[bucket] if carried[bucket] > 0 else inf for bucket, rate in rates.items())
        found.append(total / busy)
    return found


def _turns_below(answer: Answer, accelerator: str) -> float | None:
    return next(
        (
            flip.at
            for flip in answer.flips
            if flip.kind == "throughput" and flip.subject == accelerator and flip.side == "below"
        ),
        None,
    )


def _short(value: float) -> float:
    """Round a rate down to `_DIGITS` significant digits."""
    step = 10.0 ** (floor(log10(value)) + 1 - _DIGITS)
    return float(f"{min(value, floor(value / step * (1 + _ROUNDING)) * step):.{2 * _DIGITS}g}")
