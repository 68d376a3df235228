"""Fits the acceptance of drafted tokens from runs with and without multi-token prediction.

A pair is a run with drafts and a run without drafts that have the same setup, lengths and load. The step model gives
the extra work of the drafting step. Two fitted values explain the rest of the time difference. One acceptance per model
determines how many tokens a step yields. One factor per engine gives the extra time of a drafting step.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np

from penstock.catalog.measurement import Measurement
from penstock.performance.calibration.benchmark_harness import drafted_tokens
from penstock.performance.calibration.first_token_waits import measured_loop
from penstock.performance.calibration.measured_runs import AcceleratorOf, ModelOf, measured_deployment
from penstock.performance.similarity.cases import shape_of
from penstock.performance.step.drafting_step import drafting_step, expected_tokens
from penstock.performance.step.first_token import LoopLoad
from penstock.performance.step.step_work import Array, ReplicaWork

_TRIED: Final = np.linspace(0.2, 0.95, 16)
_FINE: Final = np.linspace(0.2, 0.95, 301)
_SEEN_HALF: Final = 2.0
"""Number of measured curves at which a fitted value is shrunk by one half. With this number of curves, a model's
acceptance is halfway between the pooled value and the value fitted to the model alone. An engine's factor is halfway
between one and the value fitted to the engine alone."""
_ROUNDS: Final = 5

UnseenDraft = Literal["split", "model"]
"""The part of a setup that was never measured with drafts. The unmeasured part is the split (tp, dp, ep) if the model
was measured with drafts in another split, else the model itself."""


@dataclass(frozen=True, kw_only=True)
class DraftModel:
    """Fitted acceptance for each model shape, factor for each engine, and held-out errors."""

    pooled: float
    """Acceptance for a model that was not measured with drafts."""
    acceptance: Mapping[str, float] = field(default_factory=dict)
    engines: Mapping[str, float] = field(default_factory=dict)
    """Logarithm of each engine's factor: the time of a drafting step over the time predicted from the work of the
    step."""
    spreads: Mapping[UnseenDraft, tuple[float, float]] = field(default_factory=dict)
    """P10 and P90 of the ratio of measured to predicted gain, as logarithms. The key is the part that was held out:
    split or model."""
    pairs: Mapping[str, int] = field(default_factory=dict)
    """Number of pairs for each model shape."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DraftedRow:
    """Measured run with drafts, and the gain from drafts that the step model predicts at each acceptance."""

    measurement: Measurement
    shape: str
    curve: str
    drafted: int
    gains: Array
    """Logarithm of the predicted ratio of the time per token with drafts to the time per token without drafts. There is
    one entry for each acceptance in `_TRIED`."""
    pair: Measurement | None
    """The matching run without drafts. None if no matching run was measured."""

    def log_gain(self, acceptance: float) -> float:
        """Return the predicted logarithm of the gain at an acceptance, interpolated between the entries of `gains`."""
        return float(np.interp(acceptance, _TRIED, self.gains))

    @property
    def measured_log_gain(self) -> float:
        """Return the logarithm of the ratio of two measured times per token: with drafts over without drafts."""
        if self.pair is None or not self.pair.tpot_s or not self.measurement.tpot_s:
            raise LookupError(f"{self.measurement.id}: no matching run without drafts states a time per output token")
        return float(np.log(self.measurement.tpot_s / self.pair.tpot_s))


SlowdownsOf = Callable[[Measurement, ReplicaWork], Array]


def drafted_rows(
    measurements: Sequence[Measurement], model_of: ModelOf, accelerator_of: AcceleratorOf, slowdowns_of: SlowdownsOf
) -> Iterator[DraftedRow]:
    """Yield every single-engine run with drafts, each paired with a run without drafts.

    The paired run has the same source, setup, lengths and load. If several runs match, the run with the closest date is
    paired. If no run matches, `pair` is None.
    """
    plain: dict[tuple[object, ...], list[Measurement]] = defaultdict(list)
    serving = [row for row in measurements if row.scenario == "online" and row.tpot_s and row.concurrency]
    for row in serving:
        if not row.drafted:
            plain[_cell(row)].append(row)
    compiled: dict[tuple[object, ...], tuple[ReplicaWork, Array]] = {}
    for row in serving:
        if not row.drafted:
            continue
        if _setup(row) not in compiled:
            work = ReplicaWork(measured_deployment(row, model_of, accelerator_of))
            compiled[_setup(row)] = work, slowdowns_of(row, work)
        work, slowdowns = compiled[_setup(row)]
        shape = shape_of(work.deployment.model)
        beside = plain.get(_cell(row), [])
        yield DraftedRow(
            measurement=row,
            shape=shape,
            curve=f"{shape} {row.weights} {row.accelerator} {row.engine} tp{row.tp} dp{row.dp} ep{int(row.ep)}",
            drafted=drafted_tokens(row),
            gains=_gains(work, slowdowns, measured_loop(row)[0], drafted_tokens(row)),
            pair=min(beside, key=lambda other: abs(other.date - row.date), default=None),
        )


def _setup(row: Measurement) -> tuple[object, ...]:
    return row.model, row.weights, row.accelerator, row.engine, row.tp, row.dp, row.ep, row.kv


def _cell(row: Measurement) -> tuple[object, ...]:
    lengths = round(row.input_tokens), round(row.output_tokens)
    return (*_setup(row)[:-1], row.stack, row.source, row.concurrency, *lengths)


def _gains(work: ReplicaWork, slowdowns: Array, loop: LoopLoad, drafted: int) -> Array:
    plain_s = float((work.roofline(loop.average()) @ slowdowns)[0])
    return np.array([np.log(drafting_s(work, slowdowns, loop, drafted, tried) / plain_s) for tried in _TRIED])


def drafting_s(work: ReplicaWork, slowdowns: Array, loop: LoopLoad, drafted: int, acceptance: float) -> float:
    """Return the seconds per token of a closed-loop run with drafts, before the engine's factor is applied."""
    accepted = expected_tokens(acceptance, drafted)
    drafting = LoopLoad(
        users=loop.users,
        input_tokens=loop.input_tokens,
        output_tokens=loop.output_tokens,
        batched_tokens=loop.batched_tokens,
        drafted_tokens=drafted,
    )
    return float((drafting_step(work, drafting, accepted) @ slowdowns)[0]) / accepted


def fit_drafts(
    rows: Iterable[DraftedRow], spreads: Mapping[UnseenDraft, tuple[float, float]] | None = None
) -> DraftModel:
    """Fit acceptances by least absolute error and engine factors by medians, in alternating rounds.

    A model's acceptance is shrunk towards the pooled value if the model has few measured curves. An engine's factor is
    shrunk towards one if the engine has few measured curves.
    """
    paired = [row for row in rows if row.pair is not None]
    measured = np.array([row.measured_log_gain for row in paired])
    by_acceptance = np.array([np.interp(_FINE, _TRIED, row.gains) for row in paired])
    shapes, engines = ([row.shape for row in paired], [row.measurement.engine for row in paired])
    beyond = dict.fromkeys(engines, 0.0)
    chosen = dict.fromkeys(shapes, len(_FINE) // 2)
    pooled = len(_FINE) // 2
    for _ in range(_ROUNDS):
        off = measured[:, None] - by_acceptance - np.array([[beyond[engine]] for engine in engines])
        pooled = int(np.argmin(np.abs(off).mean(axis=0)))
        for shape in chosen:
            own = np.array([name == shape for name in shapes])
            curves = len({row.curve for row in paired if row.shape == shape})
            best = int(np.argmin(np.abs(off[own]).mean(axis=0)))
            chosen[shape] = round((curves * best + _SEEN_HALF * pooled) / (curves + _SEEN_HALF))
        left = measured - by_acceptance[np.arange(len(paired)), [chosen[shape] for shape in shapes]]
        for engine in beyond:
            own = np.array([name == engine for name in engines])
            curves = len({row.curve for row in paired if row.measurement.engine == engine})
            beyond[engine] = float(np.median(left[own])) * curves / (curves + _SEEN_HALF)
    return DraftModel(
        pooled=float(_FINE[pooled]),
        acceptance={shape: float(_FINE[at]) for shape, at in chosen.items()},
        engines=beyond,
        spreads=spreads or {},
        pairs={shape: shapes.count(shape) for shape in chosen},
    )


def predicted_log_gain(model: DraftModel, row: DraftedRow) -> float:
    """Predict the logarithm of the ratio of the time per token with drafts to the time per token without drafts."""
    acceptance = model.acceptance.get(row.shape, model.pooled)
    return row.log_gain(acceptance) + model.engines.get(row.measurement.engine, 0.0)


_FOLDS: Final = 10


def without_each_draft(
    rows: Sequence[DraftedRow],
    unseen: UnseenDraft,
    spreads: Mapping[UnseenDraft, tuple[float, float]] | None = None,
) -> Iterator[tuple[DraftModel, list[DraftedRow]]]:
    """Hold out a tenth of the curves or models at a time, and fit a model to the other rows.

    Yield each fitted model with the rows that were held out from its fit.
    """
    labels = [row.curve if unseen == "split" else row.shape for row in rows]
    fold = {label: number % _FOLDS for number, label in enumerate(sorted(set(labels)))}
    for number in sorted(set(fold.values())):
        kept = [row for row, label in zip(rows, labels, strict=True) if fold[label] != number]
        held = [row for row, label in zip(rows, labels, strict=True) if fold[label] == number]
        yield fit_drafts(kept, spreads), held


def draft_spreads(rows: Sequence[DraftedRow]) -> dict[UnseenDraft, tuple[float, float]]:
    """Return P10 and P90 of the logarithm of measured over predicted gain, with each split or each model held out."""
    found: dict[UnseenDraft, tuple[float, float]] = {}
    kinds: tuple[UnseenDraft, ...] = ("split", "model")
    for unseen in kinds:
        off = [
            row.measured_log_gain - predicted_log_gain(model, row)
            for model, held in without_each_draft(rows, unseen)
            for row in held
            if row.pair is not None
        ]
        low, high = np.quantile(off, [0.1, 0.9])
        found[unseen] = float(low), float(high)
    return found


def to_document(model: DraftModel) -> dict[str, Any]:
    """Return the model as a document of plain values, rounded to four decimals."""
    return {
        "pooled": round(model.pooled, 4),
        "acceptance": {shape: round(value, 4) for shape, value in sorted(model.acceptance.items())},
        "engines": {engine: round(value, 4) for engine, value in sorted(model.engines.items())},
        "spreads": {name: [round(value, 4) for value in span] for name, span in model.spreads.items()},
        "pairs": dict(sorted(model.pairs.items())),
    }


def from_document(document: Mapping[str, Any]) -> DraftModel:
    """Parse the document that `to_document` returns."""
    return DraftModel(
        pooled=document["pooled"],
        acceptance=document["acceptance"],
        engines=document["engines"],
        spreads={name: (span[0], span[1]) for name, span in document["spreads"].items()},
        pairs=document["pairs"],
    )
