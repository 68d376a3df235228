"""Searches the candidates of a whole plan: every workload on every accelerator."""

from collections.abc import Iterator, Sequence

from penstock.catalog.accelerator import Accelerator
from penstock.model import ModelSpec
from penstock.planning.candidates.candidate_search import Candidate, Choice, EnginesOf, NotLaunched, find_candidates
from penstock.planning.plan_sources import Sources
from penstock.planning.spec.plan_types import AcceleratorPlan, WorkloadPlan
from penstock.planning.spec.resolve_plan import LeftOut, Resolved
from penstock.simulation.run_options import StageProgress


def search_candidates(resolved: Resolved, sources: Sources, progress: StageProgress) -> Choice:
    """Return the candidates of all workloads together."""
    plan = resolved.plan
    accelerators = [(resolved.accelerators[entry.id], entry) for entry in plan.accelerators]
    total, done = len(accelerators) * len(plan.workloads), 0

    def with_progress() -> Iterator[tuple[Accelerator, AcceleratorPlan]]:
        nonlocal done
        for accelerator, planned in accelerators:
            progress(f"capacity of {accelerator.id}", done, total)
            done += 1
            yield accelerator, planned

    candidates: list[Candidate] = []
    left_out: list[LeftOut] = []
    not_launched: list[NotLaunched] = []
    considered = 0
    for workload in plan.workloads:
        choice = find_candidates(
            workload,
            sources.model_of(workload.model),
            with_progress(),
            sources.capacity_of,
            screen=sources.screen,
            engines_of=_engines_of(workload, resolved, sources),
            drafts_of=sources.drafts_of,
            units_of=sources.units_of if workload.disaggregated else lambda *_: (),
            obstacle_of=sources.obstacle_of,
        )
        candidates += choice.candidates
        left_out += choice.left_out
        not_launched += choice.not_launched
        considered += choice.considered
    return Choice(
        candidates=tuple(candidates),
        considered=considered,
        left_out=tuple(left_out),
        not_launched=tuple(not_launched),
    )


def _engines_of(workload: WorkloadPlan, resolved: Resolved, sources: Sources) -> EnginesOf:
    """Return a function that lists the engines measured on an accelerator.

    If the workload names engines and the accelerator has no measurements, the function lists the engines measured on
    any accelerator of the same vendor.
    """

    def engines_of(accelerator: str, model: ModelSpec | None) -> Sequence[str]:
        measured = sources.engines_of(accelerator, model)
        of_vendor = sources.engines_of_vendor(resolved.accelerators[accelerator].vendor) if workload.engines else ()
        return measured or of_vendor

    return engines_of
