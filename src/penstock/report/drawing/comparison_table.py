"""Draws comparison tables. A table that is too wide for the terminal is transposed, so that no cell is cut."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

Figure: TypeAlias = str | Text
_UNBOUNDED: Final = 1000


@dataclass(frozen=True, slots=True)
class Column:
    """Heading of a column in one or two lines, and whether the cells of the column are numbers."""

    head: str
    figures: bool = True


def sheet(columns: Sequence[Column], rows: Sequence[Sequence[Figure]], width: int) -> RenderableType:
    """Draw a table. A table that is too wide for the terminal is transposed and split, so that no cell is cut."""
    table = plain_table()
    for column in columns:
        table.add_column(column.head, justify="right" if column.figures else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    if not rows or measured_width(table) <= width:
        return table
    pieces: list[RenderableType] = []
    begin = 0
    while begin < len(rows):
        count = len(rows) - begin
        transposed = _transposed_table(columns, rows[begin : begin + count])
        while count > 1 and measured_width(transposed) > width:
            count -= 1
            transposed = _transposed_table(columns, rows[begin : begin + count])
        pieces += [Text(), transposed] if pieces else [transposed]
        begin += count
    return Group(*pieces)


def plain_table() -> Table:
    """Create a table without borders."""
    return Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))


def measured_width(view: RenderableType) -> int:
    """Return the width in terminal columns that a renderable takes without wrapping."""
    return Console(width=_UNBOUNDED).measure(view).maximum


def _transposed_table(columns: Sequence[Column], rows: Sequence[Sequence[Figure]]) -> Table:
    table = plain_table()
    table.add_column(columns[0].head.replace("\n", " "), no_wrap=True)
    for row in rows:
        table.add_column(Text(str(row[0])), justify="right", no_wrap=True)
    for number, column in enumerate(columns[1:], 1):
        table.add_row(Text(column.head.replace("\n", " "), style="bold"), *(row[number] for row in rows))
    return table
