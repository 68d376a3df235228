"""Fits device power to measured joules, first over all rows, then per vendor, then per accelerator.

Each level is shrunk towards the level above. Watts are joules per output token times the output rate of the same
measurement. With the rate of a different run, which may have used different software, the watts could exceed the power
limit of the device.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import log
from typing import Final, get_args

import numpy as np

from penstock.catalog.measurement import Measurement
from penstock.performance.calibration.measured_runs import (
    AcceleratorOf,
    ModelOf,
    batched_tokens,
    faster_than_roofline,
    measured_deployment,
)
from penstock.performance.power.power_model import Draw, Logs, PowerModel, UnderLoad, Unseen, Utilisation, kernels_of
from penstock.performance.similarity.cases import shape_of
from penstock.performance.step.step_work import Array, Load, ReplicaWork

_PRIOR: Final = np.log([0.3, 0.7, 3.0])
_FREEDOM: Final = (1.0, 0.3, 0.3)
"""Prior standard deviation of the log coefficients at each level, around the coefficients of the level above. The three
levels are all rows, a vendor, and an accelerator. The coefficients of all rows vary around `_PRIOR`."""
_MIN_ROWS: Final = 4
_MAX_IDLE: Final = 0.9
_HUBER: Final = 1.5
_LOADED_USERS: Final = 32
"""Minimum number of users with which a replica counts as under load."""
_STEADY: Final = (0.8, 1.2)
"""Allowed range of the ratio of running requests to users. A lower ratio means that users queued. A higher ratio means
that the two medians come from different runs."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DrawnRow:
    """Energy measurement as input to the power fit: the work and the time of an average step, and power per device."""

    measurement: Measurement
    roofline: Array
    seconds: float
    share: float
    """Power of each device as a fraction of board power."""
    path: tuple[str, str]
    """Vendor and accelerator."""
    kernels: str
    curve: str
    """Key of the exact setup. The key does not depend on token lengths and load."""

    @property
    def steady(self) -> bool:
        """Return whether the number of running requests is close to the number of users."""
        return _STEADY[0] <= (self.measurement.tpot_s or self.seconds) / self.seconds <= _STEADY[1]


def power_rows(measurements: Iterable[Measurement], model_of: ModelOf, accelerator_of: AcceleratorOf) -> list[DrawnRow]:
    """Return the energy measurements of single engines without drafts, on accelerators with known board power.

    Measurements faster than their roofline are left out.
    """
    compiled: dict[tuple[object, ...], ReplicaWork] = {}
    found = []
    for row in measurements:
        accelerator = accelerator_of(row.accelerator)
        if row.scenario != "online" or row.drafted or not row.concurrency or accelerator.tdp_watts is None:
            continue
        if row.joules_per_output_token is None or row.output_tokens_per_s is None:
            continue
        key = (row.model, row.weights, row.accelerator, row.tp, row.dp, row.ep, row.kv)
        if key not in compiled:
            compiled[key] = ReplicaWork(measured_deployment(row, model_of, accelerator_of))
        work = compiled[key]
        lengths = np.array([row.input_tokens]), np.array([row.output_tokens])
        roofline = work.roofline(Load.closed_loop(np.array([row.concurrency]), *lengths, batched_tokens(row)))[0]
        seconds = row.concurrency / row.output_tokens_per_s
        if faster_than_roofline(roofline, row.tpot_s or seconds):
            continue
        watts = row.joules_per_output_token * row.output_tokens_per_s / row.devices
        kernels = kernels_of(row.accelerator, row.engine, shape_of(work.deployment.model), row.weights)
        found.append(
            DrawnRow(
                measurement=row,
                roofline=roofline,
                seconds=seconds,
                share=watts / accelerator.tdp_watts,
                path=(accelerator.vendor, accelerator.id),
                kernels=kernels,
                curve=curve_of(row, shape_of(work.deployment.model)),
            )
        )
    return found


def curve_of(row: Measurement, shape: str) -> str:
    """Return the key of a row's exact setup. The key does not depend on token lengths, load and day."""
    kernels = kernels_of(row.accelerator, row.engine, shape, row.weights)
    return f"{kernels} tp{row.tp} dp{row.dp} ep{int(row.ep)}"


def fit_power(rows: Sequence[DrawnRow], spreads: dict[Unseen, Logs] | None = None) -> PowerModel:
    """Fit power curves to all rows, then per vendor and per accelerator, and then fit the factors of kernels."""
    steady = [row for row in rows if row.steady]
    draws: dict[tuple[str, ...], Draw] = {}
    under_load: dict[tuple[str, ...], UnderLoad] = {}
    for length, freedom in enumerate(_FREEDOM):
        members: dict[tuple[str, ...], list[DrawnRow]] = defaultdict(list)
        for row in steady:
            members[row.path[:length]].append(row)
        for path, held in members.items():
            if len(held) >= _MIN_ROWS:
                draws[path] = _gauss_newton(held, _logs(draws[path[:-1]]) if path else _PRIOR, freedom)
                under_load[path] = _under_load(held)
    return PowerModel(
        draws=draws, under_load=under_load, factors=_factors(steady, draws), spreads=spreads or {}, rows=len(rows)
    )


def _gauss_newton(rows: Sequence[DrawnRow], prior: Array, freedom: float) -> Draw:
    """Fit a power curve by Gauss-Newton on the logarithm of the ratio of measured to fitted power.

    The fit uses Huber weights and shrinks the coefficients towards the level above.
    """
    use = Utilisation.of(np.array([row.roofline for row in rows]), np.array([row.seconds for row in rows]))
    measured = np.log([row.share for row in rows])
    busy, at = np.column_stack([use.memory, use.arithmetic]), prior.copy()
    for _ in range(30):
        idle, price = float(np.exp(at[0])), np.exp(at[1:])
        room = 1.0 - idle
        left = np.exp(-(busy @ price) / room)
        share = 1.0 - room * left
        # d share / d idle and d share / d price, each times the coefficient itself, because the coefficients are
        # logarithms.
        slope = np.column_stack([left * (1 - busy @ price / room) * idle, busy * price * left[:, None]])
        slope /= share[:, None]
        off = measured - np.log(share)
        scale = max(1.4826 * float(np.median(np.abs(off))), 0.03)
        weight = np.minimum(1.0, _HUBER * scale / np.maximum(np.abs(off), 1e-9))[:, None] / scale**2
        gram = (slope * weight).T @ slope + np.eye(3) / freedom**2
        move = np.linalg.solve(gram, (slope * weight).T @ off + (prior - at) / freedom**2)
        at = at + np.clip(move, -0.5, 0.5)
        at[0] = min(at[0], log(_MAX_IDLE))
        if np.max(np.abs(move)) < 1e-5:
            break
    return Draw(idle=float(np.exp(at[0])), memory=float(np.exp(at[1])), arithmetic=float(np.exp(at[2])))


def _logs(draw: Draw) -> Array:
    return np.log([draw.idle, draw.memory, draw.arithmetic])


def _under_load(rows: Sequence[DrawnRow]) -> UnderLoad:
    shares = [row.share for row in rows if (row.measurement.concurrency or 0) >= _LOADED_USERS] or [
        row.share for row in rows
    ]
    low, median, high = (min(1.0, float(value)) for value in np.quantile(shares, [0.1, 0.5, 0.9]))
    return UnderLoad(median=median, low=low, high=high, rows=len(shares))


def _factors(rows: Sequence[DrawnRow], draws: dict[tuple[str, ...], Draw]) -> dict[str, float]:
    """Return the mean logarithm of measured over predicted power, for each key of `kernels_of`.

    The mean is over the curves with the same key. The mean is shrunk towards zero, as if one more curve had the value
    zero.
    """
    curves: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        if row.path in draws:
            curves[row.kernels, row.curve].append(log(row.share / watt_share(draws[row.path], row)))
    by_kernels: dict[str, list[float]] = defaultdict(list)
    for (kernels, _), off in curves.items():
        by_kernels[kernels].append(float(np.median(off)))
    return {kernels: sum(off) / (len(off) + 1) for kernels, off in by_kernels.items()}


def watt_share(draw: Draw, row: DrawnRow, factor: float = 1.0, seconds: float | None = None) -> float:
    """Return the share of board power that a power curve predicts for a row.

    `seconds` is the time of the step. If `seconds` is None, the measured time is used.
    """
    return float(draw.shares(Utilisation.of(row.roofline[None], np.array([seconds or row.seconds])), factor)[0])


UNSEEN: Final[dict[Unseen, Callable[[DrawnRow], str]]] = {
    "split": lambda row: row.curve,
    "model": lambda row: row.kernels,
    "accelerator": lambda row: row.path[1],
    "vendor": lambda row: row.path[0],
}
"""One function for each kind of held-out unit, which maps a row to the key of its unit. Rows with equal keys are held
out together."""
_FOLDS: Final = 10


def without_each(
    rows: Sequence[DrawnRow], unseen: Unseen, spreads: dict[Unseen, Logs] | None = None
) -> Iterator[tuple[PowerModel, list[DrawnRow]]]:
    """Hold out a tenth of the curves, models, accelerators or vendors at a time, and fit a model to the other rows.

    Yield each fitted model with the rows that were held out from its fit.
    """
    labels = sorted({UNSEEN[unseen](row) for row in rows})
    fold = {label: number % _FOLDS for number, label in enumerate(labels)}
    for number in sorted(set(fold.values())):
        kept = [row for row in rows if fold[UNSEEN[unseen](row)] != number]
        yield fit_power(kept, spreads), [row for row in rows if fold[UNSEEN[unseen](row)] == number]


def power_spreads(rows: Sequence[DrawnRow]) -> dict[Unseen, Logs]:
    """Return P10 and P90 of the ratio of measured to predicted watts, for each kind of held-out unit.

    The watts are predicted at the measured speed. The values are logarithms. The interval of a vendor is never narrower
    than that of an accelerator, and so on, because a few vendors can agree by chance.
    """
    found: dict[Unseen, Logs] = {}
    nearer = (0.0, 0.0)
    for unseen in get_args(Unseen):
        off = [
            log(row.share / predicted_share(model, row))
            for model, held in without_each(rows, unseen)
            for row in held
            # A curve counts as an unseen model if no other curve has its kernels.
            if unseen != "split" or row.kernels in model.factors
        ]
        low, high = np.quantile(off, [0.1, 0.9])
        found[unseen] = nearer = (min(float(low), nearer[0]), max(float(high), nearer[1]))
    return found


def predicted_share(model: PowerModel, row: DrawnRow, seconds: float | None = None) -> float:
    """Predict a row's share of board power at the given step time, or at the measured step time if none is given."""
    path = next(row.path[:length] for length in (2, 1, 0) if row.path[:length] in model.draws)
    return watt_share(model.draws[path], row, float(np.exp(model.factors.get(row.kernels, 0.0))), seconds)
