"""How is the software tax shown? One line per stack with a bar per month."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.performance.evidence.tax import Delivered

_BAR_CELLS = 40


def render_tax(points: Sequence[Delivered]) -> RenderableType:
    """Draw the share of the roofline delivered, month by month."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("accelerator", "engine", "month"):
        table.add_column(name, no_wrap=True)
    table.add_column("rows", justify="right")
    table.add_column("of the roofline (P10-P90)", no_wrap=True)
    table.add_column("tax", justify="right")
    table.add_column("same work,\nspeed", justify="right")
    previous = ("", "")
    for point in points:
        stack = (point.accelerator, point.engine)
        shown = ("", "") if stack == previous else stack
        previous = stack
        cells = round(point.median_fraction * _BAR_CELLS)
        bar = Text("█" * cells, style="cyan")
        bar.append("░" * (_BAR_CELLS - cells), style="bright_black")
        bar.append(f" {point.median_fraction:.0%} ({point.low_fraction:.0%}-{point.high_fraction:.0%})")
        table.add_row(
            *shown,
            point.month,
            str(point.rows),
            bar,
            f"{point.software_tax_fraction:.0%}",
            f"{point.relative_speed:.2f}x",
        )
    note = (
        "Each bar is the median over that month's public serving runs, whatever was run; the last column holds the "
        "work fixed and compares a stack's releases with its first month here. The roofline is the larger of memory "
        "and compute time at data-sheet peaks."
    )
    return Group(table, Text(note, style="dim"))
