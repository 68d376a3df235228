"""Makes a plan, stage by stage.

1. Resolve: read traces, and fill in prices and everything else that the plan does not state.
2. Find candidates: every way to run a workload on an accelerator that meets the workload's SLO.
3. Optimise: the cheapest fleet and the fleets that compete with it.
4. Simulate: size every fleet that may be cheapest so that it just meets its SLO.
5. Quantify uncertainty: confidence, tornado, and flips (values at which another fleet becomes cheapest).
6. Bill the fleets, and price the rules, the demand scenarios and the nodes owned already.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock.planning.candidates.launch_obstacles import NotLaunched
from penstock.planning.candidates_by_workload import search_candidates
from penstock.planning.feasibility import refuse_impossible, unserved_lengths
from penstock.planning.optimizer.build_problem import build_problem
from penstock.planning.optimizer.cash_flow import cash_of
from penstock.planning.optimizer.competing_fleets import Family
from penstock.planning.optimizer.fleet_bill import bill
from penstock.planning.optimizer.node_costs import with_steps
from penstock.planning.optimizer.problem import Mix
from penstock.planning.plan_defaults import plan_defaults
from penstock.planning.plan_question import (
    PlanQuestion,
    answer_by_the_device,
    planner_of,
    prove,
    simulator_of,
    verify_of,
)
from penstock.planning.plan_result import Answer, Bill, NoFleet, PlanResult, UncheckedLaunch
from penstock.planning.plan_sources import Sources
from penstock.planning.saving_claim import check_claim
from penstock.planning.spec.catalog_prices import is_rented_singly
from penstock.planning.spec.plan_types import Plan, WorkloadPlan
from penstock.planning.spec.resolve_plan import (
    LeftOut,
    Resolved,
    assumptions,
    resolve,
)
from penstock.planning.spec.trace_workload import with_trace
from penstock.planning.uncertainty.api_break_even import ApiBreakEven, api_break_even
from penstock.planning.uncertainty.confidence_levels import confidence_levels
from penstock.planning.uncertainty.other_engines import candidates_of, find_engine_saving
from penstock.planning.uncertainty.plan_headroom import plan_headroom
from penstock.planning.uncertainty.quantify_uncertainty import (
    CompetingFleets,
    FirstAnswer,
    Uncertainty,
    find_competing,
    first_answer,
    quantify_uncertainty,
)
from penstock.planning.uncertainty.replanned_flips import Replanning
from penstock.planning.uncertainty.scenarios import (
    SPARES,
    Replanned,
    RulePrice,
    demand_scenarios,
    find_blocking_rules,
    missing_vendors,
    next_saving,
    owned_worth,
    rule_prices,
)
from penstock.planning.uncertainty.solve_again import Sized, as_solved
from penstock.planning.uncertainty.staffing import people_break_even
from penstock.planning.uncertainty.step_price import price_step
from penstock.planning.uncertainty.verdict import judge
from penstock.planning.verification.fleet_simulator import FleetSimulator
from penstock.planning.verification.plain_router import price_plain_router
from penstock.planning.verification.prove_fleets import ProvenFleets, add_cheaper_fleets
from penstock.simulation.run_options import StageProgress

_SMALL_MODEL_BYTES = 40e9
"""Weights up to this size fit, with room for KV cache, on one device of 48 GB."""
FoundAnswer = Callable[[FirstAnswer], None]
"""Function that receives the simulated fleets as soon as the cheapest is known, and again if a cheaper one is found."""
_LAST_STEPS: Final = ("cost of rules, and fleets for other demand", "engines that cannot be launched, and round robin")
_ANSWERED_AGAIN = 2
"""Maximum number of times the uncertainty analysis starts again because it found a cheaper fleet."""


def make_plan(
    plan: Plan, sources: Sources, progress: StageProgress = lambda *_: None, found: FoundAnswer | None = None
) -> PlanResult:
    """Compute the result of a plan; `found` receives the cheapest fleet before the search for what would change it."""
    resolved, trace_notes = resolve_inputs(plan, sources)
    refuse_impossible(resolved, sources.engines_of_vendor)
    choice = search_candidates(resolved, sources, progress)
    confident = plan_headroom(resolved, choice.candidates)
    resolved, candidates = confident.resolved, confident.candidates
    problem = build_problem(resolved, candidates)
    unserved = unserved_lengths(resolved, candidates, sources.model_of)
    question = PlanQuestion(resolved=resolved, candidates=candidates, problem=problem, needs=confident.needs)
    answer = None if unserved else _answer(question, sources, progress, found)
    if answer is not None:
        progress(_LAST_STEPS[1], 1, len(_LAST_STEPS))
        answer = _with_other_software(answer, question, choice.not_launched, sources)
    return PlanResult(
        resolved=resolved,
        terms=question.terms,
        problem=problem,
        candidates=candidates,
        considered=choice.considered,
        left_out=(*trace_notes, *resolved.left_out, *choice.left_out, *confident.left_out),
        assumptions=assumptions(resolved),
        capacity_note=sources.capacity_note,
        claims=tuple(check_claim(claim) for claim in plan.claims),
        answer=answer or NoFleet(reasons=unserved or find_blocking_rules(problem)),
    )


def resolve_inputs(plan: Plan, sources: Sources) -> tuple[Resolved, tuple[LeftOut, ...]]:
    """Fill in the inputs that the plan does not state; also return notes on trace features that the planner ignores."""
    traced = [with_trace(entry, sources.read_trace, sources.model_of) for entry in plan.workloads]
    # Small models run well on devices that cost a quarter of an H100 and are hardly measured; large models do not.
    small = all(sources.model_of(entry.model).weight_bytes <= _SMALL_MODEL_BYTES for entry in plan.workloads)
    resolved = resolve(
        replace(plan, workloads=tuple(_with_api(workload, sources) for workload, _ in traced)),
        sources.accelerators,
        sources.prices_of,
        named=bool(plan.accelerators),
        draw_of=sources.draw_of,
        served=lambda part: sources.served(part) or (small and is_rented_singly(sources.prices_of(part))),
        levels=sources.seller_levels,
    )
    notes = tuple(note for _, notes in traced for note in notes)
    return replace(resolved, plan=with_steps(resolved.plan)), notes


def _with_api(workload: WorkloadPlan, sources: Sources) -> WorkloadPlan:
    """Return the workload with the recorded API price of its model, unless the plan states one."""
    return workload if workload.api is not None else replace(workload, api=sources.api_of(workload.model))


def _answer(
    question: PlanQuestion, sources: Sources, progress: StageProgress, found: FoundAnswer | None
) -> Answer | None:
    """Return the plan's answer; None if no fleet satisfies every rule, even with replica rates times `MAY_CARRY`.

    The uncertainty analysis solves for fleets with changed inputs. If a fleet solved for changed inputs is also cheaper
    at the plan's own inputs, this fleet joins the proven fleets, and the analysis starts again.
    """
    simulator = simulator_of(question, sources)
    proven, replanned = prove(question, simulator, progress), planner_of(sources)
    if proven is None:
        return None
    analysed = _analyse(proven, question, simulator, progress, found, replanned)
    progress(_LAST_STEPS[0], 0, len(_LAST_STEPS))
    answer = _describe(analysed, question, simulator, replanned)
    return replace(answer, single_devices=answer_by_the_device(question, simulator, progress))


@dataclass(frozen=True, kw_only=True)
class _Analysed:
    """The proven fleets, the fleets that compete if inputs change, and the uncertainty of the answer."""

    proven: ProvenFleets
    simulated: Family
    competing: CompetingFleets
    uncertainty: Uncertainty


def _analyse(
    proven: ProvenFleets,
    question: PlanQuestion,
    simulator: FleetSimulator | None,
    progress: StageProgress,
    found: FoundAnswer | None,
    replanned: Replanned,
) -> _Analysed:
    """Quantify the uncertainty of the proven fleets; start again if this finds a cheaper fleet, at most twice.

    The fleets that win in a few draws are known before the flips are searched, so they are tried first.
    """
    problem, sized = question.problem, question.sized_by(None if simulator is None else simulator.size)
    verify = verify_of(question, simulator)
    quickly = question.sized_by(None if simulator is None else simulator.size_without_margins)

    again = Replanning(resolved=question.resolved, of=replanned)

    def with_cheaper(fleets: Sequence[Mix], restarts: int) -> ProvenFleets | None:
        return None if verify is None or not restarts else add_cheaper_fleets(proven, problem, fleets, verify)

    for restarts in range(_ANSWERED_AGAIN, -1, -1):
        simulated = proven.as_simulated(problem)
        if found is not None:
            verified = proven.proof.verified
            keeps_slo = not verified or verified[0].met
            found(first_answer(simulated, question.resolved, question.candidates, keeps_slo=keeps_slo))
        competing = find_competing(simulated, question.resolved, question.candidates, progress)
        drawn = competing.family.of_other_worlds
        cheaper = with_cheaper(drawn, restarts)
        if cheaper is None:
            uncertainty = quantify_uncertainty(competing, sized, quickly, progress, again)
            cheaper = with_cheaper(uncertainty.family.of_other_worlds[len(drawn) :], restarts)
        if cheaper is None:
            break
        proven = cheaper
    return _Analysed(proven=proven, simulated=simulated, competing=competing, uncertainty=uncertainty)


def _with_other_software(
    answer: Answer, question: PlanQuestion, not_launched: tuple[NotLaunched, ...], sources: Sources
) -> Answer:
    """Add what engines that cannot be launched would save, launches without rules, and the winner's plain router."""
    others = candidates_of(not_launched, sources.capacity_of)
    simulator = simulator_of(replace(question, candidates=(*question.candidates, *others)), sources)
    sized = as_solved if simulator is None else simulator.size_without_margins
    family = replace(answer.family, winner=answer.winner.mix)
    saving = find_engine_saving(not_launched, others, question.candidates, question.resolved, family, sized)
    round_robin = price_plain_router(
        answer.winner.mix,
        question.problem,
        question.candidates,
        question.resolved.plan.workloads,
        sources.round_robin_of,
    )
    unchecked = _unchecked_launches(answer, question, sources)
    return replace(answer, engine_saving=saving, round_robin=round_robin, unchecked_launches=unchecked)


def _unchecked_launches(answer: Answer, question: PlanQuestion, sources: Sources) -> tuple[UncheckedLaunch, ...]:
    models = {workload.name: workload.model for workload in question.resolved.plan.workloads}
    used = {name for pool in answer.winner.mix.pools for name in pool.replicas}
    found = {
        UncheckedLaunch(engine=entry.measured_engine, accelerator=entry.accelerator.id)
        for entry in question.candidates
        if entry.id in used and sources.is_undetermined(entry.option, models[entry.workload])
    }
    return tuple(sorted(found))


def _describe(
    analysed: _Analysed, question: PlanQuestion, simulator: FleetSimulator | None, replanned: Replanned
) -> Answer:
    """Bill the analysed fleets, and price rules, scenarios and owned nodes."""
    problem, terms = question.problem, question.terms
    simulated, competing, uncertainty = analysed.simulated, analysed.competing, analysed.uncertainty
    proof = analysed.proven.proof
    family = competing.family
    sized = question.sized_by(None if simulator is None else simulator.size_without_margins)

    def billed(mix: Mix) -> Bill:
        return Bill(mix=mix, cost=bill(mix, terms, competing.candidates), cash=cash_of(mix, terms))

    winner = billed(family.winner)
    return Answer(
        family=uncertainty.family,
        winner=winner,
        runners_up=tuple(billed(mix) for mix in family.runners_up),
        by_label={label: billed(mix) for label, mix in simulated.by_label.items()},
        verdict=judge(
            simulated,
            uncertainty.confidence,
            competing.candidates,
            uncertainty.flips,
            _api_usd(question, winner),
        ),
        people=people_break_even(simulated.by_label, terms) if simulated.by_vendor else None,
        confidence=uncertainty.confidence,
        swings=uncertainty.swings,
        flips=uncertainty.flips,
        measurement=uncertainty.measurement,
        rules=_rule_prices(question, family, sized),
        scenarios=demand_scenarios(family, question.resolved, replanned),
        owned=owned_worth(problem, family, sized),
        verified=proof.verified,
        regret_usd=proof.regret_usd,
        missing=missing_vendors(family.with_simulated_capacities(problem), simulated.by_label),
        saving=next_saving(problem, family.winner),
        api_break_even=_api_break_even(question, family, winner),
        levels=()
        if question.needs is None
        else confidence_levels(
            family.winner,
            problem,
            question.needs,
            question.confidence,
            compared=uncertainty.family.fleets,
            others=uncertainty.family.of_other_worlds,
        ),
    )


def _api_usd(question: PlanQuestion, winner: Bill) -> float | None:
    """Return what the tokens of all workloads cost on APIs; None if the price of one of them is not known."""
    pairs = zip(question.resolved.plan.workloads, winner.cost.workloads, strict=True)
    usd = [
        None if entry.api is None else entry.api.tokens_usd(cost.input_tokens, cost.output_tokens)
        for entry, cost in pairs
    ]
    known = [amount for amount in usd if amount is not None]
    return sum(known) if len(known) == len(usd) else None


def _api_break_even(question: PlanQuestion, family: Family, winner: Bill) -> ApiBreakEven | None:
    """Find the load up to which the stated API costs less; None unless the plan has one workload with an API price.

    If only one of several workloads grows, its share of the fleet is not defined.
    """
    workloads = question.resolved.plan.workloads
    api = workloads[0].api if len(workloads) == 1 else None
    if api is None:
        return None
    (cost,) = winner.cost.workloads
    return api_break_even(question.problem, family.fleets, api.tokens_usd(cost.input_tokens, cost.output_tokens))


def _rule_prices(question: PlanQuestion, family: Family, sized: Sized) -> tuple[RulePrice, ...]:
    """Return the price of every rule and of the step, first the most expensive."""
    step = price_step(question.resolved, question.candidates, family)
    paths = {entry.path for entry in plan_defaults(question.resolved)}
    usual = {SPARES} if ("constraints", "spare_nodes") in paths else set[str]()
    prices = [replace(entry, usual=entry.rule in usual) for entry in rule_prices(question.problem, family, sized)]
    prices += [] if step is None else [replace(step, usual=("step_months",) in paths)]
    return tuple(sorted(prices, key=lambda entry: -entry.usd))
