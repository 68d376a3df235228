"""Draws stacked bars, for example of a device's memory. Each segment of a bar has its own colour and glyph."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from rich.text import Text


@dataclass(frozen=True, slots=True)
class Use:
    """A segment of a stacked bar: its label, glyph and colour.

    The glyph distinguishes the segment from others without colour.
    """

    label: str
    glyph: str
    style: str


WEIGHTS = Use("weights", "█", "cyan")
EXPERTS = Use("experts", "▓", "blue")
WORK = Use("activations, runtime, graphs", "▒", "yellow")
CACHE = Use("KV cache", "░", "green")
UNUSED = Use("unused", "·", "bright_black")
OVER = Use("does not fit", "▚", "red")


def stacked_bar(parts: Sequence[tuple[Use, float]], *, full: float, width: int) -> Text:
    """Draw a stacked bar.

    Every segment above 0.1% gets at least one cell, which is taken from the widest segment.
    """
    if full <= 0:
        return Text()
    edges, total = [0], 0.0
    for _, amount in parts:
        total += max(0.0, amount)
        edges.append(round(min(total / full, 1.0) * width))
    cells = [end - begin for begin, end in pairwise(edges)]
    for number, (_, amount) in enumerate(parts):
        widest = cells.index(max(cells))
        if not cells[number] and amount / full > 1e-3 and cells[widest] > 1:  # 0.1% still shows
            cells[number] = 1
            cells[widest] -= 1
    return Text().join(Text(use.glyph * count, style=use.style) for (use, _), count in zip(parts, cells, strict=True))


def legend(uses: Sequence[Use]) -> Text:
    """Draw a legend that explains the glyphs."""
    text = Text()
    for use in uses:
        text.append(f"{use.glyph}{use.glyph} ", style=use.style)
        text.append(f"{use.label}   ", style="dim")
    return text
