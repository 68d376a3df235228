"""What a start must hold where layers look back a window, against the bytes vLLM's own functions return."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import penstock
from examples import deployment
from penstock.fleet import Deployment
from penstock.performance import fit
from penstock.units import GIB


def placed(model: str, version: str, batched_tokens: int, *, tp: int = 1, hybrid: bool = True) -> Deployment:
    found = deployment(model, "h200_sxm", tp=tp, version=version)
    engine = replace(found.engine, max_batched_tokens=batched_tokens, hybrid_cache=hybrid)
    return replace(found, engine=engine)


def start_bytes(where: Deployment, tokens: int) -> int:
    capacity = fit(where, tokens).capacity
    assert capacity is not None
    return capacity.start_bytes


@pytest.mark.parametrize(
    ("model", "tp", "tokens", "step", "printed"),
    [
        ("gemma-4-31b", 1, 262_144, 8192, 35_748_577_280),
        ("gemma-4-31b", 1, 131_072, 2048, 14_944_829_440),
        ("gemma-4-31b", 1, 8192, 2048, 4_878_499_840),
        ("gpt-oss-120b", 1, 131_072, 8192, 5_441_126_400),
        ("gpt-oss-120b", 1, 131_072, 2048, 4_988_141_568),
        ("gemma-2-27b", 1, 8192, 2048, 3_090_022_400),
        # 39 layers of windows and 9 without: the last group of nine is padded.
        ("mimo-v2-flash", 4, 131_072, 8192, 1_706_987_520),
    ],
)
def test_a_start_needs_what_vllm_computes(model: str, tp: int, tokens: int, step: int, printed: int) -> None:
    # vLLM 0.32.0: `_max_memory_usage_bytes_from_groups` of `get_kv_cache_groups`, two steps in flight.
    assert start_bytes(placed(model, "0.32.0", step, tp=tp), tokens) == printed


def test_one_step_is_in_flight_before_0_26() -> None:
    assert start_bytes(placed("gemma-4-31b", "0.25.0", 16384), 200_000) == start_bytes(
        placed("gemma-4-31b", "0.26.0", 8192), 200_000
    )


@pytest.mark.parametrize(
    ("model", "tp", "printed"), [("gemma-4-31b", 1, 59_055_800_320), ("mimo-v2-flash", 4, 3_649_044_480)]
)
def test_without_the_hybrid_manager_every_layer_keeps_everything(model: str, tp: int, printed: int) -> None:
    # The same functions with --disable-hybrid-kv-cache-manager.
    assert start_bytes(placed(model, "0.32.0", 8192, tp=tp, hybrid=False), 65_536) == printed


def test_a_release_without_the_hybrid_manager_keeps_everything() -> None:
    assert start_bytes(placed("gemma-2-27b", "0.9.0", 2048), 8192) == 8192 * 46 * 2 * 16 * 128 * 2


def test_a_step_is_set_aside_once_however_many_run() -> None:
    found = fit(placed("gpt-oss-120b", "0.32.0", 8192), 8192).capacity
    more = fit(placed("gpt-oss-120b", "0.32.0", 16384), 8192).capacity
    assert found is not None
    assert more is not None
    assert found.request_bytes == more.request_bytes < found.start_bytes


GEMMA_3_27B = {
    "architectures": ["Gemma3ForCausalLM"],
    "hidden_size": 5376,
    "intermediate_size": 21504,
    "num_hidden_layers": 62,
    "num_attention_heads": 32,
    "num_key_value_heads": 16,
    "head_dim": 128,
    "sliding_window": 1024,
    "sliding_window_pattern": 6,
    "vocab_size": 262208,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}


def logged_tokens(folder: Path, release: str) -> tuple[int | None, float]:
    """The tokens that vLLM logs of Gemma-3-27B on MI300X at 4,096 tokens of context, and the GiB they are made of."""
    (folder / "config.json").write_text(json.dumps(GEMMA_3_27B), encoding="utf-8")
    (report,) = penstock.fit(folder, "mi300x", context=4096, engine_version=release).reports
    assert report.fit.capacity is not None
    assert report.fit.budget is not None
    return report.fit.capacity.logged_tokens, report.fit.budget.kv_bytes / GIB


def test_the_size_of_the_cache_is_what_a_published_log_says(tmp_path: Path) -> None:
    # vLLM 0.11.0rc2 on ROCm: 109.86 GiB, "GPU KV cache size: 205,696 tokens"; 62 layers padded to seven groups of ten.
    tokens, gib = logged_tokens(tmp_path, "0.11.0")
    assert tokens is not None
    assert tokens / gib == pytest.approx(205_696 / 109.86, rel=0.001)


def test_from_0_20_1_the_size_is_requests_times_context(tmp_path: Path) -> None:
    # One page per group holds 16 tokens: 256 pages without a window, 257 in each of six groups with one.
    tokens, gib = logged_tokens(tmp_path, "0.20.1")
    page = 10 * 16 * 2 * 16 * 128 * 2
    assert tokens == pytest.approx(gib * GIB / (page * (256 + 6 * 257)) * 4096, abs=1)
    before, _ = logged_tokens(tmp_path, "0.20.0")
    assert before == int(gib * GIB) // page // 7 * 16


@pytest.mark.parametrize("model", ["llama-3.1-8b", "deepseek-r1"])
def test_without_windows_the_log_says_what_fit_says(model: str) -> None:
    capacity = fit(deployment(model, "h200", tp=8), 8192).capacity
    assert capacity is not None
    assert capacity.logged_tokens is None
