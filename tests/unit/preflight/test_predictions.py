"""Predictions beyond rules: facts, kernels, attention, graphs, AITER, and prices that follow them."""

from dataclasses import replace

import pytest

import penstock
from penstock.catalog import load_accelerator, load_models
from penstock.checkpoint import StoredTensor, open_checkpoint
from penstock.errors import UsageError
from penstock.fleet import Deployment, Parallelism, Release, engine_defaults
from penstock.fleet.engines import EngineName
from penstock.performance.step.datapath import compute_precision
from penstock.preflight import (
    Launch,
    LaunchChoices,
    Preflight,
    PreflightQuestion,
    Readiness,
    Unknown,
    check,
    load_knowledge,
)
from penstock.preflight.facts.derive_facts import chip_of, expert_width
from penstock.preflight.facts.subject import stored_facts, subject_of
from penstock.preflight.predictions.attention_backend import GraphSupport
from penstock.preflight.predictions.weight_kernels import KernelClass
from penstock.preflight.rules.fact_names import VOCABULARY

KNOWLEDGE = load_knowledge()


def ask(
    model: str,
    on: str,
    *,
    version: str = "0.27.1",
    engine: EngineName = "vllm",
    tp: int = 8,
    launch: Launch | None = None,
    host: dict[str, str] | None = None,
) -> Preflight:
    return check(
        PreflightQuestion(
            subject=subject_of(open_checkpoint(model), model),
            accelerator=load_accelerator(on),
            engine=engine,
            version=Release(version),
            asked=LaunchChoices(parallelism=Parallelism(tp=tp)),
            launch=launch,
            host=host,
        ),
        KNOWLEDGE,
    )


def test_every_fact_of_the_vocabulary_is_derived_or_unknown_with_a_reason() -> None:
    facts = ask("deepseek-r1", "mi300x").facts
    assert set(VOCABULARY) <= set(facts)
    assert all(value.why for value in facts.values() if isinstance(value, Unknown))


@pytest.mark.parametrize(
    ("target", "chip"), [("sm_90a", "sm_90"), ("sm_100a", "sm_100"), ("sm_103a", "sm_103"), ("gfx90a", "gfx90a")]
)
def test_a_chip_is_its_family(target: str, chip: str) -> None:
    assert chip_of(target) == chip
    assert chip_of(None) is None


@pytest.mark.parametrize(
    ("model", "kinds"),
    [
        ("llama-3.1-70b", {"gqa"}),
        ("deepseek-r1", {"mla"}),
        ("deepseek-v3.2", {"mla", "sparse"}),
        ("deepseek-v4-flash", {"compressed", "sparse", "sinks"}),
        ("gpt-oss-120b", {"gqa", "sliding", "sinks"}),
    ],
)
def test_what_the_layers_do(model: str, kinds: set[str]) -> None:
    assert open_checkpoint(model).spec.attention_kinds == kinds


def test_every_mixture_has_an_expert_width() -> None:
    for entry in load_models():
        model = open_checkpoint(entry.id).spec
        assert (expert_width(model) is not None) == (model.experts is not None), entry.id
    assert expert_width(open_checkpoint("deepseek-r1").spec) == 2048


def test_headers_say_which_scales_there_are() -> None:
    found = stored_facts([StoredTensor("a.k_scale", "F32", (1,)), StoredTensor("a.weight", "F8_E4M3", (2, 2))])
    assert found.kinds == {"k_scale", "weight"}
    assert found.dtypes == {"F32", "F8_E4M3"}


@pytest.mark.parametrize(
    ("model", "on", "switch", "backend"),
    [
        ("llama-3.1-70b", "mi300x", "1", "ROCM_ATTN"),
        ("llama-3.1-70b", "mi250x", "1", "ROCM_ATTN"),
        ("llama-3.1-70b", "h100", "0", "FLASH_ATTN"),
        ("llama-3.1-70b", "b200", "0", "FLASHINFER"),
        ("deepseek-r1", "mi300x", "1", "ROCM_AITER_MLA"),
        ("deepseek-r1", "mi300x", "0", "TRITON_MLA"),
        ("deepseek-r1", "h200", "0", "FLASH_ATTN_MLA"),
        ("deepseek-r1", "b200", "0", "FLASHINFER_MLA"),
        ("deepseek-v3.2", "mi300x", "1", "ROCM_AITER_MLA_SPARSE"),
        ("deepseek-v4-flash", "mi355x", "1", "ROCM_FLASHMLA_SPARSE_DSV4"),
    ],
)
def test_the_backend_that_serves(model: str, on: str, switch: str, backend: str) -> None:
    launch = Launch(environment={"VLLM_ROCM_USE_AITER": switch})
    answer = ask(model, on, launch=launch)
    assert answer.backend.name == backend
    assert answer.facts["launch.attention"] == backend


def test_backends_passed_over_say_why() -> None:
    fp8 = Launch(flags={"kv-cache-dtype": "fp8"})
    assert ask("deepseek-r1", "h200", launch=fp8).backend.name == "FLASHMLA"
    assert ask("deepseek-r1", "h200", launch=fp8).backend.rejected == {"FLASH_ATTN_MLA": "no fp8 cache"}
    connected = Launch(flags={"kv-transfer-config": "{}"}, environment={"VLLM_ROCM_USE_AITER": "1"})
    assert ask("llama-3.1-70b", "mi300x", launch=connected).backend.rejected == {"ROCM_ATTN": "no KV connector"}
    assert ask("deepseek-v3.2", "mi250x").backend.name is None
    assert "no attention backend" in " ".join(obstacle.text for obstacle in ask("deepseek-v3.2", "mi250x").obstacles)


@pytest.mark.parametrize(
    ("model", "on", "flags", "backend"),
    [
        ("llama-3.1-8b", "h100", {"kv-cache-dtype": "fp8_e5m2"}, "FLASHINFER"),
        ("llama-3.1-8b", "h100", {"kv-cache-dtype": "fp8_e4m3"}, "FLASH_ATTN"),
        ("llama-3.1-8b", "h100", {"kv-cache-dtype": "fp8_e5m2", "attention-backend": "FLASH_ATTN"}, None),
        ("llama-3.1-8b", "h100", {"kv-cache-dtype": "fp8_per_token_head"}, "TRITON_ATTN"),
        ("kimi-k2.5", "h200", {"kv-cache-dtype": "fp8_e5m2"}, None),
        ("kimi-k2.5", "h200", {"kv-cache-dtype": "fp8"}, "FLASHMLA"),
        ("llama-3.1-8b", "mi300x", {"kv-cache-dtype": "nvfp4"}, None),
        ("llama-3.1-8b", "mi300x", {"kv-cache-dtype": "int4_per_token_head"}, "TRITON_ATTN"),
        ("llama-3.1-8b", "mi300x", {"kv-cache-dtype": "turboquant_k8v4"}, "TURBOQUANT"),
        ("llama-3.1-8b", "b200", {"kv-cache-dtype": "nvfp4"}, "FLASHINFER"),
        ("llama-3.1-8b", "h100", {"kv-cache-dtype": "nvfp4"}, "FLASHINFER"),
        ("llama-3.1-8b", "h100", {"kv-cache-dtype": "nvfp4_4over6"}, None),
        ("gpt-oss-120b", "h100", {"kv-cache-dtype": "nvfp4"}, None),
        ("llama-3.1-8b", "h100", {"kv-cache-dtype": "fp8_ds_mla"}, None),
        ("deepseek-v3.2", "h200", {"kv-cache-dtype": "fp8_ds_mla"}, "FLASHMLA_SPARSE"),
        ("deepseek-v3.2", "b200", {"kv-cache-dtype": "nvfp4_ds_mla"}, "FLASHMLA_SPARSE"),
    ],
)
def test_a_backend_takes_the_cache_types_that_it_lists(
    model: str, on: str, flags: dict[str, str], backend: str | None
) -> None:
    answer = ask(model, on, version="0.32.0", launch=Launch(flags=flags))
    assert answer.backend.determined
    assert answer.backend.name == backend
    assert ("use --kv-cache-dtype fp8 or bfloat16" in " ".join(o.text for o in answer.obstacles)) == (backend is None)


@pytest.mark.parametrize(
    ("model", "method", "stops"),
    [
        ("deepseek-v3.1", "awq", True),
        ("deepseek-v3.1", "fp8", False),
        ("gpt-oss-120b", "fp8", True),
        ("gpt-oss-120b", "mxfp4", False),
        ("qwen3-14b", "fp8", False),
        ("qwen3-14b", "awq", True),
    ],
)
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_quantisation_that_contradicts_the_checkpoint_stops(
    model: str, method: str, engine: EngineName, *, stops: bool
) -> None:
    """Attack: `--quantization awq` passed on an FP8 checkpoint, where both engines raise an error."""
    version = "0.27.1" if engine == "vllm" else "0.5.18"
    launch = Launch(flags={"quantization": method})
    answer = ask(model, "h200", version=version, engine=engine, launch=launch)
    assert any("--quantization" in one.text for one in answer.obstacles) == stops


@pytest.mark.parametrize(
    ("version", "backend"), [("0.11.2", None), ("0.16.0", "ROCM_AITER_FA"), ("0.32.0", "ROCM_AITER_FA")]
)
def test_a_launch_may_name_aiters_attention_without_its_variable(version: str, backend: str | None) -> None:
    """Attack: the launch was refused with "AITER is off", although vLLM asks for the variable only by default."""
    answer = ask(
        "qwen3-14b", "mi300x", version=version, tp=1, launch=Launch(flags={"attention-backend": "ROCM_AITER_FA"})
    )
    assert answer.backend.name == backend


@pytest.mark.parametrize(
    ("on", "version", "serves"),
    [("h100", "0.28.0", False), ("h100", "0.32.0", True), ("b200", "0.20.2", False), ("b200", "0.21.0", True)],
)
def test_an_nvfp4_cache_needs_a_release_that_serves_it_on_the_chip(on: str, version: str, *, serves: bool) -> None:
    """Attack: `--kv-cache-dtype nvfp4` passed on H100 in releases that take it on Blackwell only."""
    answer = ask("llama-3.1-8b", on, version=version, tp=1, launch=Launch(flags={"kv-cache-dtype": "nvfp4"}))
    assert (answer.backend.name == "FLASHINFER") == serves
    assert answer.passes == serves


@pytest.mark.parametrize(
    ("version", "flags", "backend"),
    [
        ("0.11.2", {}, "TRITON_MLA"),
        ("0.11.2", {"kv-cache-dtype": "fp8"}, None),
        ("0.17.1", {"kv-cache-dtype": "fp8"}, None),
        ("0.18.0", {"kv-cache-dtype": "fp8"}, "TRITON_MLA"),
        ("0.11.2", {"block-size": "1"}, "ROCM_AITER_MLA"),
        ("0.11.2", {"block-size": "1", "attention-backend": "TRITON_MLA"}, None),
        ("0.32.0", {"block-size": "1", "attention-backend": "TRITON_MLA"}, None),
        ("0.32.0", {"block-size": "32", "attention-backend": "TRITON_MLA"}, "TRITON_MLA"),
        ("0.32.0", {"attention-backend": "ROCM_AITER_MLA"}, "ROCM_AITER_MLA"),
    ],
)
def test_mla_on_amd_without_aiter(version: str, flags: dict[str, str], backend: str | None) -> None:
    """Attack: FP8 caches in TRITON_MLA before 0.18.0, and a block size that the named backend refuses, passed."""
    answer = ask("deepseek-r1", "mi300x", version=version, launch=Launch(flags=flags))
    assert answer.backend.determined
    assert answer.backend.name == backend


@pytest.mark.parametrize(("block", "passes"), [("24", False), ("32", True)])
def test_a_block_size_fits_the_named_backend(block: str, *, passes: bool) -> None:
    flags = {"block-size": block, "attention-backend": "TRITON_ATTN"}
    assert ask("llama-3.1-8b", "h100", version="0.28.0", tp=1, launch=Launch(flags=flags)).passes == passes


def test_aiters_attention_is_not_chosen_without_its_variable() -> None:
    """Only a launch that names the backend does without the variable."""
    backend = ask("gpt-oss-120b", "mi300x", version="0.32.0", tp=1, launch=Launch()).backend
    assert backend.rejected["ROCM_AITER_FA"] == "AITER is off"


@pytest.mark.parametrize(
    ("kv", "bytes_per_head"),
    [("bfloat16", 256), ("fp8", 128), ("nvfp4", 64 + 8), ("int8_per_token_head", 128 + 4), ("int4_per_token_head", 68)],
)
def test_narrow_caches_take_the_bytes_that_vllm_budgets(kv: str, bytes_per_head: int) -> None:
    """Heads of 128: FP4 has one FP8 scale per 16 elements, and a scale per token and head has four bytes."""
    answer = ask("llama-3.1-8b", "b200", version="0.32.0", tp=1, launch=Launch(flags={"kv-cache-dtype": kv}))
    layers, heads = 32, 8
    assert answer.memory.capacity is not None
    assert answer.memory.capacity.request_bytes == 131_072 * layers * heads * 2 * bytes_per_head


def test_a_cache_whose_bytes_are_not_known_is_undetermined() -> None:
    """Attack: caches that the memory arithmetic does not know were counted in bf16 without a word."""
    line = "vllm serve meta-llama/Llama-3.1-8B-Instruct --kv-cache-dtype turboquant_k8v4"
    answered = penstock.preflight(on="h100", command=line, strict=True)
    assert answered.answers[0].readiness is Readiness.UNDETERMINED
    assert not answered.good
    # In bf16 the context would not fit. Whether it fits in three bits is not known, so that is no obstacle.
    line = "vllm serve meta-llama/Llama-3.3-70B-Instruct -tp 2 --kv-cache-dtype turboquant_3bit_nc"
    assert penstock.preflight(on="h100:2", command=line).answers[0].passes


@pytest.mark.parametrize(
    ("on", "version", "flags", "backend"),
    [
        ("mi300x", "0.32.0", {}, "TRITON_ATTN"),
        ("mi300x", "0.31.0", {}, "ROCM_ATTN"),
        ("mi300x", "0.31.0", {"attention-backend": "ROCM_AITER_FA"}, None),
        ("mi300x", "0.32.0", {"attention-backend": "ROCM_AITER_UNIFIED_ATTN"}, None),
        ("mi300x", "0.32.0", {"language-model-only": "true"}, "ROCM_ATTN"),
        ("mi300x", "0.32.0", {"limit-mm-per-prompt": '{"image": 0}'}, "ROCM_ATTN"),
        ("mi300x", "0.32.0", {"limit-mm-per-prompt": '{"image": 2}'}, "TRITON_ATTN"),
        ("h100", "0.32.0", {}, "TRITON_FLASH_ATTN"),
        ("h100", "0.27.1", {}, "TRITON_ATTN"),
        ("h100", "0.12.0", {}, "FLASH_ATTN"),
    ],
)
def test_image_attention_in_both_directions_excludes_backends(
    on: str, version: str, flags: dict[str, str], backend: str | None
) -> None:
    launch = Launch(flags=flags, environment={"VLLM_ROCM_USE_AITER": "1"})
    answer = ask("gemma-3-27b", on, version=version, tp=1, launch=launch)
    assert answer.backend.name == backend
    assert any(found.kind == "backend" for found in answer.obstacles) == (backend is None)


@pytest.mark.parametrize(
    ("version", "drafts", "decode"),
    [("0.27.1", 3, "piecewise"), ("0.27.1", 0, "full"), ("0.32.0", 3, "full"), ("0.25.0", 3, "full")],
)
def test_triton_mla_captures_single_tokens_in_some_releases(version: str, drafts: int, decode: str) -> None:
    launch = Launch(flags={"speculative-num-draft-tokens": str(drafts)}, environment={"VLLM_ROCM_USE_AITER": "0"})
    answer = ask("deepseek-r1", "mi300x", version=version, launch=launch)
    assert answer.backend.name == "TRITON_MLA"
    assert answer.graphs is not None
    assert answer.graphs.decode == decode


def test_graphs_follow_the_least_capable_layer_and_the_launch() -> None:
    chunked = ask("llama-4-scout", "mi300x")
    assert chunked.backend.graphs is GraphSupport.NEVER
    assert chunked.graphs is not None
    assert chunked.graphs.decode == "piecewise"
    eager = ask("llama-3.1-70b", "mi300x", launch=Launch(flags={"enforce-eager": "true"}))
    assert eager.graphs is not None
    assert eager.graphs.decode == "none"
    sglang = ask("llama-3.1-70b", "mi300x", engine="sglang", version="0.5.18")
    assert sglang.graphs is not None
    assert (sglang.graphs.decode, sglang.graphs.mixed) == ("full", "none")


@pytest.mark.parametrize(
    ("on", "tp", "kv", "found"),
    [
        ("mi300x", 8, "bf16", True),  # 128 heads over 8: 16, the head count everything was written for
        ("mi300x", 8, "fp8", True),
        ("mi300x", 4, "bf16", True),
        ("mi300x", 4, "fp8", False),  # 32 heads with an fp8 cache: gfx950 has it, gfx942 does not
        ("mi355x", 4, "fp8", True),
    ],
)
def test_aiters_mla_kernels_by_heads_and_cache(on: str, tp: int, kv: str, found: bool) -> None:  # noqa: FBT001
    launch = Launch(flags={"kv-cache-dtype": kv}, environment={"VLLM_ROCM_USE_AITER": "1"})
    lookup = ask("deepseek-r1", on, tp=tp, launch=launch).aiter
    assert lookup is not None
    assert lookup.found is found


def test_aiter_is_not_asked_where_it_has_no_part() -> None:
    assert ask("deepseek-r1", "h200").aiter is None
    assert ask("llama-3.1-70b", "mi300x").aiter is None


def test_an_emulated_format_is_not_priced_as_native() -> None:
    accelerator = load_accelerator("mi355x")
    emulated = ask("gpt-oss-120b", "mi300x", tp=1).executed_model
    native = ask("gpt-oss-120b", "mi355x", tp=1).executed_model
    multiplied = {weight.format.multiplied_as for weight in emulated.weights if weight.format.name == "mxfp4"}
    assert multiplied == {"bf16"}
    assert compute_precision("mxfp4", accelerator) == "fp4"
    assert all(weight.format.widened_to is None for weight in native.weights)
    assert emulated.weight_bytes == native.weight_bytes


def test_an_expanded_format_takes_the_memory_of_bf16() -> None:
    from penstock.model.weight import MXFP8  # noqa: PLC0415
    from penstock.preflight.predictions.weight_kernels import as_executed, predict_kernels  # noqa: PLC0415

    model = open_checkpoint("mixtral-8x7b").spec.stored_as(MXFP8)
    facts = {"engine": "vllm", "chip": "gfx942", "platform": "rocm"}
    groups = predict_kernels(model, facts, KNOWLEDGE.kernels)
    assert {group.kernel for group in groups if group.group == "experts"} == {KernelClass.EXPANDED}
    assert as_executed(model, groups).weight_bytes > 1.8 * model.weight_bytes


def test_a_format_nobody_read_is_undetermined_not_native() -> None:
    answer = ask("deepseek-r1", "gaudi3")
    assert {group.kernel for group in answer.kernels} == {KernelClass.UNDETERMINED}
    assert answer.readiness in {"undetermined", "blocked"}


def test_aiter_switches_between_its_kernels_and_triton() -> None:
    on = ask("deepseek-r1", "mi300x", launch=Launch(environment={"VLLM_ROCM_USE_AITER": "1"}))
    off = ask("deepseek-r1", "mi300x", launch=Launch())
    assert on.kernels[0].kernel is KernelClass.NATIVE
    assert off.kernels[0].kernel is KernelClass.TRITON
    assert "quant-fp8-without-aiter" in {finding.rule.id for finding in off.assessment.findings}


def test_memory_is_that_of_fit() -> None:
    answer = ask("deepseek-r1", "h100", tp=8)
    placed = Deployment(
        model=answer.question.subject.model,
        accelerator=load_accelerator("h100"),
        engine=engine_defaults("vllm", load_accelerator("h100"), version="0.27.1", tp=8),
        parallelism=Parallelism(tp=8),
    )
    assert answer.memory.deployment.engine == replace(placed.engine, redundant_experts=0)  # the launch names none
    assert not answer.memory.fits
    assert any(obstacle.kind == "memory" for obstacle in answer.obstacles)


def test_a_host_fact_nobody_knows_is_refused() -> None:
    with pytest.raises(UsageError, match="rocm"):
        ask("llama-3.1-70b", "mi300x", host={"rcom": "7.2"})


def test_recipes_say_where_a_model_was_run() -> None:
    flash = ask("deepseek-v4-flash", "mi300x", tp=1).recipe
    assert flash is not None
    assert flash.status == "unsupported"
    verified = ask("gpt-oss-120b", "mi300x", tp=1).recipe
    assert verified is not None
    assert verified.status == "verified"
    assert ("VLLM_ROCM_USE_AITER", "1") in {(setting.name, setting.value) for setting in verified.variables}
    assert ("block-size", "64") in {(setting.name, setting.value) for setting in verified.flags}
    assert ask("gpt-oss-120b", "h200", tp=1).recipe is not None
    assert ask("gpt-oss-120b", "mi300x", tp=1, engine="sglang", version="0.5.18").recipe is None


def test_what_a_recipe_sets_for_amd_is_for_chips_that_have_aiter() -> None:
    older = ask("gpt-oss-20b", "mi210")
    assert older.backend.name == "TRITON_ATTN"
    assert "attention-backend" not in {flag.name for flag in older.plan.flags}


@pytest.mark.parametrize(
    ("model", "on", "tp", "backend"),
    [
        ("llama-3.1-70b", "h100", 8, "fa3"),
        ("llama-3.1-70b", "b200", 8, "trtllm_mha"),
        ("llama-3.1-8b", "a100", 1, "flashinfer"),
        ("llama-3.1-70b", "mi300x", 8, "aiter"),
        ("gpt-oss-120b", "a100", 1, "triton"),
        ("gpt-oss-20b", "l40s", 1, "triton"),
        ("gpt-oss-120b", "h200", 1, "fa3"),
        ("deepseek-r1", "h200", 8, "fa3"),
        ("deepseek-r1", "b200", 8, "trtllm_mla"),
        ("deepseek-v2-lite", "b200", 1, "flashinfer"),
        ("deepseek-v3.2", "h200", 8, "dsa"),
        ("deepseek-v4-flash", "h200", 8, "dsv4"),
        ("gemma-4-31b", "h100", 1, "triton"),
        ("minimax-m3", "b200", 8, "fa4"),
        ("step-3.7-flash", "b200", 8, "fa4"),
    ],
)
def test_the_one_backend_sglang_takes(model: str, on: str, tp: int, backend: str) -> None:
    answer = ask(model, on, engine="sglang", version="0.5.18", tp=tp, launch=Launch())
    assert (answer.backend.name, answer.backend.determined) == (backend, True)
    # The function that chooses is another one in earlier releases.
    assert ask(model, on, engine="sglang", version="0.5.16", tp=tp, launch=Launch()).backend.name is None


@pytest.mark.parametrize(("tp", "backend"), [(8, "aiter"), (4, "triton"), (1, "aiter")])
def test_sglang_gives_aiter_mla_of_16_or_128_heads(tp: int, backend: str) -> None:
    assert 128 // tp in ({16, 128} if backend == "aiter" else {32})
    assert (
        ask("deepseek-r1", "mi325x", engine="sglang", version="0.5.18", tp=tp, launch=Launch()).backend.name == backend
    )


def test_a_backend_the_launch_names_is_the_one_sglang_takes() -> None:
    launch = Launch(flags={"attention-backend": "flashinfer"})
    assert (
        ask("llama-3.1-8b", "h100", engine="sglang", version="0.5.18", tp=1, launch=launch).backend.name == "flashinfer"
    )


def test_a_context_our_median_misses_by_a_hair_is_a_risk_and_one_far_off_stops() -> None:
    # Llama-3.3-70B in bf16 on one MI300X, as AMD's recipe starts it: 131,072 tokens, of which the median holds 99%.
    near = ask("llama-3.3-70b", "mi300x", version="0.32.0", tp=1, launch=Launch())
    assert near.memory.obstacle_is("context")
    assert (near.memory.certain, near.obstacles, near.readiness) == (False, (), Readiness.RISK)
    assert near.narrow is not None
    assert near.narrow.kind == "context"
    far = ask("llama-3.1-70b", "h100", version="0.32.0", tp=2, launch=Launch())
    assert [stop.kind for stop in far.obstacles] == ["context"]
    assert (far.narrow, far.readiness) == (None, Readiness.BLOCKED)


@pytest.mark.parametrize(
    "launch",
    [
        Launch(flags={"max-model-len": "262144"}, environment={"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}),
        Launch(flags={"max-model-len": "262144", "hf-overrides": '{"rope_parameters": {"factor": 8.0}}'}),
    ],
)
def test_a_context_beyond_the_models_own_starts_where_the_launch_says_so(launch: Launch) -> None:
    plain = Launch(flags={"max-model-len": "262144"})
    assert [stop.kind for stop in ask("llama-3.1-8b", "h200", tp=1, launch=plain).obstacles] == ["context"]
    assert ask("llama-3.1-8b", "h200", tp=1, launch=launch).obstacles == ()
