"""Draws curves with intervals in a terminal."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log10

from rich.text import Text

from penstock.performance.prediction.predict_deployment import Range

_ROWS = 15
_TICKS = tuple(digit * 10.0**power for power in range(-3, 7) for digit in (1, 2, 5))


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """A point with an interval of its height."""

    x: float
    y: Range


@dataclass(frozen=True, slots=True)
class PlottedCurve:
    """Points that belong together, with the glyph and the colour in which they are drawn."""

    glyph: str
    style: str
    points: tuple[CurvePoint, ...]


@dataclass(frozen=True, slots=True)
class _Canvas:
    """Maps points to the cells of a terminal: columns by the logarithm of x, rows by y."""

    left: float
    right: float
    top: float
    columns: int

    def column(self, x: float) -> int:
        span = log10(self.right / self.left) or 1.0
        return round((self.columns - 3) * log10(x / self.left) / span) + 1

    def row(self, y: float) -> int:
        return min(_ROWS - 1, int((_ROWS - 1) * (1 - y / self.top) + 0.5))


def plot(curves: Sequence[PlottedCurve], width: int) -> Text:
    """Draw curves over a logarithmic horizontal axis. Bars show the intervals."""
    every = [point for curve in curves for point in curve.points]
    top = max(point.y.high for point in every)
    label = len(f"{top:,.0f}") + 1
    positions = [point.x for point in every]
    canvas = _Canvas(min(positions), max(positions), top, max(20, width - label - 2))
    cells = _cells(curves, canvas)
    text = Text()
    for line in range(_ROWS):
        height = top * (1 - line / (_ROWS - 1))
        text.append(f"{height:>{label},.0f} ┤" if line % 7 == 0 else f"{'':>{label}} │", style="dim")
        used = max((at for found, at in cells if found == line), default=-1)
        for at in range(used + 1):
            glyph, style = cells.get((line, at), (" ", ""))
            text.append(glyph, style=style)
        text.append("\n")
    ticks = {canvas.column(tick): tick for tick in _TICKS if canvas.left <= tick <= canvas.right}
    return text.append(_axis(canvas.columns, label, ticks), style="dim")


def _cells(curves: Sequence[PlottedCurve], canvas: _Canvas) -> dict[tuple[int, int], tuple[str, str]]:
    """Return the glyph and style of each drawn cell. Points are drawn last, so that nothing hides them."""
    lines: dict[tuple[int, int], tuple[str, str]] = {}
    bars: dict[tuple[int, int], tuple[str, str]] = {}
    points: dict[tuple[int, int], tuple[str, str]] = {}
    for curve in curves:
        dim = f"dim {curve.style}"
        for begin, end in pairwise(sorted(curve.points, key=lambda point: point.x)):
            first, last = canvas.column(begin.x), canvas.column(end.x)
            for at in range(first + 1, last):
                height = begin.y.value + (at - first) / (last - first) * (end.y.value - begin.y.value)
                lines[canvas.row(height), at] = ("·", dim)
        for point in curve.points:
            at = canvas.column(point.x)
            bars |= {(line, at): ("│", dim) for line in range(canvas.row(point.y.high), canvas.row(point.y.low) + 1)}
            points[canvas.row(point.y.value), at] = (curve.glyph, curve.style)
    return lines | bars | points


def _axis(columns: int, label: int, ticks: dict[int, float]) -> str:
    line = "".join("┴" if at in ticks else "─" for at in range(columns))
    names = [" "] * (columns + 4)
    free = 0
    for at, tick in sorted(ticks.items()):
        name = f"{tick:,.12g}"
        start = max(0, at - len(name) // 2)
        if start >= free and start + len(name) <= columns:
            names[start : start + len(name)] = name
            free = start + len(name) + 1
    return f"{'':>{label}} └{line}\n{'':>{label}}  {''.join(names).rstrip()}"
