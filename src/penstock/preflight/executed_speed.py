"""How fast will it be as it really runs? The performance model, fed with formats as they are multiplied here."""

from dataclasses import dataclass, replace
from typing import Final

from penstock.errors import UnsupportedPrecision
from penstock.performance.calibration.efficiencies import Efficiencies
from penstock.performance.prediction.predict_deployment import Prediction, predict
from penstock.preflight.check import Preflight, Readiness
from penstock.preflight.predictions.weight_kernels import KernelClass

LOAD: Final = (1024, 1024, 32)
"""Prompt tokens, answer tokens and requests in flight of the figure shown; `penstock predict` asks others."""


@dataclass(frozen=True, kw_only=True)
class Speed:
    """A prediction, and what it would be if every format ran on units of its own."""

    prediction: Prediction
    if_native: Prediction | None
    """None where every format already does."""

    @property
    def lost_fraction(self) -> float | None:
        """Share of throughput that missing kernels cost."""
        if self.if_native is None:
            return None
        return 1 - self.prediction.output_tokens_per_s.value / self.if_native.output_tokens_per_s.value


def predicted_speed(answer: Preflight, efficiencies: Efficiencies) -> Speed | None:
    """Predict the standard load; None where it does not start, has no kernel, or nothing was measured on the device."""
    engine, part = answer.question.engine, answer.question.accelerator
    kernels = {group.kernel for group in answer.kernels}
    if answer.readiness is Readiness.BLOCKED or not answer.memory.fits:
        return None
    if kernels & {KernelClass.NONE, KernelClass.UNDETERMINED}:
        return None
    if engine not in efficiencies.engines(part.id):
        return None
    prediction = _predict(answer, efficiencies, executed=True)
    if prediction is None:
        return None
    model = answer.question.subject.model
    native = None if answer.executed_model is model else _predict(answer, efficiencies, executed=False)
    return Speed(prediction=prediction, if_native=native)


def _predict(answer: Preflight, efficiencies: Efficiencies, *, executed: bool) -> Prediction | None:
    placed = answer.memory.deployment
    if not executed:
        placed = replace(placed, model=answer.question.subject.model)
    prompt, output, requests = LOAD
    try:
        return predict(
            placed,
            answer.question.engine,
            input_tokens=prompt,
            output_tokens=output,
            concurrency=requests,
            efficiencies=efficiencies,
        )
    except UnsupportedPrecision:
        return None
