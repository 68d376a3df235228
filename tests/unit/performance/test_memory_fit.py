"""Does it fit? The articles' arithmetic, and each part of the budget."""

import re
from dataclasses import replace
from typing import Any

import pytest

from examples import deployment, model
from penstock.catalog import load_accelerator
from penstock.errors import DeploymentError
from penstock.fleet import Parallelism, engine_defaults
from penstock.fleet.release import Release
from penstock.model import CacheDtype, Part
from penstock.model.weight import FP8_CHANNEL
from penstock.performance import fit, minimum_devices
from penstock.performance.memory.budget import DoesNotFit
from penstock.performance.memory.minimum_change import report_fit
from penstock.performance.memory.sharding import redundant_experts, stage_of_layers, weight_bytes_by_part
from penstock.units import GIB
from published_logs import LOGS, predicted


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
    ("accelerator", "bf16", "fp8"),
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
def test_405b_device_counts(accelerator: str, bf16: int, fp8: int) -> None:
    spec = model("llama-3.1-405b")
    sixteen = minimum_devices(deployment(spec, accelerator), 8192)
    eight = minimum_devices(deployment(spec.stored_as(FP8_CHANNEL), accelerator), 8192)
    assert sixteen is not None
    assert eight is not None
    assert (sixteen.deployment.parallelism.devices, eight.deployment.parallelism.devices) == (bf16, fp8)


def test_mi355x_leaves_over_three_times_the_kv_room_of_b200_for_a_70b() -> None:
    # The memory ratio is 288/178 = 1.6; what is left after 131 GiB of weights differs far more.
    room = {
        accelerator: fit(deployment("llama-3.1-70b", accelerator), 8192).budget for accelerator in ("mi355x", "b200")
    }
    assert room["mi355x"] is not None
    assert room["b200"] is not None
    ratio = room["mi355x"].kv_bytes / room["b200"].kv_bytes
    assert 4 < ratio < 5


def test_parts_add_up_to_the_device() -> None:
    for accelerator in ("h100", "mi300x", "b200"):
        budget = fit(deployment("llama-3.1-8b", accelerator), 8192).budget
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


@pytest.mark.parametrize(
    ("name", "accelerator", "tp", "ep", "reason"),
    [
        ("phi-4", "h100", 4, False, "10 key-value heads neither divide over tp 4 nor repeat evenly on it"),
        ("qwen2.5-7b", "h100", 7, False, "4 key-value heads neither divide over tp 7"),
        # 1,536 / 8 = 192 channels, one and a half blocks of 128.
        ("qwen3-235b-a22b-fp8", "h200", 8, False, "leaves 192 per device, .* multiple .* block 128; .*--ep"),
        ("qwen3-32b-fp8", "h200", 16, False, "dense ffn width 25,600 over tp 16 leaves 1,600 per device"),
        ("llama-3.1-70b", "h100", 2, True, "this model is dense"),
        ("mixtral-8x7b", "h100", 16, True, "8 routed experts are too few for tp x dp = 16 ranks"),
    ],
)
def test_splits_engines_refuse_at_start_up(name: str, accelerator: str, tp: int, ep: bool, reason: str) -> None:  # noqa: FBT001
    result = fit(deployment(name, accelerator, tp=tp, ep=ep, version="0.28.0"), 4096)
    assert result.obstacle_is("refused")
    assert result.obstacle is not None
    assert re.search(reason, result.obstacle.reason)
    assert "\n" not in result.obstacle.reason


@pytest.mark.parametrize(
    ("tp", "version", "refused"), [(8, "0.28.0", True), (8, "0.32.0", False), (4, "0.28.0", False)]
)
def test_fp8_experts_cut_inside_a_block_run_once_the_engine_refines_scales(
    tp: int, version: str, *, refused: bool
) -> None:
    # 1,536 / 8 = 192 = 3 x 64: blocks of gcd(128, 192, 3,072) = 64.
    assert fit(deployment("minimax-m2.5", "h200", tp=tp, version=version), 4096).obstacle_is("refused") is refused


def test_a_feed_forward_that_does_not_divide_is_refused() -> None:
    spec = model("llama-3.1-8b")
    narrow = replace(
        spec,
        weights=tuple(
            replace(weight, shape=(weight.shape[0], 14_332)) if "down_proj" in weight.module else weight
            for weight in spec.weights
        ),
    )
    assert fit(deployment(narrow, "h100", tp=8), 8192).obstacle == DoesNotFit(
        obstacle="refused", reason="dense ffn width 14,332 does not divide over tp 8"
    )


def test_experts_that_do_not_divide_are_held_twice_in_sglang() -> None:
    """Attack: 256 experts over 48 ranks "do not divide", while InferenceX runs 288 with redundant ones."""
    # 160 experts over 12 ranks: vLLM gives the first four 14 and the others 13, SGLang every rank 14.
    uneven = fit(deployment("glm-4.7", "mi355x", tp=4, dp=3, ep=True), 8192)
    padded = fit(deployment("glm-4.7", "mi355x", tp=4, dp=3, ep=True, engine="sglang"), 8192)
    assert uneven.fits
    assert padded.fits
    assert redundant_experts(uneven.deployment) == 0
    assert redundant_experts(padded.deployment) == 8
    assert uneven.budget is not None
    assert padded.budget is not None
    routed = [held.budget.weight_bytes_by_part[Part.ROUTED_EXPERTS] for held in (uneven, padded) if held.budget]
    assert routed[0] == routed[1]


@pytest.mark.parametrize(
    ("name", "ranks", "copies"),
    # As the recipes of InferenceX have them (ep-num-redundant-experts).
    [
        ("deepseek-r1", 48, 32),
        ("glm-5", 40, 24),
        ("glm-5", 56, 24),
        ("deepseek-v4-pro", 40, 16),
        ("deepseek-r1", 32, 0),
    ],
)
def test_copies_are_as_many_as_published_recipes_have(name: str, ranks: int, copies: int) -> None:
    placed = deployment(name, "gb300", dp=ranks, ep=True, engine="sglang")
    experts = placed.model.experts
    assert experts is not None
    assert redundant_experts(placed) == copies
    stated = replace(placed, engine=replace(placed.engine, redundant_experts=copies + ranks))
    by_part = [weight_bytes_by_part(each, 0)[Part.ROUTED_EXPERTS] for each in (placed, stated)]
    slots = (experts.routed + copies) // ranks
    assert by_part[1] * slots == by_part[0] * (slots + 1)


def test_a_stated_number_of_copies_must_divide_and_old_releases_have_none() -> None:
    placed = deployment("deepseek-r1", "gb200", dp=48, ep=True, engine="sglang")
    stated = fit(replace(placed, engine=replace(placed.engine, redundant_experts=0)), 8192)
    assert stated.obstacle is not None
    assert "with --ep-num-redundant-experts 32 they do" in stated.obstacle.reason
    old = fit(deployment("deepseek-r1", "gb200", dp=48, ep=True, engine="sglang", version="0.4.6"), 8192)
    assert old.obstacle_is("refused")


@pytest.mark.parametrize("log", LOGS, ids=lambda log: f"{log['model']}-{log['accelerator']}-tp{log['tp']}")
def test_no_split_that_was_run_is_refused(log: dict[str, Any]) -> None:
    assert not predicted(log).obstacle_is("refused")


def test_remedies_never_name_a_split_that_would_be_refused() -> None:
    report = report_fit(deployment("qwen3-235b-a22b-fp8", "h100", tp=8, version="0.28.0"), 8192)
    assert [remedy.change for remedy in report.remedies] == ["--ep", "4 devices (tp4)"]
    assert report_fit(deployment("phi-4", "h100", tp=4), 8192).fewest_split == "tp1"


def test_a_context_beyond_the_model_is_a_value() -> None:
    result = fit(deployment("llama-3.1-8b", "mi300x"), 200_000)
    assert result.obstacle is not None
    assert result.obstacle.obstacle == "model_limit"
    assert result.certain


def test_memory_is_named_before_the_models_limit() -> None:
    result = fit(deployment("llama-3.1-70b", "b200"), 400_000)
    assert result.obstacle_is("context")
    assert result.obstacle is not None
    assert result.obstacle.shortfall_bytes > GIB


def test_a_fraction_that_leaves_no_room_outside_it_is_its_own_obstacle() -> None:
    placed = deployment("llama-3.1-70b", "mi300x")
    report = report_fit(replace(placed, engine=replace(placed.engine, memory_fraction=1.0)), 8192)
    assert report.fit.obstacle_is("fraction")
    assert report.fit.budget is not None
    assert report.fit.budget.kv_bytes > 0
    # 0.9 GiB of graphs outside: 0.99 of 192 GiB leaves 1.9.
    assert report.remedies[0].change == "--memory-fraction 0.99"


def test_a_fit_that_only_holds_at_the_median_is_not_certain() -> None:
    placed = deployment("llama-3.1-70b", "b200")
    capacity = fit(placed, 8192).capacity
    assert capacity is not None
    # Between what P10 and the median hold.
    between = (capacity.low_tokens + capacity.tokens) // 2
    tight, sure = fit(placed, between), fit(placed, 8192)
    assert (tight.fits, tight.certain) == (True, False)
    assert (sure.fits, sure.certain) == (True, True)


def test_vllm_runs_no_more_requests_than_its_limit_for_a_step() -> None:
    vllm = fit(deployment("llama-3.1-8b", "mi355x", tp=8), 1024).capacity
    sglang = fit(deployment("llama-3.1-8b", "mi355x", tp=8, engine="sglang"), 1024).capacity
    assert vllm is not None
    assert sglang is not None
    assert vllm.concurrent_requests == 1024
    assert vllm.cached_requests is not None
    assert vllm.cached_requests > 10 * 1024
    assert sglang.concurrent_requests == sglang.cached_requests


def test_a_model_that_states_no_limit_has_no_longest_context() -> None:
    capacity = fit(deployment("codestral-mamba-7b", "h100"), 8192).capacity
    assert capacity is not None
    assert capacity.longest_context_tokens is None


def test_what_caches_nothing_has_no_limit_of_requests() -> None:
    spec = model("llama-3.2-1b")
    stateless = replace(spec, layers=tuple(replace(layer, mixer=None) for layer in spec.layers))
    capacity = fit(deployment(stateless, "h100", engine="sglang"), 8192).capacity
    assert capacity is not None
    assert capacity.concurrent_requests is None
    assert fit(deployment(stateless, "h100", engine="sglang"), 8192).certain


def test_sglang_chooses_its_fraction_again_for_a_smaller_split() -> None:
    wide = deployment("llama-3.1-8b", "h100", tp=8, pp=4, engine="sglang")
    fewest = minimum_devices(wide, 8192)
    assert fewest is not None
    assert fewest.deployment.engine == deployment("llama-3.1-8b", "h100", engine="sglang").engine
    assert fewest.deployment.engine.memory_fraction > wide.engine.memory_fraction
    asked = replace(wide, engine=replace(wide.engine, memory_fraction=0.5))
    kept = minimum_devices(asked, 8192)
    assert kept is not None
    assert kept.deployment.engine.memory_fraction == 0.5


def test_fp8_is_offered_with_fewer_devices_and_only_where_it_is_computed() -> None:
    changes = [remedy.change for remedy in report_fit(deployment("llama-3.1-405b", "h100", tp=4), 8192).remedies]
    assert changes == ["--precision fp8 with 8 devices (tp8)", "16 devices (tp8 pp2)"]
    assert [remedy.change for remedy in report_fit(deployment("llama-3.1-70b", "a100"), 8192).remedies] == [
        "2 devices (tp2)"
    ]
    split_in_three = report_fit(deployment("llama-3.1-8b", "h100", tp=3), 8192)
    assert [remedy.change for remedy in split_in_three.remedies] == ["1 device (tp1)"]


def test_notes_say_what_the_numbers_do_not() -> None:
    spec = model("gpt-oss-120b")
    assert report_fit(deployment(spec, "mi355x"), 8192).notes == ()
    assert report_fit(deployment(spec, "mi300x"), 8192).notes == (
        "stored in mxfp4, which mi300x does not compute natively",
    )
    assert report_fit(deployment("deepseek-r1", "a100", tp=8), 8192).notes == (
        "stored in fp8, which a100_80gb_sxm does not compute natively",
    )
    assert "tp 16 spans nodes" in report_fit(deployment("llama-3.1-70b", "h100", tp=16), 8192).notes[0]
    assert report_fit(deployment("llama-3.1-70b", "gb200", tp=8), 8192).notes == ()
    assert "mi455x is announced" in report_fit(deployment("llama-3.1-70b", "mi455x"), 8192).notes[0]


def test_a_context_that_does_not_fit_names_the_longest_that_does() -> None:
    report = report_fit(deployment("llama-3.1-70b", "b200"), 131_072)
    assert report.fit.obstacle is not None
    assert report.fit.obstacle.obstacle == "context"
    assert report.fit.capacity is not None
    longest = report.fit.capacity.longest_context_tokens
    assert longest is not None
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
    assert full.cached_requests is not None
    assert hybrid.cached_requests is not None
    assert hybrid.cached_requests > 6 * full.cached_requests


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
    mi300x, a100 = load_accelerator("mi300x"), load_accelerator("a100")
    assert engine_defaults("vllm", mi300x, version="0.11").memory_fraction == 0.90
    assert engine_defaults("vllm", mi300x).memory_fraction == 0.92
    assert engine_defaults("vllm", mi300x).max_batched_tokens == 16384
    assert engine_defaults("vllm", a100).max_batched_tokens == 2048


@pytest.mark.parametrize("text", ["0.11.2", "v0.20", "0.13.0rc2", "0.5.10.post1", "0.11.1rc2.dev4", " 1.0 "])
def test_engine_versions_as_released(text: str) -> None:
    assert engine_defaults("vllm", load_accelerator("mi300x"), version=text).version == text


@pytest.mark.parametrize("text", ["", "new", "0.11.2 (rocm)", "0.x", "0..2", "0.6.3-0.6.4", "v", "1" * 9, "0.2;rm"])
def test_what_is_not_a_version_is_refused(text: str) -> None:
    with pytest.raises(DeploymentError, match="is not a version; write"):
        Release(text)


def test_releases_are_ordered_as_they_come_out() -> None:
    names = ["0.11.1.dev3", "0.11.1rc2.dev4", "0.11.1rc2", "0.11.1", "0.11.1.post1", "0.11.2", "0.12"]
    assert [str(release) for release in sorted(map(Release, reversed(names)))] == names


def test_a_candidate_has_what_its_release_brings() -> None:
    assert Release("0.20.0rc1") < Release("0.20")
    assert engine_defaults("vllm", load_accelerator("mi300x"), version="0.20.0rc1").memory_fraction == 0.92


def test_a_larger_share_of_memory_is_offered_where_it_is_enough() -> None:
    """DeepSeek-R1 in FP8 runs on four B200 in public; SGLang's own share of their memory is too small for it."""
    placed = deployment("deepseek-r1", "b200", tp=4)
    report = report_fit(replace(placed, engine=replace(placed.engine, memory_fraction=0.85)), 9216)
    assert report.fit.obstacle_is("weights")
    change = report.remedies[0].change
    assert change.startswith("--memory-fraction 0.9")
    asked = float(change.split()[-1])
    assert fit(replace(placed, engine=replace(placed.engine, memory_fraction=asked)), 9216).fits
    assert not fit(replace(placed, engine=replace(placed.engine, memory_fraction=asked - 0.01)), 9216).fits
