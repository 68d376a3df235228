"""Plans a fleet: `penstock.plan`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import cache, partial
from os import PathLike
from pathlib import Path
from typing import Final, TypeAlias

from rich.console import RenderableType

from penstock.api.answer import ApiAnswer, Row
from penstock.api.arguments.own_corrections import efficiencies_with
from penstock.api.arguments.workload_argument import trace_choice
from penstock.api.compile_notice import compile_first
from penstock.api.options.calibration_choice import AskedCalibration
from penstock.api.progress import LOG, ProgressListener
from penstock.api.trial_files import estimate_files, program_files, trial_files
from penstock.catalog import load_accelerator, load_accelerators, load_measurements, load_prices, load_seller_levels
from penstock.checkpoint import open_checkpoint
from penstock.fleet.pools import Fleet
from penstock.performance.shipped.shipped_disaggregated import shipped_phase_factors
from penstock.performance.shipped.shipped_drafts import own_drafts
from penstock.performance.shipped.shipped_energy import power_under_load
from penstock.performance.shipped.shipped_runs import model_of, shipped_efficiencies
from penstock.planning.candidates.candidate_search import Screen
from penstock.planning.candidates.disaggregated_screen import UnitScreen
from penstock.planning.candidates.disaggregated_units import find_units
from penstock.planning.candidates.kept_estimates import KeptEstimates
from penstock.planning.candidates.launch_obstacles import LaunchCheck
from penstock.planning.candidates.queueless_screen import QueuelessScreen
from penstock.planning.candidates.replica_capacity import Option
from penstock.planning.candidates.replica_limit import replica_limit
from penstock.planning.make_plan import make_plan
from penstock.planning.optimizer.solved_programs import keep_solutions
from penstock.planning.plan_result import Bill, NoFleet, PlanResult
from penstock.planning.plan_sources import Sources
from penstock.planning.planned_fleet import period_starts
from penstock.planning.pool_launches import PoolLaunch, launched_fleet, pool_launches
from penstock.planning.shared_placement.shared_plan import SharedSources
from penstock.planning.shared_placement.shared_plan import plan_shared as find_shared_devices
from penstock.planning.sharing_saving import sharing_saving
from penstock.planning.spec.catalog_prices import api_price
from penstock.planning.spec.plan_file import parse_plan
from penstock.planning.spec.plan_types import Plan
from penstock.planning.spec.trace_lengths import TraceLengths, trace_lengths
from penstock.planning.verification.pool_simulator import Simulator
from penstock.planning.verification.simulated_capacity import (
    LoadJudge,
    capacity_with_curve,
    shares_carried,
    simulated_capacity,
    verify_by,
)
from penstock.preflight import Subject, load_knowledge
from penstock.preflight.facts.subject import subject_of
from penstock.reading.text import read_text
from penstock.report.drawing.json_document import build
from penstock.report.plan.document import PlanDocument
from penstock.report.plan.first_answer import first_answer_text
from penstock.report.plan.sentences import headline
from penstock.report.plan.terminal import render_plan
from penstock.simulation.placement import place
from penstock.workload import Trace

AskedPlan: TypeAlias = str | PathLike[str] | Plan
"""A plan file or a loaded plan. Trace paths of a loaded plan are relative to the working directory."""
_MAX_BYTES: Final = 1_000_000


@dataclass(frozen=True, kw_only=True, repr=False)
class PlanAnswer(ApiAnswer):
    """The cheapest fleet that satisfies every rule of the plan, the runners-up, and the confidence in the choice."""

    result: PlanResult
    sustained: LoadJudge | None = None
    """Function that maps a number of equal replicas to the maximum request rate that they sustain in simulation."""

    @property
    def good(self) -> bool:
        """Return whether a feasible fleet exists."""
        return not isinstance(self.result.answer, NoFleet)

    def document(self) -> Mapping[str, object]:
        """Return the document that `plan --json` prints."""
        return build(PlanDocument, self.result)

    def rows(self) -> list[Row]:
        """Return one row per fleet, accelerator and period.

        The rows of the cheapest fleet come first. The list is empty if no fleet is feasible.
        """
        answer = self.result.answer
        if isinstance(answer, NoFleet):
            return []
        fleets = enumerate((answer.winner, *answer.runners_up), 1)
        return [row for rank, entry in fleets for row in _rows(rank, entry)]

    def launches(self) -> tuple[PoolLaunch, ...]:
        """Return a proposed launch command for every pool of the cheapest fleet."""
        answer = self.result.answer
        if isinstance(answer, NoFleet):
            return ()
        return pool_launches(self.result, answer, _subject, load_knowledge())

    def fleets(self) -> tuple[tuple[date, Fleet], ...]:
        """Return the cheapest fleet in each period, with the first day of the period. The first is today's fleet."""
        answer = self.result.answer
        if isinstance(answer, NoFleet):
            return ()
        subjects, knowledge = cache(_subject), load_knowledge()
        return tuple(
            (start, launched_fleet(self.result, answer, period, subjects, knowledge))
            for period, start in enumerate(period_starts(self.result))
        )

    def render(self, columns: int) -> RenderableType:
        """Return what `plan` prints."""
        return render_plan(self.result, columns)

    def _summary(self) -> tuple[str, Sequence[str]]:
        answer = self.result.answer
        said = answer.reasons if isinstance(answer, NoFleet) else (headline(answer),)
        return self.result.plan.name, [text[:120] for text in said]


def plan(file: AskedPlan, *, calibration: AskedCalibration | None = None, watch: ProgressListener = LOG) -> PlanAnswer:
    """Plan a fleet, as `penstock plan` does: `plan("plan.yaml")`. `penstock plan --init` prints an example file.

    `calibration` names files of `penstock calibrate`, which correct the setups that the user has measured.
    """
    asked = file if isinstance(file, Plan) else read_plan(Path(file))
    folder = Path() if isinstance(file, Plan) else Path(file).parent
    compile_first(watch)
    sources = sources_of(asked, folder, watch, calibration)
    with keep_solutions(program_files()):
        result = make_plan(asked, sources, watch.progress, lambda first: watch.message(first_answer_text(first)))
    shared = sharing_saving(result, lambda narrowed: find_shared_devices(narrowed, shared_sources(narrowed)))
    result = replace(result, sharing=shared)
    return PlanAnswer(result=result, sustained=sources.sustained_of)


def read_plan(file: Path) -> Plan:
    """Read a plan file, and replace the names of owned accelerators with catalog ids."""
    text = read_text(file, "`penstock plan --init > plan.yaml` writes an example", most_bytes=_MAX_BYTES)
    asked = parse_plan(text, file.name, today=datetime.now(tz=UTC).date())
    # A plan that lists no accelerators has no other way to identify owned hardware.
    return replace(asked, owned=tuple(replace(entry, id=load_accelerator(entry.id).id) for entry in asked.owned))


def shared_sources(asked: Plan) -> SharedSources:
    """Build the sources of a plan of shared devices."""
    efficiencies = shipped_efficiencies()
    return SharedSources(
        accelerators=tuple(load_accelerator(part.id) for part in asked.accelerators) or load_accelerators(),
        model_of=model_of,
        place=lambda deployment, lengths: place(deployment, "vllm", efficiencies, typical_lengths=lengths),
        prices_of=load_prices,
        seller_levels=load_seller_levels,
    )


def sources_of(
    asked: Plan,
    folder: Path,
    watch: ProgressListener = LOG,
    calibration: AskedCalibration | None = None,
    *,
    trial_seed: int = 0,
) -> Sources:
    """Build the plan's data sources: catalog, models and simulator.

    The requests of simulated trials follow from `trial_seed`, not from the plan's seed: whether a small fleet has an
    instance more or less must not be decided by the seed of its uncertainty analysis.
    """
    columns = {workload.trace: workload.columns for workload in asked.workloads if workload.trace is not None}
    efficiencies = efficiencies_with(calibration)
    screen = UnitScreen(QueuelessScreen(efficiencies), shipped_phase_factors())
    kept, launches = trial_files(), LaunchCheck(cache(_subject), load_knowledge(), _has_run)
    simulator = Simulator(screen.loop, seed=trial_seed, units=screen, cache=kept)
    estimates = estimate_files()
    kept_estimates = None if estimates is None else KeptEstimates(screen.medians, estimates, efficiencies.corrections)
    estimate = kept_estimates or screen.medians
    in_turn = Simulator(screen.loop, seed=trial_seed, units=screen, route="round-robin", cache=kept)
    return Sources(
        accelerators=tuple(load_accelerator(part.id) for part in asked.accelerators) or load_accelerators(),
        prices_of=load_prices,
        seller_levels=load_seller_levels,
        model_of=model_of,
        capacity_of=simulated_capacity(simulator.sketched, screen),
        capacity_note="Capacity within the SLO is simulated: replicas behind one router, Poisson arrivals with the "
        "workload's mix of lengths, and the engine with the highest capacity.",
        screen=Screen(estimate, shares_carried(simulator.sketch_carries, estimate)),
        curve_of=capacity_with_curve(simulator.curve, screen),
        engines_of=efficiencies.engines,
        engines_of_vendor=efficiencies.engines_of,
        served=lambda part: bool(efficiencies.engines(part)),
        drafts_of=own_drafts,
        units_of=lambda model, placing: find_units(model, placing, screen),
        obstacle_of=launches.obstacle,
        is_undetermined=launches.is_undetermined,
        verify_of=verify_by(simulator.sustained, simulator.attained, bounded=simulator.bounded),
        sizing_of=verify_by(simulator.sustained, simulator.bounded, sizing=True),
        round_robin_of=verify_by(in_turn.sustained, in_turn.attained, bounded=in_turn.bounded, sizing=True),
        limit_of=partial(replica_limit, screen.loop),
        sustained_of=simulator.sustained,
        api_of=api_price,
        read_trace=lambda name: _lengths(trace_choice(folder / name, columns.get(name), watch)),
        draw_of=power_under_load,
    )


def _has_run(option: Option, model: str) -> bool:
    setup = (model, option.weights, option.measured_engine)
    rows = load_measurements(option.deployment.accelerator.id)
    return any((row.model, row.weights, row.engine) == setup for row in rows)


def _subject(model: str) -> Subject:
    return subject_of(open_checkpoint(model), model)


def _lengths(trace: Trace) -> TraceLengths:
    return replace(trace_lengths(trace.blocks()), dropped=trace.dropped)


def _rows(rank: int, entry: Bill) -> list[Row]:
    return [
        {
            "rank": rank,
            "fleet": entry.mix.label,
            "cost_usd": entry.mix.cost_usd,
            "capex_usd": entry.cash.capex_usd,
            "opex_usd": entry.cash.opex_usd,
            "period": pool.period,
            "accelerator": pool.offer.accelerator,
            "vendor": pool.offer.vendor,
            "site": pool.offer.site,
            "nodes": pool.nodes,
            "devices": pool.nodes * pool.offer.devices,
            "owned_nodes": pool.owned_nodes,
            "rented_nodes": pool.rented_nodes,
            "spare_nodes": pool.spare_nodes,
            "replicas": sum(pool.replicas.values()),
        }
        for pool in entry.mix.pools
    ]
