"""Describes speculative decoding with a checkpoint's own multi-token-prediction layers, as in the measured runs."""

from typing import Final

from penstock.errors import DeploymentError
from penstock.model import ModelSpec, Part
from penstock.performance.calibration.draft_acceptance import DraftModel
from penstock.performance.prediction.speculation import Speculation
from penstock.performance.similarity.cases import shape_of

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


def multi_token_prediction(model: ModelSpec, drafts: DraftModel, *, drafted_tokens: int) -> Speculation:
    """Return the settings of speculative decoding with the checkpoint's own multi-token-prediction layers.

    A model without such layers is accepted if it was measured with a separate drafter. The acceptance is that of this
    model in the measured runs. If the model was not measured with drafts, its published acceptance lengths are scaled
    as those of all measured models.
    """
    shape = shape_of(model)
    seen = shape in drafts.powers
    own_layers = any(weight.part is Part.MTP for weight in model.weights)
    if not own_layers and not seen:
        raise DeploymentError(
            f"{model.name} has no multi-token-prediction layers; for a separate drafter give --drafted and --accepted"
        )
    drafter = "multi-token prediction" if own_layers else "drafter of the measured runs, its memory not counted"
    if seen:
        grounds = f"acceptance from {drafts.pairs[shape]:,} pairs"
    else:
        published = "published lengths" if shape in drafts.curves.of else "other models"
        grounds = f"acceptance from {published} and {sum(drafts.pairs.values()):,} pairs of other models"
    return Speculation(
        drafted_tokens=drafted_tokens,
        accepted_tokens=drafts.accepted_tokens(shape, drafted_tokens),
        own_layers=True,
        tier="calibrated" if seen else "transferred",
        grounds=f"{drafter}, {grounds}",
    )
