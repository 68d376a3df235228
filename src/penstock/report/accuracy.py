"""How is our error published? Tables of held-out error, for the terminal and for docs/accuracy.md."""

from collections.abc import Callable, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.performance.evidence.accuracy import Contest, ErrorSummary, Held, HeldOut

Key = Callable[[HeldOut], str]

GROUPS: Mapping[str, Key] = {
    "accelerator": lambda entry: entry.measurement.accelerator,
    "accelerator and engine": lambda entry: f"{entry.measurement.accelerator} {entry.measurement.engine}",
    "weights": lambda entry: entry.measurement.weights,
    "model": lambda entry: entry.measurement.model,
}
SCENARIOS = {
    "online": "time per output token, serving",
    "static_batch": "time per output token, one batch",
    "saturated": "throughput, everything queued",
}


def summary_rows(held: Held, scenario: str, group: str | None) -> list[tuple[str, ErrorSummary]]:
    """Summaries of one scenario: the whole, or one per group."""
    if group is None:
        whole = held.summary(lambda row: row.measurement.scenario == scenario)
        return [] if whole is None else [("all", whole)]
    key = GROUPS[group]
    labels = sorted({key(row) for row in held.rows if row.measurement.scenario == scenario})
    found = []
    for label in labels:
        part = held.summary(lambda row, label=label: row.measurement.scenario == scenario and key(row) == label)  # type: ignore[misc]
        if part is not None:
            found.append((label, part))
    return found


def render_accuracy(held: Sequence[Held], winners: Mapping[str, Sequence[Contest]]) -> RenderableType:
    """Draw one table over all ways of holding out, then one per accelerator for the first."""
    pieces: list[RenderableType] = [
        _table(
            [
                (f"{each.name}, {SCENARIOS[name]}", row)
                for each in held
                for name in SCENARIOS
                for _, row in summary_rows(each, name, None)
            ]
        )
    ]
    pieces += [Text(), Text(f"held out by {held[0].name}, serving, per accelerator", style="bold")]
    pieces.append(_table(summary_rows(held[0], "online", "accelerator")))
    pieces += [Text(line) for line in winner_lines(winners)]
    return Group(*pieces)


def winner_lines(winners: Mapping[str, Sequence[Contest]]) -> list[str]:
    """Say how often the right winner was named."""
    lines = []
    for name, found in winners.items():
        if found:
            right = sum(contest.named_right for contest in found) / len(found)
            lines.append(f"right winner, {name}: {right:.1%} of {len(found):,} pairs more than 15% apart")
    return lines


def _table(rows: Sequence[tuple[str, ErrorSummary]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("held out by", no_wrap=True)
    for name in ("rows", "median", "mean", "p90", "bias", "in P10-P90"):
        table.add_column(name, justify="right")
    for label, summary in rows:
        table.add_row(label, *_cells(summary))
    return table


def _cells(summary: ErrorSummary) -> list[str]:
    covered = "-" if summary.coverage is None else f"{summary.coverage:.0%}"
    figures = [f"{value:.1%}" for value in (summary.median, summary.mean, summary.p90)]
    return [f"{summary.rows:,}", *figures, f"{summary.bias:+.1%}", covered]


def markdown_table(rows: Sequence[tuple[str, ErrorSummary]], head: str) -> str:
    """Write the same table for a page."""
    lines = [f"| {head} | rows | median | mean | p90 | bias | in P10-P90 |", "|---|---|---|---|---|---|---|"]
    lines += [f"| {label} | {' | '.join(_cells(summary))} |" for label, summary in rows]
    return "\n".join(lines) + "\n"
