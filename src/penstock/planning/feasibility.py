"""Refuses plans that no number of nodes can satisfy, before a fleet is searched."""

from collections.abc import Callable, Sequence

from penstock.errors import UsageError
from penstock.planning.candidates.candidate_search import Candidate
from penstock.planning.optimizer.build_problem import denied
from penstock.planning.spec.resolve_plan import Resolved


def refuse_impossible(resolved: Resolved, engines_of_vendor: Callable[[str], Sequence[str]]) -> None:
    """Refuse engines no accelerator runs, and rules that the plan's accelerators cannot satisfy."""
    _refuse_unknown_engines(resolved, engines_of_vendor)
    _refuse_impossible_shares(resolved)


def _refuse_unknown_engines(resolved: Resolved, engines_of_vendor: Callable[[str], Sequence[str]]) -> None:
    vendors = {accelerator.vendor for accelerator in resolved.accelerators.values()}
    known = sorted({engine for vendor in vendors for engine in engines_of_vendor(vendor)})
    for workload in resolved.plan.workloads:
        for engine in workload.engines:
            if known and engine not in known:
                there = f"write one of {', '.join(known)}"
                raise UsageError(f"{workload.name}: no accelerator of the plan runs engine '{engine}'; {there}")


def _refuse_impossible_shares(resolved: Resolved) -> None:
    """Refuse rules on vendors and sites that the plan's accelerators cannot satisfy in any number."""
    rules, plan = resolved.plan.constraints, resolved.plan
    if all(denied(site, resolved.accelerators[part.id]) for site in plan.sites for part in plan.accelerators):
        raise UsageError("sites: `deny` leaves no part of the plan anywhere to stand; allow one at a site")
    vendors = sorted({resolved.accelerators[part.id].vendor for part in resolved.plan.accelerators})
    there = f"the plan has parts of {', '.join(vendors)}"
    if vendors and rules.min_vendors > len(vendors):
        raise UsageError(f"constraints: min_vendors is {rules.min_vendors} and {there}; name parts of another vendor")
    if rules.max_vendor_share is not None and vendors and rules.max_vendor_share * len(vendors) < 1:
        least = f"{1 / len(vendors):.0%}" if len(vendors) > 1 else "100%, or name parts of another vendor"
        said = f"max_vendor_share is {rules.max_vendor_share:.0%} and {there}"
        raise UsageError(f"constraints: {said}, so some requests nobody may serve; write at least {least}")


def unserved_lengths(resolved: Resolved, candidates: Sequence[Candidate]) -> tuple[str, ...]:
    """Return a sentence with the likely reason for every length that nothing can serve."""
    reasons = []
    splits = ", allow other splits (`tp`)" if any(part.tp for part in resolved.plan.accelerators) else ""
    for workload in resolved.plan.workloads:
        for number, share in enumerate(workload.shares):
            if not any(entry.rates[number] for entry in candidates if entry.workload == workload.name):
                reasons.append(
                    f"{workload.name}: no accelerator of the plan serves {share.bucket} tokens within {workload.slo}; "
                    f"loosen the SLO, allow another weight format{splits} or add accelerators"
                )
    serving = {entry.deployment.accelerator.vendor for entry in candidates}
    least = resolved.plan.constraints.min_vendors
    if not reasons and len(serving) < least:
        idle = ", ".join(sorted({entry.vendor for entry in resolved.accelerators.values()} - serving))
        said = f"min_vendors is {least} and no part of {idle} serves a workload in any way the plan allows"
        reasons.append(f"{said}; loosen its `tp` or the SLO, or ask for fewer vendors")
    return tuple(reasons)
