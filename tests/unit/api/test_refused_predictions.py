"""Questions that `predict` cannot answer name the limit and the fix."""

from io import StringIO

import pytest
from rich.console import Console

from penstock.api.predict import predict
from penstock.errors import UsageError


def test_a_prompt_beyond_the_context_limit_names_the_limit_and_the_longest_prompt() -> None:
    answer = predict("llama-3.1-70b", "mi300x", input_tokens="200k", output_tokens=1024)
    console = Console(width=200, file=StringIO(), color_system=None)
    console.print(answer.render(200))
    shown = " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]
    assert not answer.good
    assert "exceeds the model's context limit of 131,072; use --in 130048 or less" in shown
    assert "penstock fit" not in shown


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
