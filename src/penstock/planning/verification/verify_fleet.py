"""Verifies a fleet by simulation and sizes it so that it just meets its SLO."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from math import ceil
from typing import Final

import numpy as np

from penstock.planning.candidates.candidate_search import Candidate
from penstock.planning.optimizer.cheapest_mix import cheapest
from penstock.planning.optimizer.fill_nodes import fill_nodes
from penstock.planning.optimizer.load_balance import balance_load
from penstock.planning.optimizer.problem import Mix, PoolKey, PoolPeriod, Problem, ReplicaKind, Restriction
from penstock.planning.optimizer.refill_nodes import Filling
from penstock.planning.optimizer.vendor_load import vendors_above_minimum_share
from penstock.planning.spec.plan_types import WorkloadPlan
from penstock.planning.verification.serving_fleet import (
    Check,
    VerifyOf,
    at_planned_load,
    load_factors,
    pool_id,
    serving_fleet,
)

_HEADROOM: Final = 0.98
MAY_CARRY: Final = 1.07
"""Maximum factor by which simulated capacity is assumed to exceed estimated capacity.

A replica in a large pool carries up to 7% more than a replica in a pool of 8.
"""
_MIN_CAPACITY: Final = 0.01
_ROUNDING: Final = 1e-6
_ATTEMPTS, _ENOUGH, _TIGHTER = 10, 4, 60
"""Three counts that limit sizing.

The counts are the maximum number of fleets simulated, the number of fleets after which sizing stops if one of them
meets the SLO, and the maximum number of headroom steps.
"""
_STEPS: Final = 1000
"""Number of steps in which a simulated capacity is lowered to the load that the replicas must carry."""
_WORTH_UNMIXING: Final = 0.01
"""Minimum cost increase, relative to the planned cost, for which fleets with fewer kinds of replicas are tried."""
_PERIODS_GAP, _MAX_NODES, _FEW_NODES = 1e-3, 2_000, 500
"""Optimality gap (0.1%) for replanning a fleet that changes over time, and limits on the solver's search tree."""

CheckKey = tuple[int, str]
"""Period and pool id, or period and workload name if a check covers all pools of a workload."""


@dataclass(frozen=True, kw_only=True)
class Verified:
    """A fleet after simulation: unchanged, or sized so that it just meets the SLO."""

    planned: Mix
    mix: Mix
    checks: tuple[Check, ...]
    """The worst check of each workload."""
    attempts: int
    pools: tuple[Check, ...] = ()
    """The checks of every pool in every period."""

    @property
    def met(self) -> bool:
        """Return whether every workload met its SLO in the final fleet."""
        return all(check.met for check in self.checks)

    @property
    def added_usd(self) -> float:
        """Return the cost in dollars that sizing by simulation added; negative if the fleet became smaller."""
        return self.mix.cost_usd - self.planned.cost_usd


def verify_fleet(
    mix: Mix,
    problem: Problem,
    candidates: Sequence[Candidate],
    workloads: Sequence[WorkloadPlan],
    verify_of: VerifyOf,
    *,
    sizing_of: VerifyOf | None = None,
) -> Verified:
    """Size a fleet so that every pool meets the SLO in simulation, then check the attainment of the final fleet.

    The quick checks during sizing may overlook a narrow miss. If the final fleet misses the SLO, it is sized again by
    the attainment of every pool.
    """
    found = _size_with_fewest_kinds(mix, problem, candidates, workloads, sizing_of or verify_of)
    checks = check_periods(found.mix, problem, candidates, workloads, verify_of)
    if found.met and not all(check.met for check in checks.values()):
        found = _size_with_fewest_kinds(mix, problem, candidates, workloads, verify_of)
        checks = check_periods(found.mix, problem, candidates, workloads, verify_of)
    seen = with_simulated_rates(found.mix, checks, problem)
    return replace(found, mix=seen, checks=worst_checks(checks), pools=tuple(checks.values()))


def with_simulated_rates(mix: Mix, checks: Mapping[CheckKey, Check], problem: Problem) -> Mix:
    """Return the fleet with simulated pool capacities, which are used to resize the fleet when inputs change."""
    plain, found = replace(problem, carried={}), dict[PoolKey, float]()
    for key, check, busy in _pools_checked(mix, checks, plain):
        if check.sustained_share is not None and check.met:
            found[key] = busy * check.sustained_share
    pools = []
    for pool in mix.pools:
        own = {name: found.get((pool.offer.key, name, pool.period)) for name in pool.replicas}
        seen = {**pool.carried, **{name: factor for name, factor in own.items() if factor is not None}}
        pools.append(replace(pool, carried=seen, instead=dict.fromkeys(_other_kinds(pool, mix, problem), 1.0)))
    filling = Filling(plain, pools)
    needed = (pool if pool.offer.lot_nodes > 1 else _cap_to_node_count(pool, filling) for pool in pools)
    return replace(mix, pools=tuple(needed))


def _other_kinds(pool: PoolPeriod, mix: Mix, problem: Problem) -> Iterator[str]:
    """Return, for each workload of a pool, the best kind of replica of each size that the pool lacks."""
    own = {name for other in mix.pools if other.offer.key == pool.offer.key for name in other.replicas}
    kinds = problem.replicas_on(pool.offer)
    had = {(kind.workload, kind.devices) for kind in kinds if kind.id in own}
    lengths = [demand.key[0] for demand in problem.demands]
    best: dict[tuple[str, int], ReplicaKind] = {}
    for kind in sorted(kinds, key=problem.replicas_alone):
        at, serves_all = (kind.workload, kind.devices), len(problem.demands_of(kind)) == lengths.count(kind.workload)
        if serves_all and not kind.disaggregated and at not in had and any(workload == at[0] for workload, _ in had):
            best.setdefault(at, kind)
    return (kind.id for kind in best.values())


def _cap_to_node_count(pool: PoolPeriod, filling: Filling) -> PoolPeriod:
    """Lower a pool's capacities until the pool needs all of its nodes, because sizing by simulation found this need.

    The capacity of each kind of replica was searched separately and may by chance be slightly too high. If the kinds
    together would need fewer nodes, their capacities are lowered. The capacities of the pool's kinds are lowered at
    most to the load that they must carry, and those of other kinds that may fill the nodes at most to zero. Only the
    number of nodes must be right, not the number of replicas of each kind.
    """
    plain, times = filling.problem, dict.fromkeys(filling.workloads(pool), np.ones(1))
    asked = {name: share for name in pool.replicas if (share := plain.busy_share(pool, name)) > 0}

    def carrying(step: int) -> PoolPeriod:
        less = step / _STEPS
        own = {name: (1 - less) * pool.carried.get(name, 1.0) + less * share for name, share in asked.items()}
        instead = {name: (1 - less) * factor for name, factor in pool.instead.items()}
        return replace(pool, carried={**pool.carried, **own}, instead=instead)

    def nodes(step: int) -> int:
        return int(filling.nodes(carrying(step), times)[0])

    own = ceil(sum(count * filling.kinds[name].devices for name, count in pool.replicas.items()) / pool.offer.devices)
    return carrying(bisect_left(range(_STEPS), own, key=nodes))


def _size_with_fewest_kinds(
    mix: Mix,
    problem: Problem,
    candidates: Sequence[Candidate],
    workloads: Sequence[WorkloadPlan],
    verify_of: VerifyOf,
) -> Verified:
    """Size a fleet; if a fleet with several kinds of replicas had to grow, also try fleets with a single kind.

    Several kinds of replicas fit on nodes of one price, and before a simulation the integer program is indifferent
    between them. The kinds that the program chooses may miss the SLO although fewer kinds would meet the SLO. The
    cheapest fleet that meets the SLO is kept. A fleet with fewer kinds is planned with `MAY_CARRY`, the relative
    capacity possible in one large pool. A fleet that is not cheaper even with this optimistic capacity is not
    simulated.
    """
    best = _size(mix, problem, candidates, workloads, verify_of)
    for unmixed in _single_kind_problems(mix, problem.each_carrying(MAY_CARRY)):
        if best.met and best.added_usd <= _WORTH_UNMIXING * mix.cost_usd:
            break
        planned = of_same_accelerators(unmixed, mix)
        if planned is None or (best.met and planned.cost_usd >= best.mix.cost_usd * (1 - _ROUNDING)):
            continue
        found = _size(planned, replace(unmixed, carried=problem.carried), candidates, workloads, verify_of)
        if (not found.met, found.mix.cost_usd) < (not best.met, best.mix.cost_usd):
            best = replace(found, planned=mix, attempts=best.attempts + found.attempts)
    return best


def _single_kind_problems(mix: Mix, problem: Problem) -> Iterator[Problem]:
    """Yield problems that keep one kind of replica at a time, for workloads with several kinds on one accelerator."""
    used = {name for pool in mix.pools for name in pool.replicas}
    kinds = [replica for replica in problem.replicas if replica.id in used]
    for chosen in kinds:
        same = [kind for kind in kinds if (kind.workload, kind.accelerator) == (chosen.workload, chosen.accelerator)]
        if len(same) > 1:
            others = {kind.id for kind in same} - {chosen.id}
            yield replace(problem, replicas=tuple(kind for kind in problem.replicas if kind.id not in others))


def _size(
    mix: Mix,
    problem: Problem,
    candidates: Sequence[Candidate],
    workloads: Sequence[WorkloadPlan],
    verify_of: VerifyOf,
) -> Verified:
    """Simulate every pool in every period and plan again until the SLO is just met.

    The fleet is planned again on the same accelerators with the simulated capacity of each pool. A pool that missed the
    SLO gets more nodes, and a pool with room gets fewer nodes. The cheapest fleet that meets the SLO is kept.
    """
    tried, best = _with_largest_margin(mix, problem), None
    carried: dict[PoolKey, float] = {}
    seen: set[tuple[object, ...]] = set()
    for attempt in range(1, _ATTEMPTS + 1):
        seen.add(sizes_of(tried))
        checks = check_periods(tried, problem, candidates, workloads, verify_of)
        found = Verified(
            planned=mix, mix=tried, checks=worst_checks(checks), pools=tuple(checks.values()), attempts=attempt
        )
        if best is None or (not found.met, found.mix.cost_usd) < (not best.met, best.mix.cost_usd):
            best = found
        best = replace(best, attempts=attempt)
        if best.met and attempt >= _ENOUGH:
            break
        carried = _learn_capacities(tried, checks, replace(problem, carried=carried), lowest=attempt >= _ENOUGH)
        known = replace(problem, carried=carried)
        larger = _plan_again(tried, checks, known if attempt == 1 else _restrict_to_kinds(tried, known), seen)
        if larger is None or (best.met and larger[1].cost_usd >= best.mix.cost_usd):
            break
        carried, tried = larger
    if best is None:
        raise ValueError("a fleet must be simulated at least once")
    return best


def _learn_capacities(
    tried: Mix, checks: Mapping[CheckKey, Check], problem: Problem, *, lowest: bool
) -> dict[PoolKey, float]:
    """Map each pool to its simulated capacity relative to its estimated rates.

    A pool that is exactly sized met its load without a search for its capacity, so it keeps the capacity assumed before
    and may take over load from a pool that missed the SLO. If `lowest` is true, the lowest capacity seen so far is
    kept.
    """
    carried = dict(problem.carried)
    for key, check, busy in _pools_checked(tried, checks, problem):
        if check.sustained_share is not None:
            unsearched = check.just_right and check.sustained_share == 1
            used = max(1.0, busy) if unsearched else check.sustained_share * busy
            before, now = carried.get(key), carried.get(key, 1.0) * used
            carried[key] = max(_MIN_CAPACITY, now if before is None or not lowest else min(before, now))
    return carried


def _plan_again(
    tried: Mix, checks: Mapping[CheckKey, Check], problem: Problem, seen: AbstractSet[tuple[object, ...]]
) -> tuple[dict[PoolKey, float], Mix] | None:
    """Solve with the simulated capacities, until the result is a fleet that was not simulated before.

    Before each repetition, the capacities of pools that missed the SLO are lowered. Return None if no fleet is found.
    """
    carried, larger = dict(problem.carried), None
    missed = [key for key, check, _ in _pools_checked(tried, checks, problem) if not check.met]
    for _ in range(_TIGHTER if missed else 1):
        known = replace(problem, carried=dict(carried))
        larger = _reuse_if_feasible(larger, known) or of_same_accelerators(known, tried)
        if larger is None:
            return None
        if sizes_of(larger) not in seen:
            return carried, larger
        for key in missed:
            carried[key] = carried.get(key, 1.0) * _HEADROOM
    return None


def _reuse_if_feasible(mix: Mix | None, problem: Problem) -> Mix | None:
    """Return the previous fleet if it still carries the demand with the new capacities; otherwise None.

    Capacities were only lowered since the previous fleet was solved, so the solver could not find a cheaper fleet.
    """
    if mix is None:
        return None
    spread = balance_load(mix, problem)
    if any(problem.busy_share(pool, name) > 1 + _ROUNDING for pool in spread.pools for name in pool.replicas):
        return None
    pools = []
    for pool in spread.pools:
        factors = {name: problem.carried.get((pool.offer.key, name, pool.period), 1.0) for name in pool.replicas}
        pools.append(replace(pool, carried={name: factor for name, factor in factors.items() if factor != 1.0}))
    return replace(spread, pools=tuple(pools))


def of_same_accelerators(problem: Problem, mix: Mix) -> Mix | None:
    """Plan a fleet again on its accelerators; a fleet of several vendors keeps all vendors, as its label requires."""
    vendors = vendors_above_minimum_share(problem, mix)
    problem = problem.for_fleet(mix)
    found = cheapest(
        problem,
        Restriction(only_accelerators=mix.support, require_vendors=vendors if len(vendors) > 1 else frozenset()),
        gap_fraction=None if problem.periods == 1 else _PERIODS_GAP,
        search_nodes=_MAX_NODES,
    )
    return None if found is None else replace(_with_largest_margin(found, problem), headroom=mix.headroom)


def _with_largest_margin(mix: Mix, problem: Problem) -> Mix:
    """Spread the load over the pools, fill each pool for its load, and spread the load over the new replicas."""
    return balance_load(fill_nodes(balance_load(mix, problem), problem), problem)


def _restrict_to_kinds(tried: Mix, problem: Problem) -> Problem:
    """Return a copy of the optimization problem, restricted to the kinds of replicas that the fleet uses.

    Kinds that were not simulated look better than they are, so without this restriction each new plan would choose new
    kinds. In a period in which a kind was not simulated, the kind has the lowest capacity of its other periods.
    """
    used = {name for pool in tried.pools for name in pool.replicas}
    least: dict[tuple[object, str], float] = {}
    for (offer, name, _), factor in problem.carried.items():
        least[offer, name] = min(factor, least.get((offer, name), factor))
    periods = range(problem.periods)
    others = {
        (offer.key, name, period): least.get((offer.key, name), 1.0)
        for offer in problem.offers
        for name in used
        for period in periods
    }
    kinds = tuple(replica for replica in problem.replicas if replica.id in used)
    return replace(problem, replicas=kinds, carried={**others, **problem.carried})


def _pools_checked(
    tried: Mix, checks: Mapping[CheckKey, Check], problem: Problem
) -> Iterator[tuple[PoolKey, Check, float]]:
    """Yield every serving pool with its check and its planned utilisation."""
    workload = {replica.id: replica.workload for replica in problem.replicas}
    for pool in tried.pools:
        for name in pool.replicas:
            check = checks.get((pool.period, pool_id(name, pool.offer)))
            check = check or checks.get((pool.period, workload[name]))
            busy = problem.busy_share(pool, name)
            if check is not None and busy:
                yield (pool.offer.key, name, pool.period), check, busy


def sizes_of(mix: Mix) -> tuple[object, ...]:
    """Return a key of the fleet's properties that affect simulation; fleets with equal keys are simulated only once."""
    return tuple(
        (
            pool.offer.key,
            pool.period,
            tuple(sorted(pool.replicas.items())),
            tuple(sorted((key, round(share, 3)) for key, share in pool.load.items())),
        )
        for pool in mix.pools
    )


def check_periods(
    mix: Mix,
    problem: Problem,
    candidates: Sequence[Candidate],
    workloads: Sequence[WorkloadPlan],
    verify_of: VerifyOf,
) -> dict[CheckKey, Check]:
    """Check every period at its peak load plus the headroom that the plan requires."""
    found: dict[CheckKey, Check] = {}
    for period in sorted({pool.period for pool in mix.pools}):
        fleet = serving_fleet(mix, period, problem, candidates, workloads)
        planned = at_planned_load(fleet, problem)
        factors = load_factors(fleet, planned)
        for check in verify_of(planned):
            known = replace(check, peak_factor=factors.get(check.workload))
            found[period, check.pool or check.workload] = known
    return found


def worst_checks(checks: Mapping[CheckKey, Check]) -> tuple[Check, ...]:
    """Keep the worst check of each workload over its pools and periods."""
    worst: dict[str, Check] = {}
    for check in checks.values():
        before = worst.get(check.workload)
        if before is None or check.attainment_fraction < before.attainment_fraction:
            worst[check.workload] = check
    return tuple(worst.values())
