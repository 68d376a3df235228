"""How is a workload typed? A trace or lengths, how requests arrive, what they share and what they are promised."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from penstock.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.workload import Arrivals, SloClass, SystemPrompts, Trace, Workload

_SYNTHETIC_REQUESTS = 10_000


def workload_choice(
    *,
    trace: Path | None,
    columns: str | None,
    tokens: tuple[int, int],
    arrivals: str | None,
    rate_per_s: float | None,
    users: int | None,
    think: str,
    system_prompts: str | None,
    slo: str | None,
) -> "tuple[Workload, int]":
    """Return the workload, and how many requests it has or is tried with."""
    from penstock.workload import Fixed, Workload

    recording = None if trace is None else read_watched(trace, columns)
    if users is not None and (rate_per_s is not None or arrivals is not None):
        raise UsageError("the users of a closed loop decide its rate; leave out --rate and --arrivals, or --users")
    if users is None and recording is None and rate_per_s is None:
        raise UsageError("say how fast requests come: --rate 4, or --users 64 for a closed loop")
    if recording is not None and system_prompts is not None:
        raise UsageError("a trace says itself what its prompts share; leave out --system-prompts or --trace")
    workload = Workload(
        name=f"{tokens[0]:,} in, {tokens[1]:,} out" if recording is None else recording.name,
        arrivals=arrivals_choice(arrivals, recorded=recording is not None, users=users, think=think),
        lengths=Fixed(input_tokens=tokens[0], output_tokens=tokens[1]) if recording is None else recording,
        sharing=None if system_prompts is None else _system_prompts(system_prompts),
        classes=_classes(recording, slo),
        source="synthetic" if recording is None else recording.source,
    )
    return workload, _SYNTHETIC_REQUESTS if recording is None else recording.requests


def arrivals_choice(text: str | None, *, recorded: bool, users: int | None, think: str) -> "Arrivals":
    """Read how requests arrive."""
    from penstock.workload import AsRecorded, ClosedLoop, Diurnal, Gamma, Poisson, day_curve, parse_duration

    if users is not None:
        return ClosedLoop(users=users, think_s=parse_duration(think))
    name, _, number = (text or ("recorded" if recorded else "poisson")).strip().lower().partition(":")
    if name == "recorded" and recorded:
        return AsRecorded()
    if name == "poisson":
        return Poisson()
    try:
        if name == "gamma":
            return Gamma(cv=float(number))
        if name == "diurnal":
            return Diurnal(weights=day_curve(float(number)))
    except ValueError:
        raise UsageError(f"'{text}' lacks its number; write gamma:2 or diurnal:4") from None
    known = "recorded, poisson, gamma:2, diurnal:4" if recorded else "poisson, gamma:2, diurnal:4"
    raise UsageError(f"'{text}' is not a way for requests to arrive; write one of {known}")


def read_watched(path: Path, columns: str | None = None) -> "Trace":
    """Read a trace behind a progress bar, and say which column was read as what where that was not plain."""
    from penstock.cli.terminal import Watch
    from penstock.workload import parse_columns, read_trace

    named = None if columns is None else parse_columns(columns)
    with Watch() as watch:
        trace = read_trace(
            path, progress=lambda done, total: watch.tell(f"reading {path.name}", done, total or 0), columns=named
        )
    if trace.mapping:
        typer.echo(mapping_note(path.name, trace.mapping), err=True)
    return trace


def mapping_note(name: str, mapping: "Mapping[str, str]") -> str:
    """Say which column was read as what."""
    read = ", ".join(f"{column} as {meaning}" for meaning, column in mapping.items())
    return f"{name}: read {read}; to change it: columns arrival=NAME,input=NAME,output=NAME,unit=s"


def _classes(recording: "Trace | None", slo: str | None) -> "tuple[SloClass, ...]":
    from penstock.workload import SloClass, parse_slo

    promised = None if slo is None else parse_slo(slo)
    if recording is not None and recording.classes:
        return tuple(
            SloClass(name=item.name, share_fraction=item.share_fraction, slo=promised) for item in recording.classes
        )
    return (SloClass(name="all", share_fraction=1.0, slo=promised),)


def _system_prompts(text: str) -> "SystemPrompts":
    from penstock.workload import SystemPrompts

    count, _, tokens = text.partition(":")
    if not (count.isdecimal() and tokens.isdecimal() and len(text) < 20):  # noqa: PLR2004 - no such prompts
        raise UsageError(f"'{text}' is not COUNT:TOKENS; write --system-prompts 20:1000")
    return SystemPrompts(prompts=int(count), tokens=int(tokens))
