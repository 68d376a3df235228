"""Searches the candidates of a whole plan: every workload on every accelerator."""

from collections.abc import Sequence

from penstock.model import ModelSpec
from penstock.planning.candidates.candidate_search import Candidate, Choice, EnginesOf, find_candidates
from penstock.planning.plan_sources import Sources
from penstock.planning.spec.plan_types import WorkloadPlan
from penstock.planning.spec.resolve_plan import LeftOut, Resolved
from penstock.simulation.run_options import StageProgress


def search_candidates(resolved: Resolved, sources: Sources, progress: StageProgress) -> Choice:
    """Return the candidates of all workloads together."""
    plan = resolved.plan
    accelerators = [(resolved.accelerators[entry.id], entry) for entry in plan.accelerators]
    total, done = len(accelerators) * len(plan.workloads), 0

    def step(name: str) -> None:
        nonlocal done
        progress(f"capacity of {name}", done, total)
        done += 1

    candidates: list[Candidate] = []
    left_out: list[LeftOut] = []
    considered = 0
    for workload in plan.workloads:
        choice = find_candidates(
            workload,
            sources.model_of(workload.model),
            accelerators,
            sources.capacity_of,
            screen=sources.screen,
            engines_of=_engines_of(workload, resolved, sources),
            drafts_of=sources.drafts_of,
            units_of=sources.units_of if workload.disaggregated else lambda *_: (),
            step=step,
        )
        candidates += choice.candidates
        left_out += choice.left_out
        considered += choice.considered
    return Choice(candidates=tuple(candidates), considered=considered, left_out=tuple(left_out))


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
