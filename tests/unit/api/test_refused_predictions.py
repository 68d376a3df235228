"""Questions that `predict` cannot answer name the limit and the fix."""

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from penstock.api.answer import ApiAnswer
from penstock.api.predict import PredictAnswer, predict
from penstock.api.sweep import sweep
from penstock.errors import DeploymentError, UsageError


def shown(answer: ApiAnswer) -> str:
    console = Console(width=200, file=StringIO(), color_system=None)
    console.print(answer.render(200))
    return " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]


def test_a_prompt_beyond_the_context_limit_names_the_limit_and_the_longest_prompt() -> None:
    answer = predict("llama-3.1-70b", "mi300x", input_tokens="200k", output_tokens=1024)
    assert not answer.good
    assert "exceeds the model's context limit of 131,072; use --in 130048 or less" in shown(answer)
    assert "penstock fit" not in shown(answer)


@pytest.mark.parametrize(
    ("model", "precision", "said"),
    [
        ("deepseek-v4-pro", "fp8", "released with experts in mxfp4 and other weights in fp8; leave --precision out"),
        ("llama-3.1-8b", "mxfp8", "no measurement has weights in mxfp8; use one of bf16, fp8"),
        ("llama-3.1-8b", "fp7", "'fp7' is not a weight format; use one of bf16, fp8"),
    ],
)
def test_a_format_that_cannot_be_used_is_refused(model: str, precision: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        predict(model, "h200:8", precision=precision)


def test_the_format_of_the_experts_is_the_released_checkpoint() -> None:
    released, named = (
        predict("deepseek-v4-pro", "mi355x:8", precision=precision).model for precision in (None, "mxfp4")
    )
    assert released.weight_bytes == named.weight_bytes


def test_undetermined_accelerator_leaves_the_others_rows() -> None:
    """No figure is published for NVFP4 that vLLM converts to 16 bits on AMD; B200 computes in it."""
    answer = predict("llama-3.3-70b", "b200,mi300x", precision="nvfp4")
    assert [row["accelerator"] for row in answer.rows()] == ["b200_sxm"]
    assert answer.good
    assert isinstance(answer, PredictAnswer)
    (left_out,) = answer.undetermined
    assert left_out.accelerator == "mi300x"
    document: dict[str, Any] = answer.to_dict()
    assert document["undetermined"] == [{"accelerator": "mi300x", "reason": left_out.reason}]
    assert "mi300x: undetermined: the speed of llama-3.3-70b is undetermined" in shown(answer)
    assert "mi300x: undetermined" in shown(sweep("llama-3.3-70b", "b200,mi300x", precision="nvfp4", concurrency=[1, 8]))


def test_alone_an_undetermined_accelerator_is_refused() -> None:
    with pytest.raises(DeploymentError, match="leave mi300x out, or add --roofline"):
        predict("llama-3.3-70b", "mi300x", precision="nvfp4")
    with pytest.raises(DeploymentError, match="'trtllm' was not measured on mi325x"):
        predict("llama-3.3-70b", "mi325x", engine="trtllm")
    assert len(predict("llama-3.3-70b", "mi325x,h200:2", engine="trtllm").rows()) == 1
