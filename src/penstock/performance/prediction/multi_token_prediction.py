"""Describes speculative decoding with a checkpoint's own multi-token-prediction layers, as in the measured runs."""

from typing import Final

from penstock.errors import DeploymentError
from penstock.model import ModelSpec, Part
from penstock.performance.calibration.draft_acceptance import DraftModel
from penstock.performance.prediction.predict_deployment import Speculation
from penstock.performance.similarity.cases import shape_of
from penstock.performance.step.drafting_step import expected_tokens

_USUAL: Final = 3


def usual_drafted(model: ModelSpec, measured_engine: str, vendor: str, ranks: int) -> int:
    """Return the default number of drafted tokens per step, as in measured runs of similar setups.

    No run with more drafted tokens was measured, so the gain from more drafted tokens on many ranks is unknown.
    """
    if model.architecture.startswith("DeepseekV4"):
        return 2 if measured_engine == "vllm" else _USUAL
    if model.architecture.startswith("Deepseek"):
        if measured_engine == "trtllm" and ranks > 1:
            return 1
        return 2 if measured_engine == "sglang" and vendor == "nvidia" else _USUAL
    return _USUAL


def multi_token_prediction(
    model: ModelSpec, measured_engine: str, drafts: DraftModel, *, drafted_tokens: int
) -> Speculation:
    """Return the settings of speculative decoding with the checkpoint's own multi-token-prediction layers.

    The acceptance is the measured acceptance of this model. If this model was not measured, the acceptance pooled over
    all measured models is used.
    """
    if not any(weight.part is Part.MTP for weight in model.weights):
        raise DeploymentError(
            f"{model.name} has no multi-token-prediction layers; for a separate drafter give --drafted and --accepted"
        )
    shape = shape_of(model)
    seen = shape in drafts.acceptance
    acceptance = drafts.acceptance[shape] if seen else drafts.pooled
    pairs = drafts.pairs[shape] if seen else sum(drafts.pairs.values())
    whose = "" if seen else " of other models"
    return Speculation(
        drafted_tokens=drafted_tokens,
        accepted_tokens=expected_tokens(acceptance, drafted_tokens),
        own_layers=True,
        log_factor=drafts.engines.get(measured_engine, 0.0),
        spread=drafts.spreads["split" if seen else "model"],
        tier="calibrated" if seen else "transferred",
        grounds=f"multi-token prediction, acceptance {acceptance:.2f} from {pairs:,} pairs{whose}",
    )
