"""Parses the arguments of a workload.

These arguments give a trace or request lengths, the arrivals, the routing between replicas, and the SLO.
"""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Final

from penstock.api.options.file_types import AskedTrace
from penstock.api.options.simulate_options import WorkloadOptions
from penstock.api.progress import ProgressListener
from penstock.errors import UsageError
from penstock.performance.step.prompt_queue import DRAWN
from penstock.simulation.run_options import Policy
from penstock.workload import (
    Arrivals,
    AsRecorded,
    ClosedLoop,
    Diurnal,
    Fixed,
    Gamma,
    Poisson,
    Slo,
    SloClass,
    SystemPrompts,
    Trace,
    Uniform,
    Workload,
    day_curve,
    draw_as_benchmarks,
    parse_columns,
    parse_duration,
    parse_slo,
    read_trace,
    require_whole,
    usable_rows_sentence,
)

_SYNTHETIC_REQUESTS: Final = 10_000
_ROUNDS: Final = 5
"""Minimum number of requests per user in a closed-loop run with think time."""


def workload_choice(
    options: WorkloadOptions,
    *,
    tokens: tuple[int, int],
    rate_per_s: float | None,
    users: int | None = None,
    think: str = "0s",
    slo: Slo | None = None,
) -> tuple[Workload, int]:
    """Return the workload and its number of requests. `slo` applies only if the options have no SLO."""
    recording = None if options.trace is None else trace_choice(options.trace, options.columns, options.watch)
    arrivals, system_prompts = options.arrivals, options.system_prompts
    if users is not None and (rate_per_s is not None or arrivals is not None):
        raise UsageError("with --users the users determine the rate; give either --users, or --rate and --arrivals")
    if users is None and recording is None and rate_per_s is None:
        raise UsageError("no load is given; add `--rate 4`, or `--users 64` for a closed loop")
    if recording is not None and system_prompts is not None:
        raise UsageError("a trace already has its shared prefixes; give either --trace or --system-prompts")
    sharing = None if system_prompts is None else _system_prompts(system_prompts)
    typed = f"{tokens[0]:,} in, {tokens[1]:,} out{after_system_prompts(sharing)}"
    drawn: Fixed | Uniform = Fixed(input_tokens=tokens[0], output_tokens=tokens[1])
    if users is not None:
        typed, drawn = f"{typed}, each within 11% of these", draw_as_benchmarks(*tokens, DRAWN)
    workload = Workload(
        name=typed if recording is None else recording.name,
        arrivals=arrivals_choice(arrivals, recorded=recording is not None, users=users, think=think),
        lengths=drawn if recording is None else recording,
        sharing=sharing,
        classes=_classes(recording, slo if options.slo is None else options.slo),
        source="synthetic" if recording is None else recording.source,
    )
    count = _SYNTHETIC_REQUESTS if recording is None else recording.requests
    return workload, max(count, _ROUNDS * (users or 0)) if workload.think_s else count


def arrivals_choice(text: str | None, *, recorded: bool, users: int | None, think: str) -> Arrivals:
    """Parse the arrival process."""
    if users is not None:
        return ClosedLoop(users=users, think_s=parse_duration(think))
    if parse_duration(think) > 0:
        raise UsageError("--think applies only to a closed loop; add `--users 64`, for example")
    name, _, number = (text or ("recorded" if recorded else "poisson")).strip().lower().partition(":")
    if number and name in {"recorded", "poisson"}:
        raise UsageError(
            f"'{text}': {name} takes no number; use --rate {number} to set a rate, or gamma:{number} to set burstiness"
        )
    if name == "recorded" and recorded:
        return AsRecorded()
    if name == "poisson":
        return Poisson()
    try:
        if name == "gamma":
            return Gamma(cv=float(number))
        if name == "diurnal":
            return Diurnal(weights=day_curve(float(number)))
    except UsageError:
        raise
    except ValueError:
        raise UsageError(f"'{text}' lacks a number; use `gamma:2` or `diurnal:4`, for example") from None
    known = "recorded, poisson, gamma:2, diurnal:4" if recorded else "poisson, gamma:2, diurnal:4"
    raise UsageError(f"'{text}' is not an arrival process; use one of {known}")


def trace_choice(trace: AskedTrace, columns: str | Mapping[str, str] | None, watch: ProgressListener) -> Trace:
    """Load a trace for a run, and report how many rows are usable. Raise an error if too many rows are unusable."""
    if isinstance(trace, Trace):
        return trace
    read = inspected_trace(trace, columns, watch)
    require_whole(read)
    watch.message(f"{Path(trace).name} rows: {usable_rows_sentence(read.requests, read.dropped)}")
    return read


def inspected_trace(
    trace: str | PathLike[str], columns: str | Mapping[str, str] | None, watch: ProgressListener
) -> Trace:
    """Load a trace, even one with many unusable rows.

    If the user named no columns, report which columns were read.
    """
    path = Path(trace)
    named = parse_columns(columns) if isinstance(columns, str) else columns or None
    read = read_trace(
        path, progress=lambda done, total: watch.progress(f"reading {path.name}", done, total or 0), columns=named
    )
    if read.mapping:
        watch.message(mapping_note(path.name, read.mapping))
    return read


def mapping_note(name: str, mapping: Mapping[str, str]) -> str:
    """Return a sentence that says which column was read as which field."""
    read = ", ".join(f"{column} as {meaning}" for meaning, column in mapping.items())
    return f"{name}: read {read}; to change this, set columns to `arrival=NAME,input=NAME,output=NAME,unit=s`"


def _classes(recording: Trace | None, slo: str | Slo | None) -> tuple[SloClass, ...]:
    promised = parse_slo(slo) if isinstance(slo, str) else slo
    if recording is not None and recording.classes:
        return tuple(
            SloClass(name=item.name, share_fraction=item.share_fraction, slo=promised) for item in recording.classes
        )
    return (SloClass(name="all", share_fraction=1.0, slo=promised),)


def _system_prompts(text: str) -> SystemPrompts:
    count, _, tokens = text.partition(":")
    if not (count.isdecimal() and tokens.isdecimal() and len(text) < 20):  # no such prompts
        raise UsageError(f"'{text}' is not COUNT:TOKENS; use `--system-prompts 20:1000`, for example")
    return SystemPrompts(prompts=int(count), tokens=int(tokens))


def after_system_prompts(sharing: object) -> str:
    """Describe the shared system prompts that precede each prompt."""
    if not isinstance(sharing, SystemPrompts):
        return ""
    which = f"one of {sharing.prompts:,} system prompts" if sharing.prompts > 1 else "a system prompt"
    return f", after {which} of {sharing.tokens:,} tokens"


def route_choice(text: str) -> Policy:
    """Parse the policy that routes requests between replicas."""
    name = text.strip().lower()
    if name == "least-requests":
        return "least-requests"
    if name == "least-tokens":
        return "least-tokens"
    if name == "round-robin":
        return "round-robin"
    raise UsageError(f"'{text}' is not a routing policy; use `least-requests`, `least-tokens` or `round-robin`")
