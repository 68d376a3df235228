"""Corrects the prediction of two pools by the published runs of exactly this setup.

The rules are those of a single engine: at a measured load the answer is the newest measurement, and between measured
loads the difference between measurement and prediction is interpolated.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.catalog.measurement import Measurement
from penstock.performance.calibration.error_summary import Logs
from penstock.performance.disaggregated.phase_factors import PhaseSpread
from penstock.performance.prediction.measured_load import (
    MAX_UNEXPLAINED,
    CorrectedTime,
    RequestedLoad,
    measured_spread,
)
from penstock.performance.prediction.serving_stack import Tier
from penstock.performance.similarity.cases import Cases, noise_of_sources
from penstock.performance.similarity.own_measurements import (
    FIRST_TOKEN,
    TIME_PER_TOKEN,
    DifferenceSpread,
    OwnMeasurements,
    Rows,
    newest_of_each_load,
)
from penstock.performance.similarity.posterior import Measured
from penstock.performance.similarity.slowdowns import Loads
from penstock.performance.step.step_work import Array

_CURVE = 3
"""Minimum number of measured loads between which a value is interpolated."""


class PoolsSpeed(NamedTuple):
    """Speeds of two pools, with one entry per load."""

    tpot_s: Array
    tokens_per_s: Array
    ttft_s: Array


class CorrectedPools(NamedTuple):
    """Correction of each speed at one load."""

    tpot: CorrectedTime
    rate: CorrectedTime
    ttft: CorrectedTime


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasuredPools:
    """Published runs of one setup: both pools, the engine and the drafts."""

    runs: Measured
    tokens_per_s: Array
    """Output tokens per second of both pools."""

    @classmethod
    def of(cls, rows: Sequence[Measurement]) -> "MeasuredPools":
        """Return published runs as columns."""
        cases = Cases(
            roofline=np.zeros((len(rows), 0)),
            words={},
            users=np.array([row.concurrency for row in rows], np.float64),
            input_tokens=np.array([row.input_tokens for row in rows], np.float64),
            output_tokens=np.array([row.output_tokens for row in rows], np.float64),
            day=np.array([row.date.toordinal() for row in rows], np.float64),
            undated=np.array([row.dated == "up_to" for row in rows], np.bool_),
            source_noise=noise_of_sources([row.source for row in rows]),
        )
        return cls(
            runs=Measured(
                cases=cases,
                seconds=np.array([row.tpot_s for row in rows], np.float64),
                first_s=np.array([np.nan if row.ttft_s is None else row.ttft_s for row in rows], np.float64),
                median_s=np.full(len(rows), np.nan),
                texts={},
            ),
            tokens_per_s=np.array([row.output_tokens_per_s or np.nan for row in rows], np.float64),
        )

    def correct(
        self,
        load: RequestedLoad,
        predict: Callable[[Loads], PoolsSpeed],
        far: PhaseSpread,
        repeats: tuple[Logs, Logs],
        tier: Tier,
    ) -> CorrectedPools:
        """Return the corrections at a load.

        `predict` returns the predicted speeds at loads. `far` has the errors where nothing was measured near, and
        `repeats` those of a repeated time per token and of a repeated time to first token.
        """
        every = newest_of_each_load(self.runs.cases, self.runs.seconds, self._all, self._day)
        cases = self.runs.cases.take(every)
        said = predict(tuple(zip(cases.users, cases.input_tokens, cases.output_tokens, strict=True)))
        wanted = (
            (self.runs.seconds, said.tpot_s, TIME_PER_TOKEN, far.tpot, repeats[0]),
            (self.tokens_per_s, said.tokens_per_s, TIME_PER_TOKEN, far.rate, repeats[0]),
            (self.runs.first_s, said.ttft_s, FIRST_TOKEN, far.ttft, repeats[1]),
        )
        return CorrectedPools(
            *(
                self._correct(load, every, values, predicted, spread, away, repeated, tier)
                for values, predicted, spread, away, repeated in wanted
            )
        )

    def _correct(
        self,
        load: RequestedLoad,
        every: Rows,
        values: Array,
        predicted: Array,
        spread: DifferenceSpread,
        away: Logs,
        repeats: Logs,
        tier: Tier,
    ) -> CorrectedTime:
        known: npt.NDArray[np.bool_] = np.isfinite(values[every])
        rows, log_values = every[known], np.log(values[every[known]])
        own = OwnMeasurements(
            loads=self.runs.cases.take(rows).log_load, log_seconds=log_values, drift=0 * log_values, spread=spread
        )
        factor = float(own.interpolate(load.logs, log_values - np.log(predicted[known]))[0])
        if load.is_among(own.loads):
            finite = self._all[np.isfinite(values)]
            seen = measured_spread(replace(self.runs, seconds=values), finite, load, self._day, repeats)
            return CorrectedTime(log_factor=factor, spread=seen, tier="measured")
        left = float(own.unexplained_share(load.logs)[0])
        low, high = (float(np.hypot(a * np.sqrt(left), b)) for a, b in zip(away, repeats, strict=True))
        near = len(own) >= _CURVE and left <= MAX_UNEXPLAINED
        return CorrectedTime(log_factor=factor, spread=(-low, high), tier="interpolated" if near else tier)

    @property
    def _all(self) -> Rows:
        return np.arange(len(self.runs.seconds))

    @property
    def _day(self) -> float:
        return float(self.runs.cases.day.max())
