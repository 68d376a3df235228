"""What would a replica carry if requests never queued? A quick screen of many deployments before the simulator."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.fleet.deployment import Deployment
from penstock.performance.evidence.efficiencies import Efficiencies
from penstock.performance.memory.budget import fit
from penstock.performance.prediction.choose import BEST, predict_on
from penstock.performance.prediction.predict import Prediction, Range
from penstock.performance.prediction.stack import Stack
from penstock.performance.step.first_token import LoopLoad
from penstock.performance.step.work import PARTS, Array, ReplicaWork
from penstock.planning.asked.plan import Bucket
from penstock.planning.candidates.capacity import Capacity, cannot
from penstock.workload.slo import Slo

_MOST: Final = 4096
_PER_OCTAVE: Final = 16
"""Concurrencies tried per doubling: steps of 4%."""
_REFERENCE: Final = (1024, 256, 16)
"""Any load: what is read off the prediction (engine, slowdowns, interval) does not depend on it."""


@dataclass(slots=True)
class QueuelessScreen:
    """Judges by the largest closed loop whose average step and first token stay within the SLO.

    It ignores queueing, so it is optimistic near saturation; whoever uses it says so. One object remembers what it
    compiled: a deployment is compiled once for all its length buckets. The engine is the one `predict` would choose for
    that very split, so that what a plan says of it does not hang on which other splits are considered.
    """

    efficiencies: Efficiencies
    _compiled: dict[tuple[object, ...], "_Compiled"]

    def __init__(self, efficiencies: Efficiencies) -> None:
        self.efficiencies, self._compiled = efficiencies, {}

    def __call__(self, deployment: Deployment, bucket: Bucket, slo: Slo) -> Capacity:
        """Return the rate of the largest loop that keeps the SLO."""
        memory = fit(deployment, bucket.context_tokens)
        if not memory.fits:
            return cannot(memory.obstacle.reason if memory.obstacle else "does not fit")
        compiled = self._compile(deployment)
        limit = memory.capacity.concurrent_requests if memory.capacity is not None else None
        together = _concurrencies(min(limit or _MOST, _MOST))
        tpot_s, ttft_s, prefill = compiled.times(together, bucket)
        kept = np.flatnonzero(_within(tpot_s, ttft_s, bucket, slo))
        if not kept.size:
            return cannot("misses the SLO with one request alone")
        best = int(kept[-1])
        rate = float(together[best] / tpot_s[best] / bucket.output_tokens)
        seen = compiled.seen
        return Capacity(
            requests_per_s=Range(
                value=rate,
                low=rate * seen.tpot_s.value / seen.tpot_s.high,
                high=rate * seen.tpot_s.value / seen.tpot_s.low,
            ),
            tier=seen.tier,
            grounds=f"{seen.measured_engine}, from {' > '.join(seen.borrowed_from)}; "
            f"closed loop of {together[best]:,.0f}, no queue",
            prefill_fraction=float(prefill[best]),
            measured_engine=seen.measured_engine,
        )

    def measured_engine_of(self, deployment: Deployment) -> str:
        """Whose measurements speak for a deployment."""
        return self._compile(deployment).seen.measured_engine

    def _compile(self, deployment: Deployment) -> "_Compiled":
        part, model, split = deployment.accelerator, deployment.model, deployment.parallelism
        key = (model.name, model.quantisation, part.id, split, deployment.cache_dtype, deployment.engine)
        if key not in self._compiled:
            seen = predict_on(
                model,
                part,
                split,
                cache_dtype=deployment.cache_dtype,
                measured_engine=BEST,
                load=_REFERENCE,
                efficiencies=self.efficiencies,
            )
            self._compiled[key] = _Compiled.of(deployment, seen)
        return self._compiled[key]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compiled:
    """A deployment's work, and seconds per unit of it on the stack that speaks for it."""

    work: ReplicaWork
    stack: Stack
    seen: Prediction

    @staticmethod
    def of(deployment: Deployment, seen: Prediction) -> "_Compiled":
        if seen.stack is None:
            raise LookupError("the speed of light has no stack")
        return _Compiled(work=ReplicaWork(deployment), stack=seen.stack, seen=seen)

    def times(self, together: Array, bucket: Bucket) -> tuple[Array, Array, Array]:
        """Seconds per token, seconds to the first one, and the share of prompts in a step."""
        loop = LoopLoad(
            users=together,
            input_tokens=bucket.input_tokens,
            output_tokens=bucket.output_tokens,
            batched_tokens=self.work.deployment.batched_tokens,
        )
        light = self.work.light(loop.average())
        step_s = light @ self.stack.slowdowns
        prefill = light[:, PARTS.index("prefill")] * self.stack.slowdowns[PARTS.index("prefill")] / step_s
        return step_s, self.stack.first_token_s(self.work, loop), prefill


def _concurrencies(most: int) -> Array:
    octaves = np.log2(max(1, most))
    return np.unique(np.round(2 ** np.linspace(0, octaves, max(1, int(octaves * _PER_OCTAVE)) + 1)))


def _within(tpot_s: Array, ttft_s: Array, bucket: Bucket, slo: Slo) -> NDArray[np.bool_]:
    after = bucket.output_tokens - 1
    between_s = tpot_s if after else np.full_like(tpot_s, np.nan)
    kept = slo.met(ttft_s=ttft_s, tpot_s=between_s, e2e_s=ttft_s + tpot_s * after)
    # More requests never make a step shorter: what follows the first miss is missed too.
    return np.logical_and.accumulate(kept)
