"""Maps workloads to the cheapest accelerators: `penstock.guide`."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from math import log
from pathlib import Path
from typing import Final

from rich.console import RenderableType

from penstock.api.answer import ApiAnswer, Row
from penstock.api.arguments.choices import tokens_choice
from penstock.api.arguments.workload_argument import trace_choice
from penstock.api.capacity_files import guide_files
from penstock.api.compile_notice import compile_first
from penstock.api.options.guide_options import GuideOptions
from penstock.api.options.option_fields import takes
from penstock.api.plan import sources_of
from penstock.errors import UsageError
from penstock.fleet.pools import Fleet
from penstock.guide.grid import Grid
from penstock.guide.guide_file import (
    DEFAULT_LOADS,
    DEFAULT_OUTPUTS,
    DEFAULT_PROMPTS,
    DEFAULT_SLO,
    DEFAULT_TTFT_PER_1K_S,
    DEFAULT_WEIGHTS,
    MAX_LOAD,
    MIN_LOAD,
    GridEntry,
    GuideFile,
    GuideQuestion,
    parse_guide,
    question_of,
)
from penstock.guide.guide_result import GuideCell, GuideResult
from penstock.guide.guide_routes import guide_fleet
from penstock.guide.make_guide import make_guide
from penstock.planning.spec.accelerator_entries import AcceleratorEntry
from penstock.planning.spec.trace_lengths import TraceLengths, trace_lengths
from penstock.reading.text import read_text
from penstock.report.guide.document import GuideDocument
from penstock.report.guide.guide_sentences import conclusion
from penstock.report.guide.terminal import render_guide
from penstock.workload.slo import parse_slo

_MAX_BYTES: Final = 1_000_000
_FILES: Final = (".yaml", ".yml")
_LOADS_OF_TRACE: Final = (0.25, 1.0, 4.0, 16.0)
"""Loads of a grid from a trace, relative to the trace's busiest minute."""


@dataclass(frozen=True, kw_only=True, repr=False)
class GuideAnswer(ApiAnswer):
    """The cheapest fleet for each workload of a grid, and where the answer turns."""

    document_type = GuideDocument
    result: GuideResult
    command: str
    """The command that gives this answer."""

    @property
    def good(self) -> bool:
        """Return whether some accelerator keeps the SLO of at least one workload."""
        return bool(self.result.served)

    def rows(self) -> list[Row]:
        """Return one row per workload and load."""
        return [_row(cell) for cell in self.result.cells]

    def fleet(self, requests_per_s: float | None = None) -> Fleet:
        """Return one fleet with a route for each workload, each at the same load.

        By default it is the middle load, or with a trace the load of each prompt length at the trace's peak.
        """
        return guide_fleet(self.result, requests_per_s)

    def render(self, columns: int) -> RenderableType:
        """Return what `guide` prints."""
        routes = " --routes fleet.yaml" if self.result.served else ""
        return render_guide(self.result, f"{self.command} --html guide.html{routes}", columns)

    def _summary(self) -> tuple[str, Sequence[str]]:
        return self.result.name, [conclusion(self.result)[:150]]


@takes(GuideOptions)
def guide(options: GuideOptions) -> GuideAnswer:
    """Map workloads to accelerators, as `penstock guide` does: `guide("llama-3.1-70b", loads="1,4,16")`."""
    question = guide_question(options)
    compile_first(options.watch)
    sources = sources_of(question.template, Path(), options.watch)
    result = make_guide(question, sources, options.watch.progress, guide_files())
    return GuideAnswer(result=result, command=command_of(options))


_FLAGS: Final = ("prompts", "outputs", "loads", "slo", "on", "weights", "trace")
"""Options that a guide file states itself."""


def command_of(options: GuideOptions) -> str:
    """Return the command that asks the same question."""
    stated = [(name, getattr(options, name)) for name in _FLAGS]
    flags = [f" --{name} {shlex.quote(str(value))}" for name, value in stated if value is not None]
    return f"penstock guide {shlex.quote(str(options.what))}{''.join(flags)}"


def guide_question(options: GuideOptions) -> GuideQuestion:
    """Return the grid and the plan's template, from a guide file or from a model and flags."""
    today = datetime.now(tz=UTC).date()
    if str(options.what).endswith(_FILES):
        _refuse_flags(options)
        file = Path(options.what)
        text = read_text(file, "`penstock guide --init > guide.yaml` writes an example", most_bytes=_MAX_BYTES)
        return parse_guide(text, file.name, today=today)
    return _question_of_flags(options, today)


def _question_of_flags(options: GuideOptions, today: date) -> GuideQuestion:
    entry = GridEntry(
        models=(str(options.what),),
        prompts=_tokens(options.prompts, DEFAULT_PROMPTS),
        outputs=_tokens(options.outputs, DEFAULT_OUTPUTS),
        loads=_numbers(options.loads),
        slos=(DEFAULT_SLO,) if options.slo is None else (parse_slo(options.slo),),
        ttft_per_1k=DEFAULT_TTFT_PER_1K_S if options.slo is None else 0.0,
        weights=DEFAULT_WEIGHTS if options.weights is None else _words(options.weights),
    )
    found = None if options.trace is None else trace_lengths(trace_choice(options.trace, None, options.watch).blocks())
    if found is not None:
        entry = _axes_of_trace(options, found, entry)
    named = None if options.on is None else tuple(AcceleratorEntry(id=name) for name in _words(options.on))
    file = GuideFile(name=f"Guide for {options.what}", grid=entry, accelerators=named)
    question = question_of(file, "guide", today)
    return question if found is None else replace(question, grid=_with_trace_loads(question.grid, found))


def _with_trace_loads(grid: Grid, found: TraceLengths) -> Grid:
    """Return the grid with the load of each prompt length: that of the requests whose prompts are nearest to it."""
    loads = dict.fromkeys(grid.prompts, 0.0)
    for share in found.shares:
        nearest = min(grid.prompts, key=lambda prompt: abs(log(prompt / max(1, share.bucket.input_tokens))))
        loads[nearest] += share.fraction * found.requests_per_s
    return replace(grid, trace_loads=tuple(float(f"{load:.3g}") for load in loads.values()))


def _axes_of_trace(options: GuideOptions, found: TraceLengths, entry: GridEntry) -> GridEntry:
    """Return the axes with the prompts, the mean output and the load of a trace; stated axes are kept."""
    lengths = [share.bucket for share in found.shares]
    prompts = sorted({int(float(f"{bucket.input_tokens:.2g}")) or 1 for bucket in lengths})
    mean = sum(share.fraction * share.bucket.output_tokens for share in found.shares)
    loads = tuple(float(f"{found.requests_per_s * times:.3g}") for times in _LOADS_OF_TRACE)
    return GridEntry(
        models=entry.models,
        prompts=entry.prompts if options.prompts else tuple(prompts),
        outputs=entry.outputs if options.outputs else (max(1, round(mean)),),
        loads=entry.loads if options.loads else loads,
        slos=entry.slos,
        ttft_per_1k=entry.ttft_per_1k,
        weights=entry.weights,
    )


def _refuse_flags(options: GuideOptions) -> None:
    for name in _FLAGS:
        if getattr(options, name) is not None:
            raise UsageError(f"--{name} has no effect with a guide file; write it in the file")


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _tokens(text: str | None, usual: tuple[int, ...]) -> tuple[int, ...]:
    return usual if text is None else tuple(tokens_choice(word) for word in _words(text))


def _numbers(text: str | None) -> tuple[float, ...]:
    if text is None:
        return DEFAULT_LOADS
    try:
        loads = tuple(float(word) for word in _words(text))
    except ValueError:
        raise UsageError(f"--loads '{text}' is not a list of numbers; write requests per second: 0.5,2,8") from None
    if not loads or not all(MIN_LOAD <= load <= MAX_LOAD for load in loads):
        raise UsageError(f"--loads must be above 0 and at most {MAX_LOAD:,.0f}; write requests per second: 0.5,2,8")
    return loads


def _row(cell: GuideCell) -> Row:
    winner, rival = cell.winner, cell.rival
    return {
        "model": cell.shape.model,
        "input_tokens": cell.shape.input_tokens,
        "output_tokens": cell.shape.output_tokens,
        "slo": str(cell.shape.slo),
        "requests_per_s": cell.requests_per_s,
        "vendor": None if winner is None else winner.vendor,
        "accelerator": None if winner is None else winner.accelerator,
        "devices": None if winner is None else winner.devices,
        "cost_usd": None if winner is None else winner.cost_usd,
        "usd_per_mtok": None if winner is None else winner.usd_per_mtok,
        "margin_fraction": cell.margin_fraction,
        "probability": cell.probability,
        "binding": cell.binding,
        "rival": None if rival is None else rival.accelerator,
        "rival_cost_usd": None if rival is None else rival.cost_usd,
        "flip_rent_usd": cell.flip_rent_usd,
        "rival_flip_rent_usd": cell.rival_flip_rent_usd,
    }
