"""Derives how likely each drafted token of a model is accepted, from published acceptance lengths by draft length."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from statistics import fmean, median
from typing import Final

from penstock.catalog.measurement import Drafted
from penstock.catalog.published_tables import AcceptanceLength
from penstock.performance.step.drafting_step import expected_tokens

_POSITIONS: Final = 8
_LEAST, _MOST = 0.05, 0.99
"""Bounds of an acceptance. Two published lengths of one curve that differ by noise can give a negative value."""
_HALVINGS: Final = 40
Curve = tuple[float, ...]
"""Acceptance of the first, second, ... drafted token, each after all drafted tokens before it were accepted."""


@dataclass(frozen=True, kw_only=True)
class AcceptanceCurves:
    """Published acceptance of each drafted token, by model."""

    usual: Curve
    """Curve of a model without published lengths: the mean over all models."""
    of: Mapping[str, Curve]
    """Curves by `drafter_key`."""

    def accepted_tokens(self, key: str, drafted_tokens: int, power: float) -> float:
        """Return the expected tokens of a step, with each acceptance raised to a power.

        Benchmarks with random text accept less than the published workloads: their power is above 1.
        """
        curve = self.of.get(key, self.usual)
        return expected_tokens(curve[min(at, len(curve) - 1)] ** power for at in range(drafted_tokens))


def drafter_key(shape: str, method: Drafted) -> str:
    """Return the key of a model's drafter. Own draft layers and the usual separate drafter share the model's key."""
    return f"{shape} {method}" if method in {"dspark", "dflash"} else shape


def acceptance_curves(table: Iterable[AcceptanceLength], shape_of_name: Callable[[str], str]) -> AcceptanceCurves:
    """Return one curve per model: the mean over its workloads.

    A model with lengths of one draft length only gets the usual curve, raised to the power that gives its median
    length.
    """
    lengths: dict[str, dict[tuple[object, ...], dict[int, list[float]]]] = defaultdict(dict)
    for row in table:
        key = drafter_key(shape_of_name(row.model), "dspark" if row.drafted == "dspark" else "mtp")
        points = lengths[key].setdefault((row.source, row.workload, row.thinking, row.model), defaultdict(list))
        points[row.draft_tokens].append(row.accepted_length)
    whole = {
        key: [_conditional(points) for points in series.values() if len(points) == _POSITIONS]
        for key, series in lengths.items()
    }
    curves = {key: _mean(found) for key, found in whole.items() if found}
    usual = _mean(list(curves.values()))
    for key, series in lengths.items():
        if key not in curves:
            single = [(count, length) for each in series.values() for count, found in each.items() for length in found]
            curves[key] = _raise_curve(usual, single)
    return AcceptanceCurves(usual=usual, of=dict(sorted(curves.items())))


def _conditional(points: Mapping[int, Sequence[float]]) -> Curve:
    tokens = [1.0, *(fmean(points[count]) for count in sorted(points))]
    gained = [after - before for before, after in pairwise(tokens)]
    each = (after / max(before, 1e-3) for before, after in pairwise([1.0, *gained]))
    return tuple(min(_MOST, max(_LEAST, value)) for value in each)


def _mean(curves: Sequence[Curve]) -> Curve:
    return tuple(fmean(at) for at in zip(*curves, strict=True))


def _raise_curve(usual: Curve, points: Sequence[tuple[int, float]]) -> Curve:
    """Raise a curve to the power at which its expected tokens equal the median of published lengths."""
    most = max(count for count, _ in points)
    wanted = median(length for count, length in points if count == most)
    low, high = 0.0, 16.0
    for _ in range(_HALVINGS):
        power = (low + high) / 2
        more = expected_tokens(each**power for each in usual[:most]) > wanted
        low, high = (power, high) if more else (low, power)
    return tuple(min(_MOST, max(_LEAST, each**high)) for each in usual)


def to_document(curves: AcceptanceCurves) -> dict[str, list[float]]:
    """Return the curves as plain values, rounded to three decimals. The usual curve has the empty key."""
    named = chain([("", curves.usual)], curves.of.items())
    return {key: [round(value, 3) for value in curve] for key, curve in named}


def from_document(document: Mapping[str, Sequence[float]]) -> AcceptanceCurves:
    """Parse the document that `to_document` returns."""
    named = {key: tuple(curve) for key, curve in document.items()}
    return AcceptanceCurves(usual=named.pop(""), of=named)
