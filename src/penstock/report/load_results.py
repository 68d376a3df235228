"""Renders runs of load tools in one set of definitions, with one row per run."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Annotated, Final, Literal

from rich.console import Group, RenderableType
from rich.text import Text
from typing_extensions import TypedDict

from penstock.load_tools.load_run import LatencyStatistics, LoadRun, TokenLength
from penstock.report.drawing.comparison_table import Column, Figure, sheet
from penstock.report.drawing.json_document import at
from penstock.units import format_s

_COLUMNS: Final = (
    Column("run", figures=False),
    Column("tool", figures=False),
    *(Column(head) for head in ("load", "in/out\ntokens", "TTFT\nmean", "TPOT\nmean", "output\ntok/s", "usable")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRun:
    """Run of a load tool, the reasons that forbid its use, and what its file does not state."""

    run: LoadRun
    refusals: tuple[str, ...]
    unstated: tuple[str, ...]

    @property
    def usable(self) -> bool:
        """Return whether the run can correct a prediction."""
        return not self.refusals


class JudgedRunDocument(TypedDict):
    """One run of a load tool. Times are in seconds."""

    file: Annotated[str, at("run.where")]
    tool: Annotated[str, at("run.tool")]
    tool_version: Annotated[str | None, at("run.tool_version")]
    model: Annotated[str | None, at("run.model")]
    engine: Annotated[str | None, at("run.engine")]
    engine_version: Annotated[str | None, at("run.engine_version")]
    users: Annotated[int | None, at("run.users")]
    asked_rate_per_s: Annotated[float | None, at("run.asked_rate_per_s")]
    arrivals_per_s: Annotated[float | None, at("run.arrivals_per_s")]
    completed: Annotated[int, at("run.completed")]
    failed: Annotated[int, at("run.failed")]
    duration_s: Annotated[float, at("run.duration_s")]
    input_length: Annotated[TokenLength, at("run.input_length")]
    output_length: Annotated[TokenLength, at("run.output_length")]
    ttft: Annotated[LatencyStatistics, at("run.ttft")]
    tpot: Annotated[LatencyStatistics, at("run.tpot")]
    request_latency: Annotated[LatencyStatistics | None, at("run.request_latency")]
    output_tokens_per_s: Annotated[float, at("run.output_tokens_per_s")]
    cached_prompt_fraction: Annotated[float | None, at("run.cached_prompt_fraction")]
    listed_requests: Annotated[int, at(lambda judged: len(judged.run.records))]
    usable: bool
    refusals: list[str]
    unstated: list[str]
    cautions: Annotated[list[str], at("run.cautions")]


class ResultsDocument(TypedDict):
    """Runs of load tools in one set of definitions."""

    schema: Literal["penstock.results/1"]
    runs: list[JudgedRunDocument]
    skipped: list[str]


def render_results(runs: Sequence[JudgedRun], skipped: Sequence[str], columns: int) -> RenderableType:
    """Draw one row per run, then why runs are refused and what biases them."""
    pieces: list[RenderableType] = [sheet(_COLUMNS, [_row(judged) for judged in runs], columns)]
    for judged in runs:
        pieces += [Text(f"Refused: {_name(judged.run)}. {reason}", style="red") for reason in judged.refusals]
    pieces += [Text(f"Not read: {reason}", style="yellow") for reason in skipped]
    cautions = dict.fromkeys((judged.run.tool, caution) for judged in runs for caution in judged.run.cautions)
    pieces += [Text(f"{tool}: {caution}", style="dim") for tool, caution in cautions]
    missing = dict.fromkeys(fact for judged in runs for fact in judged.unstated)
    if missing:
        pieces.append(Text(f"Not in every file: {', '.join(missing)}. A correction asks for these."))
    return Group(*pieces)


def _row(judged: JudgedRun) -> tuple[Figure, ...]:
    run = judged.run
    return (
        _name(run),
        run.tool if run.tool_version is None else f"{run.tool} {run.tool_version}",
        f"{run.users} users" if run.users is not None else f"{run.applied_rate_per_s:.2f}/s",
        f"{run.input_length.mean:,.0f}/{run.output_length.mean:,.0f}",
        format_s(run.ttft.mean_s),
        format_s(run.tpot.mean_s),
        f"{run.output_tokens_per_s:,.0f}",
        Text("yes", style="green") if judged.usable else Text("no", style="red"),
    )


def _name(run: LoadRun) -> str:
    path = PurePath(run.where)
    return "/".join(path.parts[-2:]) if len(path.parts) > 1 else run.where
