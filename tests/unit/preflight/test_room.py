"""What a proposed launch does about room: a smaller step, a larger share, and only then a shorter context."""

from typing import Any

import pytest

from penstock.api.fit import fit
from penstock.api.preflight import preflight
from penstock.preflight import Preflight
from penstock.preflight.launch.start_memory import keeps_whole_context


def answered(model: str | None, on: str, command: str | None = None) -> Preflight:
    return preflight(model, on, command=command).answers[0]


def test_a_smaller_step_comes_before_a_shorter_context() -> None:
    # Gemma-4-31B has 50 layers with windows: steps of 8,192 tokens take more than the cache of one H100.
    found = answered("gemma-4-31b", "h100")
    assert {flag.name: flag.value for flag in found.plan.flags}["max-num-batched-tokens"] == "2048"
    assert found.cut is not None
    assert found.cut.tokens > 50_000
    assert found.memory.fits


def test_a_step_that_matters_little_is_left_alone() -> None:
    found = answered("gpt-oss-120b", "h100")
    assert not found.plan.has("max-num-batched-tokens")


def test_a_larger_share_of_memory_is_named_where_it_keeps_the_whole_context() -> None:
    found = answered("qwen3-32b", "h100")
    assert keeps_whole_context(found.memory.deployment)[0] == "--gpu-memory-utilization 0.95 (tight)"


@pytest.mark.parametrize(("flag", "passes"), [("", True), ("--disable-hybrid-kv-cache-manager", False)])
def test_a_line_without_the_hybrid_manager_keeps_everything(flag: str, *, passes: bool) -> None:
    line = f"vllm serve google/gemma-4-31B-it --max-model-len 32768 --max-num-batched-tokens 2048 {flag}"
    assert answered(None, "h100", line).passes is passes


@pytest.mark.parametrize(
    ("model", "on", "engine", "ranks"),
    [("deepseek-v4-pro", "h200:8", "vllm", 8), ("deepseek-r1", "b200:4", "sglang", None)],
)
def test_unasked_settings_are_only_proposed(model: str, on: str, engine: str, ranks: int | None) -> None:
    """Attack: `fit`, `predict` and `preflight` each had their own answer, because each took settings of its own."""
    split: dict[str, Any] = {} if ranks is None else {"dp": ranks, "ep": True}
    assert not fit(model, on, engine=engine, **split).good
    checked = preflight(model, on, engine=engine, **split)
    assert not checked.good
    (instead,) = checked.instead
    assert instead is not None
    assert instead.passes
    flags = {flag.name: flag.value for flag in instead.plan.flags}
    share = flags.get("gpu-memory-utilization") or flags["mem-fraction-static"]
    step = flags.get("max-num-batched-tokens")
    stated: dict[str, Any] = {"memory_fraction": float(share or 0), "batched_tokens": step and int(step)}
    assert fit(model, on, engine=engine, **stated, **split).good


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("vllm serve deepseek-ai/DeepSeek-R1 -tp 8 -dcp 3", "is not a multiple"),
        ("vllm serve meta-llama/Llama-3.3-70B-Instruct -tp 8 -dcp 8", "needs more tensor parallel ranks"),
        ("vllm serve Qwen/Qwen3-235B-A22B -tp 8 -dcp 4", "copies of each KV head"),
        ("vllm serve deepseek-ai/DeepSeek-R1 -tp 8 -dcp 8", None),
        ("vllm serve Qwen/Qwen3-235B-A22B -tp 8 -dcp 2", None),
    ],
)
def test_context_ranks_are_checked_as_vllm_checks_them(line: str, said: str | None) -> None:
    """verify_with_parallel_config in vllm/config/model.py, read at v0.16.0, v0.21.0 and v0.33.0."""
    (answer,) = preflight(on="h200:8", command=line, engine_version="0.28.0").answers
    texts = [obstacle.text for obstacle in answer.obstacles]
    assert texts == [] if said is None else (len(texts) == 1 and said in texts[0])


def test_context_ranks_divide_the_tokens_of_a_request() -> None:
    tokens = []
    for flag in ("", " -dcp 8"):
        line = f"vllm serve deepseek-ai/DeepSeek-R1 -tp 8{flag}"
        (answer,) = preflight(on="h200:8", command=line, engine_version="0.28.0").answers
        assert answer.memory.capacity is not None
        tokens.append(answer.memory.capacity.tokens)
    assert tokens[1] == pytest.approx(8 * tokens[0], rel=0.01)
