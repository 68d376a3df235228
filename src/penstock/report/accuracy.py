"""Renders tables of held-out prediction errors, for the terminal."""

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
    is_covered,
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
"""Printed name of each hold-out split. The name says which data the predictor has not seen."""
_HEAD = ("rows", "median", "mean", "p90", "bias", "in P10-P90")


@dataclass(frozen=True, kw_only=True, eq=False)
class Published:
    """The prediction errors of one hold-out split."""

    name: str
    errors: Errors
    rows: Measured
    covered: Kept

    @staticmethod
    def of(name: str, errors: Errors, rows: Measured) -> "Published":
        """Build a split from its errors and rows.

        A row is covered if its measured value lies in the P10-P90 interval that was calibrated on the other folds.
        """
        return Published(name=name, errors=errors, rows=rows, covered=is_covered(errors))

    def summary(self, kept: Kept | None = None) -> ErrorSummary:
        """Summarise the errors of the rows that the mask `kept` selects, or of all rows if no mask is given."""
        chosen = np.ones(len(self.covered), np.bool_) if kept is None else kept
        errors = self.errors
        return summarise(errors.predicted_s[chosen], errors.measured_s[chosen], self.covered[chosen])

    def by(self, *words: str) -> list[tuple[str, ErrorSummary]]:
        """Summarise the errors of each group of rows. Rows with equal values of the given labels form a group."""
        labels = np.array([" ".join(spelt) for spelt in zip(*(self.rows.texts[word] for word in words), strict=True)])
        return [(label, self.summary(labels == label)) for label in np.unique(labels).tolist()]

    def by_configuration(self) -> tuple[int, float, float]:
        """Return the number of configurations, and the median and P90 of their median absolute relative errors.

        A configuration is one exact setup. Each counts once, however many rows it has.
        """
        sizes, setups = np.abs(self.errors.predicted_s / self.errors.measured_s - 1), self.rows.cases.labels["setup"]
        medians = [float(np.median(sizes[setups == setup])) for setup in np.unique(setups)]
        return len(medians), float(np.median(medians)), float(np.quantile(medians, 0.9))

    @property
    def winners(self) -> Winners | None:
        """Return how often the faster vendor was predicted correctly.

        Return None if no measurements compare two vendors.
        """
        return winners(self.rows, self.errors.predicted_s)


def render_accuracy(published: Sequence[Published]) -> RenderableType:
    """Draw the tables of held-out errors, and how often the faster vendor was predicted correctly.

    The first table has the errors of each hold-out split. The second has the errors of the first split per accelerator.
    """
    pieces: list[RenderableType] = [
        _table("predicted without", [(SPLITS[each.name], each.summary()) for each in published]),
        Text(),
        _table(f"{SPLITS[published[0].name]}, on", published[0].by("part")),
        Text(),
    ]
    pieces += [Text(line) for each in published if (line := winner_line(each)) is not None]
    return Group(*pieces)


def winner_line(published: Published) -> str | None:
    """Describe how often the faster vendor was predicted correctly.

    For comparison, the sentence gives the results of two baselines that use no model.
    """
    found = published.winners
    if found is None:
        return None
    return (
        f"AMD or NVIDIA, {SPLITS[published.name]}: right in {found.named:.1%} of {found.comparisons:,} comparisons "
        f"more than 15% apart{_by_winner(found)} (always NVIDIA {found.always_nvidia:.1%}, a fixed ranking "
        f"{found.fixed_ranking:.1%}{_ranking_where_amd_won(found)})"
    )


def _ranking_where_amd_won(found: Winners) -> str:
    share = found.fixed_ranking_where_amd_won
    return "" if share is None else f", {share:.0%} where AMD won"


def _by_winner(found: Winners) -> str:
    shares = (("AMD", found.where_amd_won), ("NVIDIA", found.where_nvidia_won))
    return "".join(f", {share:.0%} where {vendor} won" for vendor, share in shares if share is not None)


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
    """Write error summaries as a Markdown table."""
    lines = [f"| {head} | {' | '.join(_HEAD)} |", "|---|---|---|---|---|---|---|"]
    lines += [f"| {label} | {' | '.join(_cells(summary))} |" for label, summary in rows]
    return "\n".join(lines) + "\n"
