"""Renders a trace: tables, two sparklines, and the commands that simulate the trace."""

import shlex
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.report.drawing.plain_json import plain_fields
from penstock.report.drawing.shell_lines import shell_lines
from penstock.report.drawing.sparkline import sparkline
from penstock.units import format_digits, format_s
from penstock.workload import LogNormalFit, TraceSummary, WorkloadSummary, usable_rows_sentence
from penstock.workload.summary.describe import SharingSummary, TokenSummary

_LABEL: Final = 12
_WIDEST: Final = 132
_POISSON_CV: Final = (0.9, 1.1)
"""Range of the coefficient of variation of gaps between arrivals.

Arrivals whose coefficient of variation is within this range count as Poisson.
"""
_EXAMPLE: Final = "penstock simulate llama-3.1-8b --on mi300x:1,h100:1"


def render_trace(summary: TraceSummary, path: str, width: int, columns: str | None = None) -> RenderableType:
    """Draw the whole answer; `columns` are the stated names of the trace's columns."""
    room = min(width, _WIDEST)
    requests = summary.requests
    grid = _label_grid()
    grid.add_row("rows", _rows(summary))
    grid.add_row("arrivals", _arrivals(requests))
    if requests.duration_s > 0:
        grid.add_row("", _over_time(requests, room - _LABEL - 1))
    if summary.class_fractions:
        grid.add_row("classes", ", ".join(f"{name} {share:.1%}" for name, share in summary.class_fractions.items()))
    grid.add_row("sharing", _sharing(requests.sharing))
    return Group(
        _heading(summary),
        Text(),
        grid,
        Text(),
        _lengths(requests),
        Text(),
        _pictures(summary, room),
        Text(),
        _use(requests, path, columns, room),
    )


def _label_grid() -> Table:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=_LABEL, style="bold")
    grid.add_column()
    return grid


def trace_document(summary: TraceSummary) -> dict[str, object]:
    """Collect the JSON document of a trace, in seconds, tokens and fractions."""
    fit, requests = summary.log_normal, summary.requests
    judged = {"critical_distance": fit.critical_distance, "close": fit.close}
    return {
        "schema": "penstock.workload/1",
        **plain_fields(summary),
        "log_normal": plain_fields(fit) | judged,
        "suggested_arrivals": None if requests.gap_cv is None else suggested_arrivals(requests.gap_cv),
    }


def suggested_arrivals(gap_cv: float) -> str:
    """Return the value of `simulate --arrivals` that reproduces the variation of the trace's gaps between arrivals."""
    low, high = _POISSON_CV
    return "poisson" if low <= gap_cv <= high else f"gamma:{max(gap_cv, 0.01):.2g}"


def _heading(summary: TraceSummary) -> Text:
    requests = summary.requests
    count = f"{requests.requests:,} request" + ("s" if requests.requests > 1 else "")
    span = f" in {format_s(requests.duration_s)}" if requests.duration_s > 0 else ""
    text = Text.assemble((summary.name, "bold"), f"  {count}{span}")
    return text.append(f"\n{summary.format} layout; {summary.source}", style="dim")


def _rows(summary: TraceSummary) -> Text:
    text = Text(
        usable_rows_sentence(summary.requests.requests, summary.dropped), style="yellow" if summary.dropped else ""
    )
    if summary.contradictions:
        ids = f"{summary.contradictions:,} hash id" + ("s" if summary.contradictions > 1 else "")
        text.append(f"; {ids} at more than one position; shared prefixes end before such ids", style="yellow")
    return text


def _arrivals(requests: WorkloadSummary) -> Text:
    rate, busiest, cv = requests.rate_per_s, requests.busiest_minute_per_s, requests.gap_cv
    if rate is None or busiest is None or cv is None:
        return Text("all at once: an offline batch without a rate")
    low, high = _POISSON_CV
    words = "steadier than Poisson" if cv < low else "bursty" if cv > high else "like Poisson"
    return Text(
        f"mean {format_digits(rate)}/s, busiest minute {format_digits(busiest)}/s; "
        f"coefficient of variation of the gaps {format_digits(cv)}: {words}"
    )


def _over_time(requests: WorkloadSummary, room: int) -> Text:
    counts = requests.arrivals
    last = f" {format_s(len(counts.requests) * counts.width_s)}"
    return Text.assemble(
        ("0 ", "dim"), (sparkline(counts.requests, max(10, room - len(last) - 2)), "cyan"), (last, "dim")
    )


def _sharing(sharing: SharingSummary | None) -> Text:
    if sharing is None:
        return Text("the trace does not record shared prefixes", style="dim")
    text = Text(f"{sharing.reusable_fraction:.1%} of prompt tokens were in an earlier request (")
    text.append(f"{sharing.shared_fraction:.1%} are in shared prefixes): the upper limit of what a prefix cache saves")
    if sharing.mean_turns is not None:
        text.append(f"; {format_digits(sharing.mean_turns)} turns per conversation")
    return text


def _lengths(requests: WorkloadSummary) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("tokens", min_width=_LABEL - 1, no_wrap=True)
    for name in ("shortest", "p50", "p90", "p99", "longest", "mean", "total"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, tokens in (("prompts", requests.input_tokens), ("answers", requests.output_tokens)):
        ordered = (tokens.shortest, tokens.p50, tokens.p90, tokens.p99, tokens.longest)
        table.add_row(name, *(f"{count:,}" for count in ordered), f"{tokens.mean:,.1f}", f"{tokens.total:,}")
    return table


def _pictures(summary: TraceSummary, room: int) -> Table:
    """Draw the histograms of prompt and answer lengths over the same powers of two, and the log-normal fit."""
    requests = summary.requests
    both = (("prompts", requests.input_tokens), ("answers", requests.output_tokens))
    cells = max(len(tokens.by_length) for _, tokens in both)
    first = min(_first_cell(tokens) for _, tokens in both)
    least, most = min(tokens.shortest for _, tokens in both), max(tokens.longest for _, tokens in both)
    ends = f"{least:,} ", f" {most:,} tokens"
    drawn = max(10, room - _LABEL - 1 - sum(map(len, ends)))
    grid = _label_grid()
    for name, tokens in both:
        padded = [*tokens.by_length[first:], *[0] * (cells - len(tokens.by_length))]
        grid.add_row(
            name, Text.assemble((ends[0], "dim"), (sparkline(_spread(padded, drawn), drawn), "green"), (ends[1], "dim"))
        )
    grid.add_row("log-normal", _fit(summary.log_normal))
    return grid


def _spread(cells: list[int], width: int) -> list[int]:
    """Widen a histogram to the given width: repeat each cell the same number of times."""
    times = max(1, width // len(cells))
    return [count for count in cells for _ in range(times)]


def _first_cell(tokens: TokenSummary) -> int:
    return next(cell for cell, count in enumerate(tokens.by_length) if count)


def _fit(fit: LogNormalFit) -> Text:
    lengths = fit.lengths
    text = Text(
        f"prompts median {lengths.input_median_tokens:,.0f} sigma {lengths.input_sigma:.2f}, "
        f"answers median {lengths.output_median_tokens:,.0f} sigma {lengths.output_sigma:.2f}, "
        f"correlation {lengths.correlation:.2f}"
    )
    return text.append(f"; {fit}", style="dim")


def _use(requests: WorkloadSummary, path: str, columns: str | None, room: int) -> Text:
    trace = f"--trace {shlex.quote(path)}" + (f" --columns {shlex.quote(columns)}" if columns else "")
    text = Text.assemble(("Use it", "bold"))
    text.append("\nas recorded:", style="dim")
    text.append(_shell(f"{trace} --slo ttft=1s,tpot=50ms", room))
    if requests.rate_per_s is None or requests.gap_cv is None:
        return text
    faster = f"--rate {float(f'{2 * requests.rate_per_s:.3g}'):g}"
    text.append("\nits requests at twice the rate, with the same burstiness:", style="dim")
    text.append(_shell(f"{trace} --arrivals {suggested_arrivals(requests.gap_cv)} {faster}", room))
    text.append("\nin a plan, instead of `lengths:` (penstock plan --init > plan.yaml):", style="dim")
    named = (
        "" if not columns else f"\n  columns: {{{', '.join(part.replace('=', ': ') for part in columns.split(','))}}}"
    )
    return text.append(f"\n  trace: {path}{named}")


def _shell(options: str, room: int) -> str:
    return "".join(f"\n  {line}" for line in shell_lines(f"{_EXAMPLE} {options}", room - 2))
