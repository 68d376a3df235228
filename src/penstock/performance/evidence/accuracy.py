"""How wrong are we? Every row predicted by a model that never saw it, and what that says about the next prediction."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import combinations
from typing import Final, get_args

import numpy as np

from penstock.catalog.measurement import Measurement, Scenario
from penstock.performance.evidence.regression import Calibration, Row, calibrate
from penstock.performance.evidence.waits import Fitted, Waited, fit_both

Pair = tuple[Measurement, Row]
Fold = Callable[[Measurement, Row], str]

_WINNER_GAP: Final = 1.15
"""Two accelerators differ when one is at least this much faster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """One row, predicted without it and its fold."""

    measurement: Measurement
    row: Row
    predicted_s: float
    kin: tuple[str, ...]
    """Whose measurements were used."""

    @property
    def error(self) -> float:
        """Predicted over measured, minus one."""
        return self.predicted_s / self.row.seconds - 1

    @property
    def log_ratio(self) -> float:
        """Logarithm of measured over predicted: what an interval around a prediction must cover."""
        return float(np.log(self.row.seconds / self.predicted_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorSummary:
    """How far off a set of predictions is."""

    rows: int
    median: float
    mean: float
    p90: float
    bias: float
    coverage: float | None = None
    """Share of rows inside their P10-P90, where intervals were made from other folds."""


FOLDS: Final[dict[str, Fold]] = {
    "shape": lambda m, _: f"{m.input_tokens:.0f}/{m.output_tokens:.0f}",
    "configuration": lambda _, row: row.configuration,
    "model": lambda _, row: row.family,
    "accelerator": lambda m, _: m.accelerator,
}
"""What is held out together; a fold is one shape, one configuration, one model family or one accelerator."""


@dataclass(frozen=True, kw_only=True)
class Refit:
    """What was fitted without one fold, and the fold."""

    fitted: Fitted
    pairs: Sequence[Pair]
    waits: Sequence[Waited]

    def steps(self) -> list[HeldOut]:
        """Predict the fold's times per output token."""
        return [_predicted(self.fitted.step, measurement, row) for measurement, row in self.pairs]

    def first_tokens(self, served_s: Callable[[Waited], float] | None = None) -> list[HeldOut]:
        """Predict the fold's times to first token, in closed form or from what a simulation of each says."""
        return [
            HeldOut(
                measurement=item.measurement,
                row=replace(item.row, seconds=item.seconds),
                predicted_s=self.fitted.first_token_s(item, served_s and served_s(item)),
                kin=self.fitted.first.nearest(item.row.kin)[0],
            )
            for item in self.waits
        ]


def refits(
    pairs: Sequence[Pair], waits: Sequence[Waited], fold: Fold, *, only: Collection[str] | None = None
) -> Iterator[Refit]:
    """Fit to all folds but one, for each of them or for some."""
    labels = [fold(measurement, row) for measurement, row in pairs]
    waited = [fold(item.measurement, item.row) for item in waits]
    for label in sorted(set(labels) if only is None else set(labels).intersection(only)):
        seen = [row for (_, row), at in zip(pairs, labels, strict=True) if at != label]
        if seen:
            yield Refit(
                fitted=fit_both(seen, [item for item, at in zip(waits, waited, strict=True) if at != label]),
                pairs=[pair for pair, at in zip(pairs, labels, strict=True) if at == label],
                waits=[item for item, at in zip(waits, waited, strict=True) if at == label],
            )


def hold_out(pairs: Sequence[Pair], fold: Fold) -> Iterator[HeldOut]:
    """Predict every row with a calibration fitted to the other folds."""
    for refit in refits(pairs, (), fold):
        yield from refit.steps()


def before_and_after(pairs: Sequence[Pair], day: date) -> Iterator[HeldOut]:
    """Fit to what was published before a day, predict what came on or after it."""
    calibration = calibrate([row for measurement, row in pairs if measurement.date < day])
    for measurement, row in pairs:
        if measurement.date >= day:
            yield _predicted(calibration, measurement, row)


def _predicted(calibration: Calibration, measurement: Measurement, row: Row) -> HeldOut:
    path, _ = calibration.nearest(row.kin)
    return HeldOut(measurement=measurement, row=row, predicted_s=calibration.seconds(row), kin=path)


def summarise(held: Sequence[HeldOut], *, covered: Sequence[bool] | None = None) -> ErrorSummary:
    """Reduce to a few figures."""
    errors = np.array([entry.error for entry in held])
    sizes = np.abs(errors)
    return ErrorSummary(
        rows=len(held),
        median=float(np.median(sizes)),
        mean=float(np.mean(sizes)),
        p90=float(np.quantile(sizes, 0.9)),
        bias=float(np.median(errors)),
        coverage=None if covered is None else float(np.mean(covered)),
    )


def spread(held: Sequence[HeldOut]) -> tuple[float, float]:
    """P10 and P90 of measured over predicted, as logarithms: the interval the next prediction gets."""
    ratios = np.array([entry.log_ratio for entry in held])
    return float(np.quantile(ratios, 0.1)), float(np.quantile(ratios, 0.9))


def coverage(held: Sequence[HeldOut], fold: Fold) -> list[bool]:
    """Whether each row lies in the interval that the other folds' errors would have given it."""
    labels = [fold(entry.measurement, entry.row) for entry in held]
    inside = []
    spans: dict[str, tuple[float, float]] = {}
    for entry, label in zip(held, labels, strict=True):
        if label not in spans:
            others = [other for other, at in zip(held, labels, strict=True) if at != label]
            spans[label] = spread(others or list(held))
        low, high = spans[label]
        inside.append(low <= entry.log_ratio <= high)
    return inside


@dataclass(frozen=True, kw_only=True)
class Held:
    """One way of holding out: its rows, and whether each lay in its interval."""

    name: str
    rows: Sequence[HeldOut]
    covered: Sequence[bool]

    def summary(self, keep: Callable[[HeldOut], bool]) -> ErrorSummary | None:
        """Summarise the rows that pass."""
        chosen = [(row, inside) for row, inside in zip(self.rows, self.covered, strict=True) if keep(row)]
        if not chosen:
            return None
        return summarise([row for row, _ in chosen], covered=[inside for _, inside in chosen])


def with_coverage(name: str, rows: Sequence[HeldOut]) -> Held:
    """Judge every row against its interval; a scenario's intervals come from that scenario's errors."""
    ordered: list[HeldOut] = []
    inside: list[bool] = []
    for scenario in get_args(Scenario):
        chosen = [row for row in rows if row.measurement.scenario == scenario]
        ordered += chosen
        inside += coverage(chosen, FOLDS[name])
    return Held(name=name, rows=ordered, covered=inside)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """Two accelerators measured on the same model, shape, precision and load, far enough apart to have a winner."""

    faster: Measurement
    slower: Measurement
    named_right: bool
    cross_vendor: bool


def contests(held: Sequence[HeldOut], vendor_of: Callable[[str], str]) -> list[Contest]:
    """Ask of every such pair whether the held-out predictions name the right winner."""
    groups: dict[tuple[object, ...], list[HeldOut]] = {}
    for entry in held:
        row = entry.measurement
        precision = "fp4" if row.weights in {"nvfp4", "mxfp4"} else row.weights
        load = (round(row.input_tokens), round(row.output_tokens), row.concurrency, row.devices)
        groups.setdefault((entry.row.family, precision, row.scenario, *load), []).append(entry)
    found = []
    for members in groups.values():
        for first, second in combinations(members, 2):
            fast, slow = sorted((first, second), key=lambda entry: entry.row.seconds)
            if fast.measurement.accelerator == slow.measurement.accelerator:
                continue
            if slow.row.seconds / fast.row.seconds < _WINNER_GAP:
                continue
            found.append(
                Contest(
                    faster=fast.measurement,
                    slower=slow.measurement,
                    named_right=fast.predicted_s < slow.predicted_s,
                    cross_vendor=vendor_of(fast.measurement.accelerator) != vendor_of(slow.measurement.accelerator),
                )
            )
    return found
