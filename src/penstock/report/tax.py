"""Renders the software tax, with one line per stack and a bar per month."""

from collections.abc import Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.performance.calibration.software_tax import Delivered
from penstock.report.drawing.comparison_table import measured_width, plain_table

_MAX_CELLS: Final = 40
_MIN_CELLS: Final = 6


def render_tax(points: Sequence[Delivered], width: int) -> RenderableType:
    """Draw the fraction of the roofline that each stack delivers, by month."""
    plausible = [point for point in points if point.median_fraction <= 1]
    empty = measured_width(_table(plausible, 0))
    pieces: list[RenderableType] = [_table(plausible, max(_MIN_CELLS, min(_MAX_CELLS, width - empty)))]
    pieces += [_above_roofline(point) for point in points if point.median_fraction > 1]
    note = (
        "Each bar is the median over that month's public serving runs, of any model and load. The last column is the "
        "speed-up at equal work since the stack's first month in this table. The roofline is the larger of "
        "memory time and compute time at data-sheet peaks."
    )
    return Group(*pieces, Text(note, style="dim"))


def _above_roofline(point: Delivered) -> Text:
    """Describe rows above the roofline.

    No accelerator exceeds its data sheet, so rows above the roofline are mislabelled.
    """
    where = f"{point.accelerator} {point.engine} {point.month}"
    rows = "1 row" if point.rows == 1 else f"{point.rows} rows"
    return Text(
        f"Not shown: {where}, {rows} at {point.median_fraction:.0%} of the roofline: impossible, so mislabelled"
    )


def _table(points: Sequence[Delivered], cells: int) -> Table:
    table = plain_table()
    for name in ("accelerator", "engine", "month"):
        table.add_column(name, no_wrap=True)
    table.add_column("rows", justify="right", no_wrap=True)
    table.add_column("of the roofline\n(P10-P90)", no_wrap=True)
    table.add_column("tax", justify="right", no_wrap=True)
    table.add_column("same\nwork,\nspeed", justify="right", no_wrap=True)
    previous = ("", "")
    for point in points:
        stack = (point.accelerator, point.engine)
        shown = ("", "") if stack == previous else stack
        previous = stack
        full = round(point.median_fraction * cells)
        bar = Text("█" * full, style="cyan")
        bar.append("░" * (cells - full), style="bright_black")
        bar.append(f" {point.median_fraction:.0%} ({point.low_fraction:.0%}-{point.high_fraction:.0%})")
        tax, speed = f"{point.software_tax_fraction:.0%}", f"{point.relative_speed:.2f}x"
        table.add_row(*shown, point.month, str(point.rows), bar, tax, speed)
    return table
