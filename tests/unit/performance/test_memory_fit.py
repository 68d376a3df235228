"""Does it fit? The articles' arithmetic, and each part of the budget."""

from dataclasses import replace

import pytest

from examples import deployment, model
from penstock.catalog import load_accelerator
from penstock.model import CacheDtype, Part
from penstock.model.weight import FP8_CHANNEL
from penstock.performance import Parallelism, fit, minimum_devices
from penstock.performance.minimum import report_fit
from penstock.performance.sharding import stage_of_layers
from penstock.units import GIB


def test_70b_in_16_bits_does_not_fit_one_h100_and_says_what_would() -> None:
    report = report_fit(deployment("llama-3.1-70b", "h100"), 8192)
    assert not report.fit.fits
    assert report.fit.obstacle is not None
    assert report.fit.obstacle.obstacle == "weights"
    # 70.55e9 parameters x 2 bytes = 131.4 GiB of weights against 79.2 GiB of memory.
    assert report.fit.budget is not None
    assert report.fit.budget.weight_bytes == 70_553_706_496 * 2
    assert report.fewest_devices == 2
    assert [remedy.change for remedy in report.remedies] == ["--precision fp8", "2 devices (tp2)"]


def test_70b_in_16_bits_fits_one_mi300x_with_the_kv_room_stated() -> None:
    result = fit(deployment("llama-3.1-70b", "mi300x"), 8192)
    assert result.fits
    assert result.budget is not None
    assert result.capacity is not None
    # 0.92 x 192.0 GiB - 131.4 weights - 3.5 activations - 0.65 runtime leaves 41 GiB, 327,680 bytes a token.
    assert result.budget.kv_bytes / GIB == pytest.approx(41, abs=1.5)
    assert result.capacity.tokens == pytest.approx(result.budget.kv_bytes / 327_680, rel=0.001)
    assert result.capacity.low_tokens < result.capacity.tokens < result.capacity.high_tokens


@pytest.mark.parametrize(
    ("part", "bf16", "fp8"),
    # "405B lands on two MI300X" (dreaming.press) holds for neither: 756 GiB need eight, 381 GiB need four.
    [
        ("h100", 16, 8),
        ("h200", 8, 4),
        ("b200", 8, 4),
        ("b300", 4, 2),
        ("mi300x", 8, 4),
        ("mi325x", 4, 2),
        ("mi355x", 4, 2),
    ],
)
def test_405b_device_counts(part: str, bf16: int, fp8: int) -> None:
    spec = model("llama-3.1-405b")
    sixteen = minimum_devices(deployment(spec, part), 8192)
    eight = minimum_devices(deployment(spec.stored_as(FP8_CHANNEL), part), 8192)
    assert sixteen is not None
    assert eight is not None
    assert (sixteen.deployment.parallelism.devices, eight.deployment.parallelism.devices) == (bf16, fp8)


def test_mi355x_leaves_over_three_times_the_kv_room_of_b200_for_a_70b() -> None:
    # The memory ratio is 288/178 = 1.6; what is left after 131 GiB of weights differs far more.
    room = {part: fit(deployment("llama-3.1-70b", part), 8192).budget for part in ("mi355x", "b200")}
    assert room["mi355x"] is not None
    assert room["b200"] is not None
    ratio = room["mi355x"].kv_bytes / room["b200"].kv_bytes
    assert 4 < ratio < 5


def test_parts_add_up_to_the_device() -> None:
    for part in ("h100", "mi300x", "b200"):
        budget = fit(deployment("llama-3.1-8b", part), 8192).budget
        assert budget is not None
        assert budget.total_bytes == budget.device_bytes


def test_experts_are_cut_by_tensor_and_spread_whole_by_expert_parallelism() -> None:
    cut = fit(deployment("deepseek-r1", "h200", tp=8), 8192).budget
    whole = fit(deployment("deepseek-r1", "h200", tp=8, ep=True), 8192).budget
    assert cut is not None
    assert whole is not None
    all_experts = sum(w.stored_bytes for w in model("deepseek-r1").weights if w.part is Part.ROUTED_EXPERTS)
    assert whole.weight_bytes_by_part[Part.ROUTED_EXPERTS] == pytest.approx(all_experts / 8, rel=0.001)
    # 2,048 / 8 = 256 channels: two fp8 blocks, so slices cost the same.
    assert cut.weight_bytes_by_part[Part.ROUTED_EXPERTS] == pytest.approx(all_experts / 8, rel=0.001)


def test_data_parallel_attention_multiplies_requests_and_repeats_attention() -> None:
    one = fit(deployment("deepseek-r1", "h200", tp=8), 8192)
    spread = fit(deployment("deepseek-r1", "h200", tp=1, dp=8, ep=True), 8192)
    assert one.capacity is not None
    assert spread.capacity is not None
    assert one.budget is not None
    assert spread.budget is not None
    # Latents are replicated by tp, so eight ranks with their own requests hold several times as many.
    assert spread.capacity.tokens > 4 * one.capacity.tokens
    assert spread.budget.weight_bytes_by_part[Part.ATTENTION] > one.budget.weight_bytes_by_part[Part.ATTENTION]


def test_a_split_no_engine_accepts_is_a_value() -> None:
    result = fit(deployment("llama-3.1-70b", "h100", tp=3), 8192)
    assert result.budget is None
    assert result.obstacle is not None
    assert result.obstacle.reason == "64 attention heads do not divide over tp 3"


def test_a_context_beyond_the_model_is_a_value() -> None:
    result = fit(deployment("llama-3.1-8b", "mi300x"), 200_000)
    assert result.obstacle is not None
    assert result.obstacle.obstacle == "model_limit"


def test_a_context_that_does_not_fit_names_the_longest_that_does() -> None:
    report = report_fit(deployment("llama-3.1-70b", "b200"), 131_072)
    assert report.fit.obstacle is not None
    assert report.fit.obstacle.obstacle == "context"
    assert report.fit.capacity is not None
    longest = report.fit.capacity.longest_context_tokens
    assert fit(report.fit.deployment, longest).fits
    assert not fit(report.fit.deployment, longest + 16).fits
    assert [remedy.change for remedy in report.remedies][:2] == [
        f"a context of at most {longest:,} tokens",
        "--kv fp8",
    ]


def test_an_fp8_cache_holds_twice_the_tokens() -> None:
    sixteen = fit(deployment("llama-3.1-8b", "mi300x"), 8192).capacity
    eight = fit(deployment("llama-3.1-8b", "mi300x", kv=CacheDtype.FP8), 8192).capacity
    assert sixteen is not None
    assert eight is not None
    assert eight.tokens == pytest.approx(2 * sixteen.tokens, rel=0.001)


@pytest.mark.parametrize(("layers", "pp", "counts"), [(80, 4, (20,) * 4), (61, 4, (15, 15, 16, 15)), (7, 2, (4, 3))])
def test_pipeline_stages_leave_the_last_one_lightest(layers: int, pp: int, counts: tuple[int, ...]) -> None:
    stages = stage_of_layers(layers, pp)
    assert tuple(stages.count(stage) for stage in range(pp)) == counts


def test_a_tied_head_is_held_twice_in_a_pipeline() -> None:
    spec = model("qwen3-4b")
    result = fit(deployment(spec, "h100", pp=2), 8192)
    assert result.budget is not None
    assert result.budget.weight_bytes > spec.weight_bytes / 2


def test_sglang_keeps_its_reserve_outside_the_fraction() -> None:
    result = fit(deployment("llama-3.1-8b", "h100", engine="sglang"), 8192)
    assert result.budget is not None
    assert result.budget.unused_bytes > 0
    assert result.budget.total_bytes == result.budget.device_bytes


def test_hybrid_models_hold_far_more_requests_than_their_token_rate_suggests() -> None:
    full = fit(deployment("llama-3.1-70b", "mi355x", tp=4), 131_072).capacity
    hybrid = fit(deployment("qwen3-next-80b", "mi355x", tp=4), 131_072).capacity
    assert full is not None
    assert hybrid is not None
    # A quarter of the layers, a quarter of the heads of 256: 6 to 7 times as many.
    assert hybrid.concurrent_requests > 6 * full.concurrent_requests


def test_draft_layers_cost_memory_only_when_asked_for() -> None:
    plain = deployment("deepseek-r1", "h200", tp=8)
    drafted = replace(plain, speculative=True)
    first, second = fit(plain, 8192).budget, fit(drafted, 8192).budget
    assert first is not None
    assert second is not None
    assert Part.MTP not in first.weight_bytes_by_part
    assert second.weight_bytes_by_part[Part.MTP] > GIB


def test_replica_counts_devices() -> None:
    assert Parallelism(tp=4, pp=2, dp=2).devices == 16
    assert str(Parallelism(tp=4, pp=2, expert_parallel=True)) == "tp4 pp2 ep"


def test_defaults_differ_by_version_and_memory() -> None:
    from penstock.performance import engine_defaults  # noqa: PLC0415

    mi300x, a100 = load_accelerator("mi300x"), load_accelerator("a100")
    assert engine_defaults("vllm", mi300x, version="0.11").memory_fraction == 0.90
    assert engine_defaults("vllm", mi300x).memory_fraction == 0.92
    assert engine_defaults("vllm", mi300x).max_batched_tokens == 16384
    assert engine_defaults("vllm", a100).max_batched_tokens == 2048
