"""What would a replica carry if requests never queued? A quick screen before the simulator, and its upper neighbour."""

from collections.abc import Callable
from typing import Final

from penstock.performance.choose import predict_on
from penstock.performance.deployment import Deployment
from penstock.performance.predict import Efficiencies, Prediction, Range
from penstock.planning.capacity import Bucket, Capacity, CapacityOf, cannot
from penstock.workload.slo import Slo

_TOLERANCE: Final = 0.02
_MOST: Final = 4096


def closed_loop_capacity(efficiencies: Efficiencies) -> CapacityOf:
    """Judge by the largest closed loop whose average step and first token stay within the SLO.

    It ignores queueing, so it is optimistic near saturation; the plan says so wherever it was used.
    """

    def capacity(deployment: Deployment, bucket: Bucket, slo: Slo) -> Capacity:
        def at(concurrency: int) -> Prediction:
            return predict_on(
                deployment.model,
                deployment.accelerator,
                deployment.parallelism,
                cache_dtype=deployment.cache_dtype,
                engine="best",
                load=(bucket.input_tokens, bucket.output_tokens, concurrency),
                efficiencies=efficiencies,
            )

        alone = at(1)
        if not alone.memory.fits:
            return cannot("does not fit")
        if not _within(alone, bucket, slo):
            return cannot("misses the SLO with one request")
        best = _largest(at, alone, bucket, slo)
        return Capacity(
            requests_per_s=_rate(best, bucket),
            tier=best.tier,
            grounds=f"{best.engine} on {best.borrowed_from[-1] if best.borrowed_from else 'nothing measured'}, "
            f"closed loop of {best.running:,.0f}, no queue",
            prefill_fraction=_prefill(best),
        )

    return capacity


def _largest(at: Callable[[int], Prediction], alone: Prediction, bucket: Bucket, slo: Slo) -> Prediction:
    """Bisect the concurrency; more requests never make a step shorter."""
    low, high, best = 1, _MOST, alone
    widest = at(_MOST)
    if _within(widest, bucket, slo):
        return widest
    high = min(high, int(widest.running) + 1)
    while high - low > max(1, low * _TOLERANCE):
        middle = (low + high) // 2
        tried = at(middle)
        if _within(tried, bucket, slo):
            low, best = middle, tried
        else:
            high = middle
    return best


def _within(prediction: Prediction, bucket: Bucket, slo: Slo) -> bool:
    first_s = prediction.ttft_s.value if prediction.ttft_s is not None else 0.0
    whole_s = first_s + prediction.tpot_s.value * (bucket.output_tokens - 1)
    seen = ((prediction.tpot_s.value, slo.tpot_s), (first_s, slo.ttft_s), (whole_s, slo.e2e_s))
    return all(limit is None or value <= limit for value, limit in seen)


def _rate(prediction: Prediction, bucket: Bucket) -> Range:
    return prediction.output_tokens_per_s.scaled(1 / bucket.output_tokens)


def _prefill(prediction: Prediction) -> float | None:
    whole = prediction.step.seconds
    return prediction.step.parts_s.get("prefill", 0.0) / whole if whole else None
