"""Refuses plans with rules that no fleet can satisfy, before the search for a fleet begins."""

from collections.abc import Callable, Sequence

from penstock.errors import UsageError
from penstock.model import ModelSpec
from penstock.planning.candidates.candidate_search import Candidate
from penstock.planning.optimizer.build_problem import is_denied
from penstock.planning.spec.resolve_plan import Resolved


def refuse_impossible(resolved: Resolved, engines_of_vendor: Callable[[str], Sequence[str]]) -> None:
    """Refuse engines that no accelerator of the plan runs, and rules that the plan's accelerators cannot satisfy."""
    _refuse_unknown_engines(resolved, engines_of_vendor)
    _refuse_impossible_shares(resolved)


def _refuse_unknown_engines(resolved: Resolved, engines_of_vendor: Callable[[str], Sequence[str]]) -> None:
    vendors = {accelerator.vendor for accelerator in resolved.accelerators.values()}
    known = sorted({engine for vendor in vendors for engine in engines_of_vendor(vendor)})
    for workload in resolved.plan.workloads:
        for engine in workload.engines:
            if known and engine not in known:
                raise UsageError(
                    f"{workload.name}: no accelerator of the plan runs engine '{engine}'; "
                    f"use one of {', '.join(f'`{name}`' for name in known)}"
                )


def _refuse_impossible_shares(resolved: Resolved) -> None:
    """Refuse rules on vendors and sites that no number of the plan's accelerators can satisfy."""
    rules, plan = resolved.plan.constraints, resolved.plan
    if all(is_denied(site, resolved.accelerators[entry.id]) for site in plan.sites for entry in plan.accelerators):
        raise UsageError("sites: `deny` excludes every accelerator of the plan at every site; allow at least one")
    vendors = sorted({resolved.accelerators[entry.id].vendor for entry in plan.accelerators})
    available = f"the plan only has accelerators of {', '.join(vendors)}"
    more = "add accelerators of another vendor"
    if vendors and rules.min_vendors > len(vendors):
        raise UsageError(f"constraints: min_vendors is {rules.min_vendors}, but {available}; {more}")
    if rules.max_vendor_share is not None and vendors and rules.max_vendor_share * len(vendors) < 1:
        minimum = f"{1 / len(vendors):.0%}" if len(vendors) > 1 else f"100%, or {more}"
        raise UsageError(
            f"constraints: max_vendor_share is {rules.max_vendor_share:.0%}, but {available}, so part of the load "
            f"cannot be served; set max_vendor_share to at least {minimum}"
        )


def unserved_lengths(
    resolved: Resolved, candidates: Sequence[Candidate], model_of: Callable[[str], ModelSpec]
) -> tuple[str, ...]:
    """Return, for every length that no candidate can serve, a sentence that says what to change."""
    reasons = []
    splits = ", allow other splits (`tp`)" if any(entry.tp for entry in resolved.plan.accelerators) else ""
    for workload in resolved.plan.workloads:
        longest = model_of(workload.model).max_context_tokens
        for number, share in enumerate(workload.shares):
            if longest is not None and share.bucket.context_tokens > longest:
                reasons.append(
                    f"{workload.name}: requests of {share.bucket} tokens exceed the context of {workload.model}, which "
                    f"is {longest:,} tokens; shorten them or plan another model"
                )
            elif not any(entry.rates[number] for entry in candidates if entry.workload == workload.name):
                reasons.append(
                    f"{workload.name}: no accelerator of the plan serves {share.bucket} tokens within {workload.slo}; "
                    f"loosen the SLO, allow another weight format{splits} or add accelerators"
                )
    serving = {entry.deployment.accelerator.vendor for entry in candidates}
    min_vendors = resolved.plan.constraints.min_vendors
    if not reasons and len(serving) < min_vendors:
        idle = ", ".join(sorted({entry.vendor for entry in resolved.accelerators.values()} - serving))
        reasons.append(
            f"min_vendors is {min_vendors}, but no accelerator of {idle} serves a workload in a way the plan allows; "
            "allow more splits (`tp`), loosen the SLO or lower min_vendors"
        )
    return tuple(reasons)
