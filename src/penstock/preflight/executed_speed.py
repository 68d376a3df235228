"""Predicts the speed of a launch from the formats that the kernels multiply."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.catalog.accelerator import Accelerator
from penstock.errors import DeploymentError, UnsupportedPrecision
from penstock.model import ModelSpec
from penstock.performance.calibration.draft_acceptance import DraftModel
from penstock.performance.calibration.efficiencies import Efficiencies
from penstock.performance.prediction.multi_token_prediction import multi_token_prediction
from penstock.performance.prediction.predict_deployment import Prediction, Range, predict
from penstock.performance.prediction.speculation import Speculation
from penstock.preflight.facts.derive_facts import chip_of
from penstock.preflight.facts.drafting import drafting_of
from penstock.preflight.launch_costs import LaunchCosts, launch_costs
from penstock.preflight.predictions.weight_kernels import KernelClass, emulation_sentence, predict_kernels
from penstock.preflight.preflight_result import Preflight, Readiness
from penstock.preflight.rules.condition import Unknown

LOAD: Final = (1024, 1024, 32)
"""Prompt tokens, answer tokens and concurrent requests of the predicted load.

`penstock predict` accepts other loads.
"""


@dataclass(frozen=True, kw_only=True)
class Speed:
    """A predicted speed, and the predicted speed if every weight format had native kernels."""

    prediction: Prediction
    if_native: Prediction | None
    """The prediction with native kernels for every format, or None if every format already has native kernels."""
    costs: LaunchCosts
    """The settings of the launch that slow it down."""

    @property
    def output_tokens_per_s(self) -> Range:
        """The predicted throughput of this launch, with the cost of its settings."""
        return self.costs.slow_down(self.prediction.output_tokens_per_s)

    @property
    def lost_fraction(self) -> float | None:
        """Fraction of throughput lost because native kernels are missing.

        The fraction is None if no native kernel is missing.
        """
        if self.if_native is None:
            return None
        return 1 - self.prediction.output_tokens_per_s.value / self.if_native.output_tokens_per_s.value


def undetermined_speed(answer: Preflight) -> str | None:
    """Say why the speed of a launch that runs is not known, or return None."""
    if answer.readiness is Readiness.BLOCKED or answer.measured_as_asked:
        return None
    return emulation_sentence(answer.kernels, answer.question.engine, answer.question.accelerator.id)


def emulated_speed(model: ModelSpec, accelerator: Accelerator, table: Mapping[str, Any]) -> str | None:
    """Say why the speed of a model is not known if vLLM emulates its weights, or return None. No launch is needed."""
    platform = {"amd": "rocm", "nvidia": "cuda"}.get(accelerator.vendor, "other")
    chip = chip_of(accelerator.compute_target) or Unknown("no compiler target")
    kernels = predict_kernels(model, {"engine": "vllm", "chip": chip, "platform": platform}, table)
    return emulation_sentence(kernels, "vllm", accelerator.id)


def predicted_speed(
    answer: Preflight, efficiencies: Efficiencies, table: Mapping[str, Any], drafts: Callable[[], DraftModel]
) -> Speed | None:
    """Predict the speed of the launch under the load `LOAD`. `table` has the time that each setting costs.

    `drafts` loads the measured acceptance of drafted tokens. Return None if the launch is blocked or does not fit, if a
    kernel is missing, unknown or emulated, or if the accelerator has no measurements with this engine.
    """
    engine, accelerator = answer.question.engine, answer.question.accelerator
    kernels = {group.kernel for group in answer.kernels}
    if answer.readiness is Readiness.BLOCKED or not answer.memory.fits:
        return None
    # Measurements with this engine include its kernels, even if it was not read which kernels those are.
    if KernelClass.NONE in kernels or (KernelClass.UNDETERMINED in kernels and not answer.measured_as_asked):
        return None
    if undetermined_speed(answer) is not None:
        return None
    if engine not in efficiencies.engines(accelerator.id):
        return None
    speculation = _speculation(answer, drafts)
    prediction = _predict(answer, efficiencies, speculation, executed=True)
    if prediction is None:
        return None
    model = answer.question.subject.model
    native = None if answer.executed_model is model else _predict(answer, efficiencies, speculation, executed=False)
    return Speed(prediction=prediction, if_native=native, costs=launch_costs(answer, prediction, table))


def _speculation(answer: Preflight, drafts: Callable[[], DraftModel]) -> Speculation | None:
    """Return how the checkpoint's own layers draft in this launch, or None if nothing that was measured drafts."""
    found = drafting_of(answer.launch)
    if found is None or not found.own_layers or not found.tokens:
        return None
    try:
        return multi_token_prediction(answer.question.subject.model, drafts(), drafted_tokens=found.tokens)
    except DeploymentError:
        return None


def _predict(
    answer: Preflight, efficiencies: Efficiencies, speculation: Speculation | None, *, executed: bool
) -> Prediction | None:
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
            speculation=speculation,
        )
    except UnsupportedPrecision:
        return None
