"""Searches the candidates of a whole plan: every workload on every accelerator."""

from collections.abc import Iterator, Sequence

from penstock.catalog.accelerator import Accelerator
from penstock.model import ModelSpec
from penstock.planning.candidates.candidate_search import (
    Choice,
    EnginesOf,
    find_candidates,
    with_curves,
)
from penstock.planning.candidates.deployment_options import WorkloadOnAccelerator, engines_to_consider, options_of
from penstock.planning.candidates.replica_capacity import CapacityOf, Option
from penstock.planning.plan_sources import Sources
from penstock.planning.spec.plan_types import AcceleratorPlan, WorkloadPlan
from penstock.planning.spec.resolve_plan import Resolved
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

    choices = [
        find_candidates(
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
        for workload in plan.workloads
    ]
    if sources.curve_of is not None:
        choices = _with_curves(choices, plan.workloads, sources.curve_of, progress)
    return Choice(
        candidates=tuple(entry for choice in choices for entry in choice.candidates),
        considered=sum(choice.considered for choice in choices),
        left_out=tuple(entry for choice in choices for entry in choice.left_out),
        not_launched=tuple(entry for choice in choices for entry in choice.not_launched),
    )


def workload_options(workload: WorkloadPlan, resolved: Resolved, sources: Sources) -> tuple[Option, ...]:
    """Return every option of a workload that holds its shortest request, with every engine."""
    model, found = sources.model_of(workload.model), list[Option]()
    for planned in resolved.plan.accelerators:
        accelerator = resolved.accelerators[planned.id]
        measured = _engines_of(workload, resolved, sources)(accelerator.id, None if workload.engines else model)
        engines = engines_to_consider(workload.engines, measured=measured)
        placing = WorkloadOnAccelerator(
            workload=workload, accelerator=accelerator, planned=planned, drafts_of=sources.drafts_of
        )
        found += [] if engines is None else options_of(model, placing, engines)[0]
    return tuple(found)


def _with_curves(
    choices: Sequence[Choice], workloads: Sequence[WorkloadPlan], curve_of: CapacityOf, progress: StageProgress
) -> list[Choice]:
    """Return the choices with the capacity of each candidate over the prediction error."""
    total, done = sum(len(choice.candidates) for choice in choices), 0

    def step(name: str) -> None:
        nonlocal done
        done += 1
        progress(f"capacity with slower and faster steps: {name}", done, total)

    return [with_curves(choice, workload, curve_of, step) for choice, workload in zip(choices, workloads, strict=True)]


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
