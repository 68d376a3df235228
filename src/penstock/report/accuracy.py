"""How is our error published? Tables of held-out error, for the terminal and for docs/accuracy.md."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.performance.calibration.error_summary import (
    Errors,
    ErrorSummary,
    Kept,
    Winners,
    covered,
    summarise,
    winners,
)
from penstock.performance.similarity.posterior import Measured

SPLITS: Mapping[str, str] = {
    "month": "the next month, as applied",
    "setup": "a new setup",
    "model": "a new model",
    "accelerator": "a new accelerator",
    "lengths": "new lengths",
    "load": "a load between measured ones",
}
"""What a row is predicted without, as a reader meets it."""
_HEAD = ("rows", "median", "mean", "p90", "bias", "in P10-P90")


@dataclass(frozen=True, kw_only=True, eq=False)
class Published:
    """One way of holding out."""

    name: str
    errors: Errors
    rows: Measured
    covered: Kept

    @staticmethod
    def of(name: str, errors: Errors, rows: Measured) -> "Published":
        """Judge every row against the interval that other folds would have given it."""
        return Published(name=name, errors=errors, rows=rows, covered=covered(errors))

    def summary(self, kept: Kept | None = None) -> ErrorSummary:
        """Summarise some of the rows, or all."""
        chosen = np.ones(len(self.covered), np.bool_) if kept is None else kept
        errors = self.errors
        return summarise(errors.predicted_s[chosen], errors.measured_s[chosen], self.covered[chosen])

    def by(self, *words: str) -> list[tuple[str, ErrorSummary]]:
        """Summarise each group of rows that share these words."""
        labels = np.array([" ".join(spelt) for spelt in zip(*(self.rows.texts[word] for word in words), strict=True)])
        return [(label, self.summary(labels == label)) for label in np.unique(labels).tolist()]

    @property
    def winners(self) -> Winners | None:
        """How often the right vendor was named."""
        return winners(self.rows, self.errors.predicted_s)


def render_accuracy(published: Sequence[Published]) -> RenderableType:
    """Draw one table over all ways of holding out, one per accelerator for the first, and who was named winner."""
    pieces: list[RenderableType] = [
        _table("predicted without", [(SPLITS[each.name], each.summary()) for each in published]),
        Text(),
        _table(f"{SPLITS[published[0].name]}, on", published[0].by("part")),
        Text(),
    ]
    pieces += [Text(line) for each in published if (line := winner_line(each)) is not None]
    return Group(*pieces)


def winner_line(published: Published) -> str | None:
    """Say how often the right winner was named, and what naming without a model would have reached."""
    found = published.winners
    if found is None:
        return None
    return (
        f"AMD or NVIDIA, {SPLITS[published.name]}: right in {found.named:.1%} of {found.comparisons:,} comparisons "
        f"more than 15% apart (always NVIDIA {found.always_nvidia:.1%}, a fixed ranking {found.fixed_ranking:.1%})"
    )


def _table(head: str, rows: Sequence[tuple[str, ErrorSummary]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column(head, no_wrap=True)
    for name in _HEAD:
        table.add_column(name, justify="right")
    for label, summary in rows:
        table.add_row(label, *_cells(summary))
    return table


def _cells(summary: ErrorSummary) -> list[str]:
    covered_share = "-" if summary.coverage is None else f"{summary.coverage:.0%}"
    figures = [f"{value:.1%}" for value in (summary.median, summary.mean, summary.p90)]
    return [f"{summary.rows:,}", *figures, f"{summary.bias:+.1%}", covered_share]


def markdown_table(rows: Sequence[tuple[str, ErrorSummary]], head: str) -> str:
    """Write the same table for a page."""
    lines = [f"| {head} | {' | '.join(_HEAD)} |", "|---|---|---|---|---|---|---|"]
    lines += [f"| {label} | {' | '.join(_cells(summary))} |" for label, summary in rows]
    return "\n".join(lines) + "\n"
