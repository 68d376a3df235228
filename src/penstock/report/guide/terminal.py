"""Renders a guide for the terminal: one map per model, output and SLO, then what turns the answer."""

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from penstock.guide.grid import WorkloadShape
from penstock.guide.guide_result import GuideCell, GuideResult
from penstock.report.guide.guide_maps import map_title, maps_of
from penstock.report.guide.guide_sentences import (
    ONE_ACCELERATOR,
    acquisition_sentence,
    binding_sentences,
    conclusion,
    crossing_sentence,
    doubt_sentence,
    format_sentence,
    is_close,
    left_out_groups,
    one_vendor_sentence,
    only_text,
    price_sentences,
    tie_sentences,
)
from penstock.report.guide.names import VENDOR_NAMES, short_name, tokens_text
from penstock.report.guide.where_sentences import none_sentences, where_sentences
from penstock.units import count_text, format_digits

_STYLES: Final = {"amd": "red", "nvidia": "green"}
_MAX_LINES: Final = 6
_ROW_LABEL: Final = 8
_GAP: Final = 2


def render_guide(result: GuideResult, next_command: str, width: int) -> RenderableType:
    """Draw the whole answer."""
    pieces: list[RenderableType] = [
        Text(result.name, style="bold"),
        Text(
            f"cost of {count_text(result.horizon_years, 'year')} from {result.start}, with spares and people; "
            f"fleets are enough in {result.confidence:.0%} of cases",
            style="dim",
        ),
    ]
    for shape, cells in maps_of(result):
        pieces += [Text(), _title(shape, result), *_map(cells, result, width)]
    pieces += [Text(), _legend(result), Text(), Text(conclusion(result), style="bold")]
    pieces += [_item(sentence) for sentence in (*list(where_sentences(result))[:_MAX_LINES], *none_sentences(result))]
    pieces += _section("What decides", list(binding_sentences(result)))
    pieces += _section("Where the answer turns", [crossing_sentence(crossing, result) for crossing in result.crossings])
    pieces += _section("Prices that turn it", list(price_sentences(result, _MAX_LINES)))
    pieces += _section("Near ties within a vendor (=)", list(tie_sentences(result)))
    left_out = (f"Left out: {group}" for group in left_out_groups(result))
    made = (format_sentence(result), acquisition_sentence(result))
    said = (*made, one_vendor_sentence(result), doubt_sentence(result, "~"), ONE_ACCELERATOR, *left_out)
    pieces += [Text(), *(Text(sentence) for sentence in said if sentence)]
    pieces += [Text(f"Next: {next_command}", style="dim")]
    return Group(*pieces)


def _section(title: str, lines: Sequence[str]) -> list[RenderableType]:
    if not lines:
        return []
    more = len(lines) - _MAX_LINES
    shown: list[RenderableType] = [_item(line) for line in lines[:_MAX_LINES]]
    if more > 0:
        shown.append(_item(f"and {more} more; --json lists all"))
    return [Text(), Text(title, style="bold"), *shown]


def _item(line: str) -> Padding:
    """Draw a line two columns to the right; what does not fit continues below, two columns further."""
    grid = Table.grid(padding=(0, 1))
    grid.add_row("-", line)
    return Padding(grid, (0, 0, 0, 2))


def _title(shape: WorkloadShape, result: GuideResult) -> Text:
    title, rest = Text(shape.model, style="bold"), map_title(shape, result).removeprefix(shape.model)
    return title.append(rest, style="not bold")


def _map(cells: Sequence[GuideCell], result: GuideResult, width: int) -> Iterator[RenderableType]:
    """Draw rows of prompts and columns of loads, in as many blocks as the width takes."""
    loads = result.grid.loads
    names = [short_name(cell.winner.accelerator) for cell in cells if cell.winner is not None]
    names += [cell.binding for cell in cells if cell.binding is not None]
    column = max([6, *(len(name) for name in names)]) + _GAP
    per_block = max(1, (width - _ROW_LABEL) // column)
    by_key = {(cell.shape.input_tokens, cell.requests_per_s): cell for cell in cells}
    prompts = sorted({cell.shape.input_tokens for cell in cells})
    for start in range(0, len(loads), per_block):
        block = loads[start : start + per_block]
        yield Text(f"{'prompt':{_ROW_LABEL}}requests/s at the peak", style="dim")
        yield Text(f"{'tokens':{_ROW_LABEL}}" + "".join(f"{format_digits(load):{column}}" for load in block))
        for prompt in prompts:
            row = [by_key.get((prompt, load)) for load in block]
            first, second, third = (
                Text(f"{tokens_text(prompt):{_ROW_LABEL}}"),
                Text(" " * _ROW_LABEL),
                Text(" " * _ROW_LABEL),
            )
            for cell in row:
                name, margin, style = _cell(cell, only_text(result))
                first.append(f"{name:{column}}", style=style)
                second.append(f"{margin:{column}}")
                third.append(f"{'' if cell is None else cell.binding or '':{column}}", style="dim")
            yield from (line for line in (first, second, third) if line.plain.strip())


def _cell(cell: GuideCell | None, only: str) -> tuple[str, str, str]:
    """Return the two lines of a cell, and the style of the first."""
    if cell is None or cell.winner is None:
        return "-", "", "dim"
    style = f"bold {_STYLES.get(cell.winner.vendor, 'blue')}"
    margin = only if cell.margin_fraction is None else f"+{min(9.99, cell.margin_fraction):.0%}"
    tie = "=" if cell.near_tie is not None else ""
    return short_name(cell.winner.accelerator) + tie, margin + ("~" if is_close(cell) else ""), style


def _legend(result: GuideResult) -> Text:
    winners = [cell.winner for cell in result.served if cell.winner is not None]
    text = Text(style="dim")
    for vendor in sorted({fleet.vendor for fleet in winners}):
        names = sorted({short_name(fleet.accelerator) for fleet in winners if fleet.vendor == vendor})
        text.append(f"{VENDOR_NAMES.get(vendor, vendor)}: ", style=f"bold {_STYLES.get(vendor, 'blue')}")
        text.append(f"{', '.join(names)}.  ")
    if winners and len(result.vendors) > 1:
        text.append("+20%: the other vendor costs 20% more; below it, what decides.  ")
    if any(is_close(cell) for cell in result.served):
        text.append("~: close.  ")
    if any(cell.rival is None for cell in result.served) and only_text(result):
        text.append("only: no other vendor keeps the SLO.  ")
    if any(cell.near_tie is not None for cell in result.served):
        text.append("=: another accelerator of the vendor costs at most 5% more.  ")
    if len(result.served) < len(result.cells):
        text.append("-: no fleet.")
    return text
