"""Summarises held-out errors, the coverage of intervals, and the share of correctly predicted faster accelerators."""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from penstock.performance.similarity.posterior import Measured
from penstock.performance.step.step_work import Array

_WINNER_GAP: Final = 1.15
"""Two accelerators count as equally fast if the ratio of their speeds is below this value."""
_OWN_ROWS: Final = 50
"""Minimum number of rows for an accelerator to have intervals of its own. An accelerator with fewer rows gets intervals
from the errors of all accelerators."""
EVERYWHERE: Final = ""
_GROUPS: Final = 20
"""Number of groups into which folds are merged to check the coverage of intervals."""
_FOUR_BITS: Final = frozenset({"nvfp4", "mxfp4"})
Logs = tuple[float, float]
"""P10 and P90 of the ratio of measured to predicted time, as logarithms."""
Kept = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, eq=False)
class Errors:
    """Predicted times, measured times and stated uncertainties of rows that were held out by the same rule."""

    predicted_s: Array
    measured_s: Array
    uncertainty: Array
    folds: npt.NDArray[np.int64]
    """Fold of each row. The coverage of an interval is checked on folds that were not used to compute the interval."""
    accelerators: npt.NDArray[np.str_]

    @property
    def off(self) -> Array:
        """Return the logarithm of the ratio of measured to predicted time, for each row."""
        return np.asarray(np.log(self.measured_s / self.predicted_s))

    def take(self, kept: Kept) -> "Errors":
        """Return the selected rows."""
        return Errors(
            predicted_s=self.predicted_s[kept],
            measured_s=self.measured_s[kept],
            uncertainty=self.uncertainty[kept],
            folds=self.folds[kept],
            accelerators=self.accelerators[kept],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorSummary:
    """Error statistics of a set of predictions."""

    rows: int
    median: float
    mean: float
    p90: float
    bias: float
    coverage: float | None = None
    """Share of rows whose measured time lies inside the row's P10-P90. The interval of a row is computed from folds
    that do not contain the row. None if the coverage was not computed."""


def summarise(predicted_s: Array, measured_s: Array, covered: Kept | None = None) -> ErrorSummary:
    """Return statistics of the errors of predicted times, relative to the measured times."""
    errors = predicted_s / measured_s - 1
    sizes = np.abs(errors)
    return ErrorSummary(
        rows=len(errors),
        median=float(np.median(sizes)),
        mean=float(np.mean(sizes)),
        p90=float(np.quantile(sizes, 0.9)),
        bias=float(np.median(errors)),
        coverage=None if covered is None else float(np.mean(covered)),
    )


def intervals(errors: Errors) -> dict[str, Logs]:
    """Return P10 and P90 of the errors, in units of the stated uncertainty, for each accelerator and for all together.

    An error is the logarithm of measured over predicted time. The interval contains 80% of the errors. The interval is
    symmetric, because the sign of an accelerator's error changes from month to month.
    """
    scaled = np.abs(errors.off / errors.uncertainty)
    spans = {EVERYWHERE: _eight_in_ten(scaled)}
    for accelerator in np.unique(errors.accelerators).tolist():
        own = errors.accelerators == accelerator
        if own.sum() >= _OWN_ROWS:
            spans[accelerator] = _eight_in_ten(scaled[own])
    return spans


def _eight_in_ten(sizes: Array) -> Logs:
    most = float(np.quantile(sizes, 0.8))
    return -most, most


def is_covered(errors: Errors) -> Kept:
    """Return, for each row, whether its error lies in the interval computed from the errors of other folds."""
    inside = np.zeros(len(errors.folds), np.bool_)
    groups = errors.folds % _GROUPS
    for group in np.unique(groups):
        here = groups == group
        spans = intervals(errors.take(~here) if not here.all() else errors)
        accelerators = errors.accelerators[here].tolist()
        chosen = np.array([spans.get(accelerator, spans[EVERYWHERE]) for accelerator in accelerators])
        low, high = chosen.T
        off, uncertainty = errors.off[here], errors.uncertainty[here]
        inside[here] = (low * uncertainty <= off) & (off <= high * uncertainty)
    return inside


@dataclass(frozen=True, slots=True, kw_only=True)
class Winners:
    """Share of comparisons of two accelerators in which the prediction named the faster one."""

    comparisons: int
    named: float
    where_amd_won: float | None
    """The same share among the comparisons that AMD won. None if AMD won none."""
    where_nvidia_won: float | None
    """The same share among the comparisons that NVIDIA won. None if NVIDIA won none."""
    always_nvidia: float
    fixed_ranking: float
    """Share of correct answers of a baseline. For each comparison, the baseline names the accelerator that won most of
    the other comparisons of the same two accelerators."""
    fixed_ranking_where_amd_won: float | None
    """The same share among the comparisons that AMD won. None if AMD won none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """One measured row that can be compared with rows of other accelerators."""

    number: int
    same: Hashable
    """Key that two rows must share to be compared: model, precision, load and number of devices."""
    accelerator: str
    vendor: str


def contestants(measured: Measured) -> list[Contestant]:
    """Return each row with the key that rows must share to be compared. All four-bit formats count as one precision."""
    cases, texts = measured.cases, measured.texts
    return [
        Contestant(
            number=number,
            same=(
                texts["family"][number],
                "fp4" if texts["weights"][number] in _FOUR_BITS else texts["weights"][number],
                texts["devices"][number],
                *(round(float(values[number])) for values in (cases.users, cases.input_tokens, cases.output_tokens)),
            ),
            accelerator=texts["part"][number],
            vendor=texts["vendor"][number],
        )
        for number in range(len(cases))
    ]


def winners(measured: Measured, predicted_s: Array) -> Winners | None:
    """Compare every AMD row with every NVIDIA row of the same model, precision, load and number of devices.

    Two rows that are about equally fast are not compared. Repetitions of a comparison on other days or with other
    engines count as one comparison. The result is None if no two rows can be compared.
    """
    groups: dict[Hashable, list[Contestant]] = defaultdict(list)
    for entry in contestants(measured):
        groups[entry.same].append(entry)
    found: dict[tuple[Hashable, str, str], list[tuple[bool, bool]]] = defaultdict(list)
    for same, members in groups.items():
        for one in (entry for entry in members if entry.vendor == "amd"):
            for other in (entry for entry in members if entry.vendor == "nvidia"):
                ratio = measured.seconds[one.number] / measured.seconds[other.number]
                if max(ratio, 1 / ratio) >= _WINNER_GAP:
                    amd_named = predicted_s[one.number] < predicted_s[other.number]
                    found[same, one.accelerator, other.accelerator].append((bool(amd_named), bool(ratio < 1)))
    return _average_distinct(found) if found else None


def _average_distinct(found: Mapping[tuple[Hashable, str, str], Sequence[tuple[bool, bool]]]) -> Winners:
    """Return the shares of correct answers, averaged over distinct comparisons.

    The baseline, a fixed ranking, names AMD if AMD won most of the other comparisons of the same two accelerators.
    """
    amd_won = {key: float(np.mean([won for _, won in entries])) for key, entries in found.items()}
    by_parts: dict[tuple[str, str], list[float]] = defaultdict(list)
    for (_, one, other), share in amd_won.items():
        by_parts[one, other].append(share)
    ranked = {}
    for key, share in amd_won.items():
        _, one, other = key
        rest = by_parts[one, other]
        others = (sum(rest) - share) / (len(rest) - 1) if len(rest) > 1 else 0.0
        ranked[key] = share if others > 0.5 else 1 - share
    right = {key: float(np.mean([named == won for named, won in entries])) for key, entries in found.items()}
    by_winner = {amd: [right[key] for key, share in amd_won.items() if (share > 0.5) is amd] for amd in (True, False)}
    ranked_amd = [ranked[key] for key, share in amd_won.items() if share > 0.5]
    return Winners(
        comparisons=len(found),
        named=float(np.mean(list(right.values()))),
        where_amd_won=float(np.mean(by_winner[True])) if by_winner[True] else None,
        where_nvidia_won=float(np.mean(by_winner[False])) if by_winner[False] else None,
        always_nvidia=1 - float(np.mean(list(amd_won.values()))),
        fixed_ranking=float(np.mean(list(ranked.values()))),
        fixed_ranking_where_amd_won=float(np.mean(ranked_amd)) if ranked_amd else None,
    )
