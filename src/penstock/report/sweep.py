"""Draws a sweep: throughput per device over speed per user, with intervals, and the points as a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from penstock.model import ModelSpec
from penstock.performance.prediction.predict_deployment import Prediction, Range
from penstock.report.drawing.comparison_table import plain_table
from penstock.report.drawing.curve_plot import CurvePoint, PlottedCurve, plot
from penstock.report.predict_summary import (
    deployment_name,
    next_commands,
    reasons_to_doubt,
    setup_line,
    software_apart,
    uncertainty_line,
    what_would_serve,
)

_MARKS: Final = (("●", "cyan"), ("▲", "yellow"), ("■", "magenta"), ("◆", "green"), ("▼", "red"), ("★", "blue"))
_COMPARED_SPEEDS: Final = 25


@dataclass(frozen=True, slots=True)
class Series:
    """Predictions of one deployment at several numbers of users, in ascending order of users."""

    name: str
    predictions: tuple[Prediction, ...]

    @property
    def fits(self) -> bool:
        """Return whether the model fits at every number of users."""
        return all(one.memory.fits for one in self.predictions)

    def throughput_at(self, speed: float) -> float | None:
        """Interpolate the throughput per device at a speed per user. None outside the predicted speeds."""
        points = sorted((speed_per_user(one).value, per_device(one).value) for one in self.predictions)
        for (low, before), (high, after) in pairwise(points):
            if low <= speed <= high:
                part = 0.0 if high == low else log(speed / low) / log(high / low)
                return exp((1 - part) * log(before) + part * log(after))
        return None


def per_device(prediction: Prediction) -> Range:
    """Return the output tokens per second and device."""
    return prediction.output_tokens_per_s.scaled(1 / prediction.deployment.parallelism.devices)


def speed_per_user(prediction: Prediction) -> Range:
    """Return the output tokens per second that one user sees after the first token: one over TPOT."""
    value, low, high = prediction.tpot_s.ends
    return Range(value=1 / value, low=1 / high, high=1 / low)


def series_of(predictions: Sequence[Prediction], targets: int) -> list[Series]:
    """Group predictions by deployment. `predictions` has `targets` deployments for each number of users."""
    groups = [tuple(predictions[start::targets]) for start in range(targets)]
    return [Series(deployment_name(group[0]), group) for group in groups]


def render_sweep(model: ModelSpec, series: Sequence[Series], width: int, commands: Mapping[str, str]) -> RenderableType:
    """Draw the whole answer."""
    every = [one for line in series for one in line.predictions]
    drawn = [line for line in series if line.fits]
    pieces: list[RenderableType] = [setup_line(model, every), Text()]
    if drawn:
        pieces += [Text("tok/s per device (P10-P90 as bars) over tok/s per user", style="bold")]
        pieces += [plot([_curve(line, number) for number, line in enumerate(drawn)], min(width, 100)), Text()]
    for number, line in enumerate(drawn):
        pieces += [_heading(line, number), _points(line), Text()]
    for line in series:
        if not line.fits:
            pieces.append(Text(f"{line.name}: does not fit at every load; `penstock fit` lists what would fit"))
        elif small := [one for one in line.predictions if not one.serves]:
            pieces.append(Text(f"{what_would_serve(small[0])}."))
    return Group(*pieces, *_conclusion(drawn), *next_commands(commands, width))


def _mark(number: int) -> tuple[str, str]:
    return _MARKS[number % len(_MARKS)]


def _curve(line: Series, number: int) -> PlottedCurve:
    points = [CurvePoint(x=speed_per_user(one).value, y=per_device(one)) for one in line.predictions]
    return PlottedCurve(*_mark(number), tuple(points))


def _heading(line: Series, number: int) -> Text:
    engines = ", ".join(dict.fromkeys(one.measured_engine for one in line.predictions))
    tiers = ", ".join(dict.fromkeys(one.tier for one in line.predictions))
    glyph, style = _mark(number)
    return Text.assemble((f"{glyph} ", style), (line.name, "bold"), f", {engines}, {tiers}")


def _points(line: Series) -> RenderableType:
    table = plain_table()
    for head in ("in flight", "tok/s per user", "tok/s per device", "ms to first token"):
        table.add_column(head, justify="right", no_wrap=True)
    for one in line.predictions:
        table.add_row(
            f"{one.concurrency:,.0f}",
            _figure(speed_per_user(one), 1),
            _figure(per_device(one), 0),
            Text("-") if one.ttft_s is None else _figure(one.ttft_s.scaled(1e3), 0),
        )
    return table


def _figure(value: Range, digits: int) -> Text:
    span = f" ({value.low:,.{digits}f}-{value.high:,.{digits}f})"
    return Text.assemble(f"{value.value:,.{digits}f}", (span, "dim"))


def _conclusion(drawn: Sequence[Series]) -> list[Text]:
    if len(drawn) < 2:
        return []
    speeds = [{speed_per_user(one).value for one in line.predictions} for line in drawn]
    low, high = max(min(each) for each in speeds), min(max(each) for each in speeds)
    if not low < high:
        return [Text("Result: the curves share no speed per user; add more loads to compare them.")]
    heaviest = [line.predictions[-1] for line in drawn]
    told = f"Result: at equal speed per user, {_leaders(drawn, low, high)}{software_apart(heaviest)}."
    return [Text(told), Text(uncertainty_line(reasons_to_doubt(heaviest)), style="dim")]


def _leaders(drawn: Sequence[Series], low: float, high: float) -> str:
    """Say which deployment delivers the most per device, by ranges of the speed per user."""
    steps = [low * (high / low) ** (number / (_COMPARED_SPEEDS - 1)) for number in range(_COMPARED_SPEEDS)]
    ranges: list[tuple[str, float, float]] = []
    for speed in steps[1:-1]:
        best = max(drawn, key=lambda line: line.throughput_at(speed) or 0.0).name
        if ranges and ranges[-1][0] == best:
            ranges[-1] = (best, ranges[-1][1], speed)
        else:
            ranges.append((best, speed, speed))
    if len(ranges) == 1:
        return f"{ranges[0][0]} delivers the most per device ({low:,.0f} to {high:,.0f} tok/s per user)"
    pieces = [f"{name} from {begin:,.0f} to {end:,.0f} tok/s" for name, begin, end in ranges]
    return f"the most per device is delivered by {', '.join(pieces)}"
