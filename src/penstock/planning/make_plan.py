"""Makes a plan: resolve, place, optimise, bill, quantify uncertainty and verify, in one call."""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from penstock.audit.saving_claim import ClaimCheck, check_claim
from penstock.catalog.accelerator import Accelerator
from penstock.model import ModelSpec
from penstock.planning.candidates.candidate_search import Candidate, EnginesOf, find_candidates
from penstock.planning.candidates.deployment_options import DraftsOf
from penstock.planning.candidates.disaggregated_units import UnitsOf
from penstock.planning.candidates.replica_capacity import CapacityOf
from penstock.planning.feasibility import refuse_impossible, unserved_lengths
from penstock.planning.optimizer.build_problem import build_problem
from penstock.planning.optimizer.cash_flow import Cash, cash_of
from penstock.planning.optimizer.cheapest_mix import cheapest
from penstock.planning.optimizer.competing_fleets import Family, find_family, steps_of
from penstock.planning.optimizer.fleet_bill import FleetCost, bill
from penstock.planning.optimizer.node_costs import BillingTerms, stepped, terms_of
from penstock.planning.optimizer.problem import Mix, Problem
from penstock.planning.spec.plan_types import Plan, WorkloadPlan
from penstock.planning.spec.resolve_plan import Assumption, DrawOf, LeftOut, PricesOf, Resolved, assumptions, resolve
from penstock.planning.spec.trace_workload import ReadTrace, with_trace
from penstock.planning.uncertainty.monte_carlo import Confidence, draw_confidence, widened
from penstock.planning.uncertainty.people import PeopleDecide, people_decide
from penstock.planning.uncertainty.scenarios import (
    DemandScenario,
    Owned,
    RulePrice,
    Sized,
    as_solved,
    blocked,
    demand_scenarios,
    owned_worth,
    rule_prices,
)
from penstock.planning.uncertainty.sensitivity import Flip, Judge, Swing, tornado
from penstock.planning.uncertainty.settled_flips import settled_flips
from penstock.planning.uncertainty.uncertain_inputs import InputWorld, capacity_spreads, knobs_of
from penstock.planning.uncertainty.verdict import PlanVerdict, judge
from penstock.planning.verification.prove_fleets import (
    Proof,
    plan_with_simulated_rates,
    prove,
    proven_here,
    simulate_cheaper_fleets,
)
from penstock.planning.verification.serving_fleet import VerifyOf
from penstock.planning.verification.simulated_capacity import LoadJudge
from penstock.planning.verification.verify_fleet import MAY_CARRY, Verified, verify_fleet
from penstock.simulation.run_options import StageProgress

RUNNERS_UP = 3
_LOOKED_AGAIN = 2
"""Number of times a plan is answered again with cheaper fleets found in the process."""


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Sources of everything a plan does not state: accelerators, prices, models, capacities, and a simulator."""

    accelerators: Sequence[Accelerator]
    """Accelerators the plan lists, or the whole catalog if it lists none."""
    prices_of: PricesOf
    model_of: Callable[[str], ModelSpec]
    capacity_of: CapacityOf
    capacity_note: str
    """Sentence for the report on how capacity was judged."""
    screen: CapacityOf | None = None
    engines_of: EnginesOf = lambda *_: ()
    """Engines an accelerator was measured with, optionally with a given model; one is chosen per split."""
    engines_of_vendor: Callable[[str], Sequence[str]] = lambda _: ()
    """Engines measured on any accelerator of a vendor."""
    served: Callable[[str], bool] = lambda _: True
    """Whether an accelerator has serving measurements."""
    drafts_of: DraftsOf = lambda *_: None
    """Speculation of a checkpoint's own draft layers with an engine."""
    units_of: UnitsOf = lambda *_: ()
    """Disaggregated units worth simulating on an accelerator."""
    verify_of: VerifyOf | None = None
    sizing_of: VerifyOf | None = None
    """Like `verify_of`, but it decides only whether a pool meets the SLO, not the margin."""
    sustained_of: LoadJudge | None = None
    """Highest rate that replicas of one kind sustain together."""
    read_trace: ReadTrace | None = None
    draw_of: DrawOf = lambda _: None
    """Power that devices draw while they serve; without it nodes are billed at their maximum."""


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


@dataclass(frozen=True, kw_only=True)
class Answer:
    """All results of a plan that has a fleet."""

    family: Family
    winner: Bill
    runners_up: tuple[Bill, ...]
    by_label: Mapping[str, Bill]
    verdict: PlanVerdict
    people: PeopleDecide | None
    """The vendor for which engineers decide; None if hardware decides."""
    confidence: Confidence
    swings: tuple[Swing, ...]
    flips: tuple[Flip, ...]
    rules: tuple[RulePrice, ...]
    """Cost of each rule of the plan, the most expensive first."""
    scenarios: tuple[DemandScenario, ...]
    """Demand low, as stated and high; empty if it has no range."""
    owned: Owned | None
    """Use of the nodes owned already; None if there are none."""
    verified: tuple[Verified, ...]
    """The fleets after simulation, the winner first; empty without a simulator."""
    regret_usd: float | None


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

    @property
    def plan(self) -> Plan:
        """Return the plan with its prices filled in."""
        return self.resolved.plan


def make_plan(plan: Plan, sources: Sources, progress: StageProgress = lambda *_: None) -> PlanResult:
    """Compute the result of a plan."""
    traced = [with_trace(entry, sources.read_trace, sources.model_of) for entry in plan.workloads]
    plan = replace(plan, workloads=tuple(workload for workload, _ in traced))
    resolved = resolve(
        plan,
        sources.accelerators,
        sources.prices_of,
        named=bool(plan.accelerators),
        draw_of=sources.draw_of,
        served=sources.served,
    )
    resolved = replace(resolved, plan=stepped(resolved.plan))
    refuse_impossible(resolved, sources.engines_of_vendor)
    candidates, considered, left_out = _place(resolved, sources, progress)
    problem = build_problem(resolved, candidates)
    unserved = unserved_lengths(resolved, candidates)
    answer = None if unserved else _answered(resolved, problem, candidates, sources, progress)
    return PlanResult(
        resolved=resolved,
        terms=terms_of(resolved),
        problem=problem,
        candidates=candidates,
        considered=considered,
        left_out=(*(note for _, notes in traced for note in notes), *resolved.left_out, *left_out),
        assumptions=assumptions(resolved),
        capacity_note=sources.capacity_note,
        claims=tuple(check_claim(claim) for claim in plan.claims),
        answer=answer or NoFleet(reasons=unserved or blocked(problem)),
    )


def _engines_of(workload: WorkloadPlan, resolved: Resolved, sources: Sources) -> EnginesOf:
    """Return a function for the engines measured on an accelerator.

    If the workload requests engines and the accelerator has no measurements, it returns the engines of its vendor.
    """

    def engines_of(part: str, model: ModelSpec | None) -> Sequence[str]:
        measured = sources.engines_of(part, model)
        of_vendor = sources.engines_of_vendor(resolved.accelerators[part].vendor) if workload.engines else ()
        return measured or of_vendor

    return engines_of


def _place(
    resolved: Resolved, sources: Sources, progress: StageProgress
) -> tuple[tuple[Candidate, ...], int, tuple[LeftOut, ...]]:
    plan = resolved.plan
    parts = [(resolved.accelerators[part.id], part) for part in plan.accelerators]
    total, done = len(parts) * len(plan.workloads), 0

    def step(name: str) -> None:
        nonlocal done
        progress(f"capacity of {name}", done, total)
        done += 1

    candidates: list[Candidate] = []
    left_out: list[LeftOut] = []
    considered = 0
    for workload in plan.workloads:
        model = sources.model_of(workload.model)
        found = find_candidates(
            workload,
            model,
            parts,
            sources.capacity_of,
            screen=sources.screen,
            engines_of=_engines_of(workload, resolved, sources),
            drafts_of=sources.drafts_of,
            units_of=sources.units_of if workload.disaggregated else lambda *_: (),
            step=step,
        )
        candidates += found.candidates
        left_out += found.left_out
        considered += found.considered
    return tuple(candidates), considered, tuple(left_out)


def _family(problem: Problem, progress: StageProgress, *, may_carry: float | None) -> Family | None:
    steps = steps_of(problem)

    def step(name: str) -> None:
        progress(f"optimising: {name}", steps.index(name), len(steps))

    return find_family(problem, runner_up_count=RUNNERS_UP, may_carry=may_carry, step=step)


def _answered(
    resolved: Resolved,
    problem: Problem,
    candidates: tuple[Candidate, ...],
    sources: Sources,
    progress: StageProgress,
) -> Answer | None:
    """Return the cheapest fleet's answer; None if no fleet satisfies every rule, even at `MAY_CARRY` capacity."""
    family = _family(problem, progress, may_carry=None if sources.verify_of is None else MAY_CARRY)
    if family is None:
        return None
    simulated = _simulating(resolved, candidates, sources)
    if simulated is None:
        return _answer(resolved, Proof(verified=()), family, problem, candidates, sources, progress)

    def verify(mix: Mix) -> Verified:
        return simulated(mix, problem)

    proof, family = _proven(family, problem, verify, progress)
    if not proof.verified[0].met and cheapest(problem) is None:
        return None
    answer = _answer(resolved, proof, family, problem, candidates, sources, progress)
    for _ in range(_LOOKED_AGAIN):
        better = proven_here(proof, family, problem, answer.family.of_other_worlds, verify)
        if better is None:
            break
        proof, family = better
        proof = simulate_cheaper_fleets(proof, family, problem, verify)
        answer = _answer(resolved, proof, family, problem, candidates, sources, progress)
    return answer


def _answer(
    resolved: Resolved,
    proof: Proof,
    family: Family,
    problem: Problem,
    candidates: tuple[Candidate, ...],
    sources: Sources,
    progress: StageProgress,
) -> Answer:
    terms = terms_of(resolved)
    if proof.verified:
        # From here on every figure is of the fleets as simulated: cost, uncertainty and flips share one basis.
        family = replace(family.led_by(proof.verified[0].planned), carried=proof.carried(problem))
        family = family.each(lambda mix: proof.mix(mix, family.informed(problem)))

    sized = _sizing(_simulating(resolved, candidates, sources, searched=False))

    def billed(mix: Mix) -> Bill:
        return Bill(mix=mix, cost=bill(mix, terms, candidates), cash=cash_of(mix, terms))

    progress("what would change the answer", 0, 4)
    proven, family = family, family.competing()
    candidates = _competing(candidates, family)
    world = InputWorld(resolved=_of_parts(resolved, family.support))
    knobs = knobs_of(world.resolved, capacity_spreads(candidates))
    family = widened(family, world, candidates, knobs, seed=resolved.plan.seed)
    progress("what would change the answer", 1, 4)
    confidence = draw_confidence(family, world, candidates, knobs, seed=resolved.plan.seed, draws=resolved.plan.draws)
    judged = Judge(family=family, candidates=candidates, winner=family.label(family.winner))
    progress("what would change the answer", 2, 4)
    swings = tornado(judged, world, knobs)
    progress("what would change the answer", 3, 4)
    turning, found = settled_flips(judged, world, knobs, _sizing(_simulating(resolved, candidates, sources)))
    return Answer(
        family=found,
        winner=billed(family.winner),
        runners_up=tuple(billed(mix) for mix in family.runners_up),
        by_label={label: billed(mix) for label, mix in proven.by_label.items()},
        verdict=judge(proven, confidence, candidates, turning),
        people=people_decide(proven.by_label, terms) if proven.by_vendor else None,
        confidence=confidence,
        swings=swings,
        flips=turning,
        rules=rule_prices(problem, family, sized),
        scenarios=demand_scenarios(family, world, candidates, knobs, sized),
        owned=owned_worth(problem, family, sized),
        verified=proof.verified,
        regret_usd=proof.regret_usd,
    )


def _competing(candidates: tuple[Candidate, ...], family: Family) -> tuple[Candidate, ...]:
    """Drop disaggregated units that no competing fleet runs: their error does not affect the others."""
    used = {name for mix in family.fleets for pool in mix.pools for name in pool.replicas}
    return tuple(entry for entry in candidates if entry.disaggregated is None or entry.id in used)


def _of_parts(resolved: Resolved, support: AbstractSet[str]) -> Resolved:
    """Drop accelerators that no competing fleet uses, unless they come later or are owned."""
    owned = {entry.id for entry in resolved.plan.owned}
    kept = (part for part in resolved.plan.accelerators if part.id in support or part.available or part.id in owned)
    return replace(resolved, plan=replace(resolved.plan, accelerators=tuple(kept)))


_Simulated = Callable[[Mix, Problem], Verified]


def _simulating(
    resolved: Resolved, candidates: tuple[Candidate, ...], sources: Sources, *, searched: bool = True
) -> _Simulated | None:
    """Return the function that simulates and sizes a fleet; None without a simulator.

    With `searched`, it also searches the maximum rate of each pool.
    """
    simulate = sources.verify_of if searched else sources.sizing_of or sources.verify_of
    if simulate is None:
        return None

    def simulated(mix: Mix, problem: Problem) -> Verified:
        its = problem.of_its_kind(mix)
        return verify_fleet(mix, its, candidates, resolved.plan.workloads, simulate, sizing_of=sources.sizing_of)

    return simulated


def _proven(
    family: Family, problem: Problem, verify: Callable[[Mix], Verified], progress: StageProgress
) -> tuple[Proof, Family]:
    fleets = len(family.fleets)

    def step(number: int) -> None:
        progress("simulating fleets that may be cheapest", number, fleets)

    proof = prove(family, verify, step)
    progress("planning with what was simulated", 0, 1)
    proof, family = plan_with_simulated_rates(proof, family, problem, verify)
    return simulate_cheaper_fleets(proof, family, problem, verify), family


def _sizing(simulated: _Simulated | None) -> Sized:
    """Return the function that sizes a fleet of another problem like the plan's own: None if it misses the SLO."""
    if simulated is None:
        return as_solved

    def sized(mix: Mix, problem: Problem) -> Mix | None:
        found = simulated(mix, problem)
        return found.mix if found.met else None

    return sized
