"""Takes a workload's lengths and rate from a trace, and lists the features of the trace that the planner ignores."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from penstock.errors import UsageError
from penstock.model import ModelSpec
from penstock.planning.spec.plan_types import WorkloadPlan
from penstock.planning.spec.resolve_plan import LeftOut
from penstock.planning.spec.trace_lengths import TraceLengths

_WORTH_SAYING: Final = 0.02
"""Share of repeated prompt tokens from which on the report mentions shared prefixes."""
_LONGER: Final = 1.15
"""Minimum reported ratio of the largest mean length in any ten minutes to the mean length of the whole trace."""

ReadTrace = Callable[[str], TraceLengths]


def with_trace(
    workload: WorkloadPlan, read_trace: ReadTrace | None, model_of: Callable[[str], ModelSpec]
) -> tuple[WorkloadPlan, tuple[LeftOut, ...]]:
    """Take lengths and rate from the trace; also return notes on ignored features, such as shared prefixes."""
    if workload.trace is None:
        return workload, ()
    if read_trace is None:
        raise UsageError(f"{workload.name}: traces cannot be read here; give `lengths:` instead of `trace:`")
    seen, limit = read_trace(workload.trace), model_of(workload.model).max_context_tokens
    rate, mean = workload.requests_per_s, workload.mean_load
    if rate is None and workload.users is None:
        rate = seen.requests_per_s
        source = f"{workload.trace}: mean over the busiest minute"
        mean = mean if mean.given else replace(mean.at(seen.mean_load_fraction), source=source)
    shares = (seen if limit is None else seen.within(limit)).shares
    if not shares:
        raise UsageError(
            f"{workload.name}: every prompt of {workload.trace} exceeds the {limit:,}-token context of "
            f"{workload.model}; name a model with a longer context"
        )
    return replace(workload, shares=shares, requests_per_s=rate, mean_load=mean), tuple(
        _unplanned_aspects(workload, seen, limit)
    )


def _unplanned_aspects(workload: WorkloadPlan, seen: TraceLengths, limit: int | None) -> Iterator[LeftOut]:
    """Yield a note on each feature of a trace that the planner ignores."""
    beyond = 0.0 if limit is None else seen.longer_than(limit)
    if limit is not None and beyond:
        yield LeftOut(
            what=f"{workload.name}: requests beyond the context of {workload.model}",
            why=f"{beyond:.2%} of the requests exceed its {limit:,} tokens; their answers are cut there, and longer "
            "prompts are left out because no engine accepts them",
        )
    if seen.dropped:
        counted = ", ".join(f"{count:,} ({reason})" for reason, count in seen.dropped.items())
        yield LeftOut(what=f"{workload.name}: dropped rows of its trace", why=counted)
    prompts, answers = seen.longer_at_times
    if max(prompts, answers) >= _LONGER:
        yield LeftOut(
            what=f"{workload.name}: periods with longer requests",
            why=f"within ten minutes of the trace, prompts are up to {prompts:.2f} times and answers up to "
            f"{answers:.2f} times as long as on average; the plan assumes the same lengths at all times: replay the "
            "fleet with `simulate --fleet --trace`, or give the trace of the heaviest hour",
        )
    share = seen.reusable_fraction
    if share is not None and share >= _WORTH_SAYING:
        yield LeftOut(
            what=f"{workload.name}: its prefix cache",
            why=f"{share:.0%} of the trace's prompt tokens repeat an earlier request; the plan computes them again, so "
            "the fleet is an upper bound; `simulate --trace` shows what a cache saves",
        )
