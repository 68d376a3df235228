"""Fits the acceptance of drafted tokens from runs with and without drafts.

A pair is a run with drafts and a run without drafts that have the same setup, lengths and load. The step model gives
the extra work of the drafting step. Two fitted values explain the rest of the time difference. One power per model
raises the published acceptance of each drafted token to the acceptance in the benchmarks. One factor per engine gives
the extra time of a drafting step. Only the powers are kept: `draft_evidence` predicts what is left.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from penstock.catalog.measurement import Measurement
from penstock.performance.calibration.acceptance_curves import (
    AcceptanceCurves,
    drafter_key,
)
from penstock.performance.calibration.acceptance_curves import (
    from_document as curves_from_document,
)
from penstock.performance.calibration.acceptance_curves import (
    to_document as curves_document,
)
from penstock.performance.calibration.benchmark_harness import drafted_tokens
from penstock.performance.calibration.first_token_waits import measured_loop
from penstock.performance.calibration.measured_runs import AcceleratorOf, ModelOf, measured_deployment, setup_of
from penstock.performance.similarity.cases import labels_of_run, shape_of
from penstock.performance.step.drafting_step import drafting_step
from penstock.performance.step.first_token import LoopLoad
from penstock.performance.step.step_work import Array, ReplicaWork

_TRIED: Final = np.geomspace(0.25, 8.0, 21)
_FINE: Final = np.geomspace(0.25, 8.0, 301)
"""Powers of the published acceptance. The step model is evaluated at the first, and interpolated at the second."""
_SEEN_HALF: Final = 2.0
"""Number of measured curves at which a fitted value is shrunk by one half. With this number of curves, a model's power
is halfway between the pooled value and the value fitted to the model alone."""
_ROUNDS: Final = 5
_BROKEN: Final = "drafter_broken"
"""Flag of a row with next to no accepted drafts, because the drafter was defective."""


@dataclass(frozen=True, kw_only=True)
class DraftModel:
    """Acceptance of drafted tokens, by model and draft length."""

    curves: AcceptanceCurves
    pooled: float
    """Power for a model that was not measured with drafts."""
    powers: Mapping[str, float] = field(default_factory=dict)
    """Power of each model's acceptance in the benchmarks, by `drafter_key`."""
    pairs: Mapping[str, int] = field(default_factory=dict)
    """Number of pairs for each model, by `drafter_key`."""

    def accepted_tokens(self, key: str, drafted: int) -> float:
        """Return the expected tokens of a step, including the model's own token."""
        return self.curves.accepted_tokens(key, drafted, self.powers.get(key, self.pooled))


@dataclass(frozen=True, kw_only=True, eq=False)
class DraftedRow:
    """Measured run with drafts, and the gain from drafts that the step model predicts at each power."""

    measurement: Measurement
    work: ReplicaWork
    slowdowns: Array
    """Slowdowns of the setup without drafts."""
    words: Mapping[str, str]
    drafted: int
    gains: Array
    """Logarithm of the predicted ratio of the time per token with drafts to the time per token without drafts. There is
    one entry for each power in `_TRIED`."""
    pair: Measurement | None
    """The matching run without drafts. None if no matching run was measured."""

    @property
    def shape(self) -> str:
        """Return the shape name of the model."""
        return self.words["family"]

    @property
    def key(self) -> str:
        """Return the key of the model's drafter."""
        return drafter_key(self.shape, self.measurement.drafted)

    @property
    def curve(self) -> tuple[str, ...]:
        """Return the key of the setup without its draft length."""
        return tuple(self.words[word] for word in ("family", "part", "engine", "weights", "split"))

    def log_gain(self, power: float) -> float:
        """Return the predicted logarithm of the gain at a power, interpolated between the entries of `gains`."""
        return float(np.interp(np.log(power), np.log(_TRIED), self.gains))

    def roofline(self, accepted_tokens: float) -> Array:
        """Return the work of the run's average step, divided by the tokens that the step yields per request."""
        loop = replace(measured_loop(self.measurement)[0], drafted_tokens=self.drafted)
        return np.asarray(drafting_step(self.work, loop, accepted_tokens)[0] / accepted_tokens)

    @property
    def plain_s(self) -> float:
        """Return the seconds per token of the run without drafts, as the slowdowns of the setup predict them."""
        return float((self.work.roofline(measured_loop(self.measurement)[0].average()) @ self.slowdowns)[0])

    @property
    def measured_log_gain(self) -> float:
        """Return the logarithm of the ratio of two measured times per token: with drafts over without drafts."""
        if self.pair is None or not self.pair.tpot_s or not self.measurement.tpot_s:
            raise LookupError(f"{self.measurement.id}: no matching run without drafts states a time per output token")
        return float(np.log(self.measurement.tpot_s / self.pair.tpot_s))


SlowdownsOf = Callable[[Measurement, ReplicaWork], Array]


def drafted_rows(
    measurements: Sequence[Measurement],
    model_of: ModelOf,
    accelerator_of: AcceleratorOf,
    slowdowns_of: SlowdownsOf,
    curves: AcceptanceCurves,
) -> Iterator[DraftedRow]:
    """Yield every single-engine run with drafts, each paired with a run without drafts.

    The paired run has the same source, setup, lengths and load. If several runs match, the run with the closest date is
    paired. If no run matches, `pair` is None. Runs with a defective drafter or an unknown draft length are left out.
    """
    plain: dict[tuple[object, ...], list[Measurement]] = defaultdict(list)
    serving = [row for row in measurements if row.scenario == "online" and row.tpot_s and row.concurrency]
    for row in serving:
        if not row.drafted:
            plain[_cell(row)].append(row)
    compiled: dict[tuple[object, ...], tuple[ReplicaWork, Array]] = {}
    for row in serving:
        drafted = drafted_tokens(row)
        if not drafted or row.twin or _BROKEN in row.flags:
            continue
        if setup_of(row) not in compiled:
            work = ReplicaWork(measured_deployment(row, model_of, accelerator_of))
            compiled[setup_of(row)] = work, slowdowns_of(row, work)
        work, slowdowns = compiled[setup_of(row)]
        key = drafter_key(shape_of(work.deployment.model), row.drafted)
        tokens = [curves.accepted_tokens(key, drafted, float(power)) for power in _TRIED]
        beside = plain.get(_cell(row), [])
        yield DraftedRow(
            measurement=row,
            work=work,
            slowdowns=slowdowns,
            words=labels_of_run(work.deployment, row.engine, f"{row.drafted}{drafted}"),
            drafted=drafted,
            gains=_gains(work, slowdowns, measured_loop(row)[0], drafted, tokens),
            pair=min(beside, key=lambda other: abs(other.date - row.date), default=None),
        )


def _cell(row: Measurement) -> tuple[object, ...]:
    lengths = round(row.input_tokens), round(row.output_tokens)
    return (*setup_of(row)[:-1], row.stack, row.source, row.concurrency, *lengths)


def _gains(work: ReplicaWork, slowdowns: Array, loop: LoopLoad, drafted: int, accepted: Sequence[float]) -> Array:
    plain_s = float((work.roofline(loop.average()) @ slowdowns)[0])
    drafting = replace(loop, drafted_tokens=drafted)
    seconds = [float((drafting_step(work, drafting, tokens) @ slowdowns)[0]) / tokens for tokens in accepted]
    return np.asarray(np.log(seconds) - np.log(plain_s))


def fit_drafts(rows: Sequence[DraftedRow], curves: AcceptanceCurves) -> DraftModel:
    """Fit powers by least absolute error and engine factors by medians, in alternating rounds.

    A model's power is shrunk towards the pooled value if the model has few measured curves. An engine's factor is
    shrunk towards one if the engine has few measured curves.
    """
    paired = [row for row in rows if row.pair is not None]
    measured = np.array([row.measured_log_gain for row in paired])
    by_power = np.array([np.interp(np.log(_FINE), np.log(_TRIED), row.gains) for row in paired])
    keys, engines = [row.key for row in paired], [row.measurement.engine for row in paired]
    beyond = dict.fromkeys(engines, 0.0)
    chosen = dict.fromkeys(keys, len(_FINE) // 2)
    pooled = len(_FINE) // 2
    for _ in range(_ROUNDS):
        off = measured[:, None] - by_power - np.array([[beyond[engine]] for engine in engines])
        pooled = int(np.argmin(np.abs(off).mean(axis=0)))
        for key in chosen:
            own = np.array([name == key for name in keys])
            curves_seen = len({row.curve for row in paired if row.key == key})
            best = int(np.argmin(np.abs(off[own]).mean(axis=0)))
            chosen[key] = round((curves_seen * best + _SEEN_HALF * pooled) / (curves_seen + _SEEN_HALF))
        left = measured - by_power[np.arange(len(paired)), [chosen[key] for key in keys]]
        for engine in beyond:
            own = np.array([name == engine for name in engines])
            curves_seen = len({row.curve for row in paired if row.measurement.engine == engine})
            beyond[engine] = float(np.median(left[own])) * curves_seen / (curves_seen + _SEEN_HALF)
    return DraftModel(
        curves=curves,
        pooled=float(_FINE[pooled]),
        powers={key: float(_FINE[at]) for key, at in chosen.items()},
        pairs={key: keys.count(key) for key in chosen},
    )


def to_document(model: DraftModel) -> dict[str, Any]:
    """Return the model as a document of plain values, rounded to three or four decimals."""
    return {
        "acceptance": curves_document(model.curves),
        "pooled": round(model.pooled, 4),
        "powers": {key: round(value, 4) for key, value in sorted(model.powers.items())},
        "pairs": dict(sorted(model.pairs.items())),
    }


def from_document(document: Mapping[str, Any]) -> DraftModel:
    """Parse the document that `to_document` returns."""
    return DraftModel(
        curves=curves_from_document(document["acceptance"]),
        pooled=document["pooled"],
        powers=document["powers"],
        pairs=document["pairs"],
    )
