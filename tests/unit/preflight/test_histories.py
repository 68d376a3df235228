"""Known histories as verdicts: what broke when, and where."""

from collections.abc import Sequence

import pytest

from penstock.catalog import load_accelerator
from penstock.checkpoint import open_checkpoint
from penstock.fleet import Parallelism, Release
from penstock.fleet.engines import EngineName
from penstock.preflight import (
    Launch,
    LaunchChoices,
    Preflight,
    PreflightQuestion,
    Readiness,
    StoredFacts,
    Subject,
    check,
    load_knowledge,
    parse_command,
    read_scheme,
)
from penstock.preflight.facts.subject import subject_of
from penstock.preflight.predictions.fp8_dialect import Treatment, predict_dialect
from penstock.preflight.predictions.weight_kernels import KernelClass
from penstock.preflight.rules.condition import Unknown
from penstock.preflight.rules.findings import Finding

KNOWLEDGE = load_knowledge()
STORED_FP8_WITHOUT_KV = StoredFacts(dtypes=frozenset({"F8_E4M3", "BF16", "F32"}), kinds=frozenset({"weight_scale"}))
STORED_FP8_WITH_KV = StoredFacts(
    dtypes=frozenset({"F8_E4M3", "BF16", "F32"}), kinds=frozenset({"weight_scale", "k_scale", "v_scale"})
)


def ask(
    model: str | Subject,
    on: str,
    *,
    engine: EngineName = "vllm",
    version: str = "0.27.1",
    tp: int = 1,
    kv: str | None = None,
    context: int | None = None,
    launch: Launch | None = None,
    host: dict[str, str] | None = None,
) -> Preflight:
    subject = subject_of(open_checkpoint(model), model) if isinstance(model, str) else model
    asked = LaunchChoices(parallelism=Parallelism(tp=tp), cache_dtype=kv, context_tokens=context)
    question = PreflightQuestion(
        subject=subject,
        accelerator=load_accelerator(on),
        engine=engine,
        version=Release(version),
        asked=asked,
        launch=launch,
        host=host,
    )
    return check(question, KNOWLEDGE)


def findings(answer: Preflight) -> Sequence[Finding]:
    return answer.assessment.findings


def found(answer: Preflight) -> set[str]:
    return {finding.rule.id for finding in findings(answer)}


@pytest.mark.parametrize("accelerator", ["mi300x", "mi325x"])
@pytest.mark.parametrize(
    ("version", "tp", "verdict"),
    [
        ("0.21.0", 1, Readiness.BLOCKED),  # gfx950 only
        ("0.23.0", 1, Readiness.BLOCKED),
        ("0.24.0", 1, Readiness.SILENT_WRONG),  # functional, the indexer's query in the wrong dialect
        ("0.25.0", 1, Readiness.SLOW),  # right, on Triton fallbacks
        ("0.26.0", 1, Readiness.SLOW),
        ("0.26.0", 4, Readiness.RISK),  # beyond one device it did not validate, and InferenceX ran it
        ("0.27.0", 4, Readiness.SLOW),
    ],
)
def test_deepseek_v4_flash_on_gfx942_by_release(accelerator: str, version: str, tp: int, verdict: Readiness) -> None:
    # The model's recipe calls MI300X unsupported and MI325X verified.
    expected = Readiness.RISK if (accelerator, verdict) == ("mi300x", Readiness.SLOW) else verdict
    assert ask("deepseek-v4-flash", accelerator, version=version, tp=tp).readiness is expected


def test_deepseek_v4_flash_may_be_garbled_on_gfx950_before_0_25_and_runs_after() -> None:
    assert ask("deepseek-v4-flash", "mi355x", version="0.23.0", tp=4).readiness is Readiness.RISK
    assert ask("deepseek-v4-flash", "mi355x", version="0.27.1", tp=4).passes


def modelopt_fp8() -> Subject:
    """NVIDIA's usual export: per-tensor FP8, named by hf_quant_config.json."""
    checkpoint = open_checkpoint("llama-3.1-70b")
    from penstock.model import read_model  # noqa: PLC0415
    from penstock.model.config_json import Config  # noqa: PLC0415

    assert checkpoint.config is not None
    sidecar = Config(
        {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}},
        "hf_quant_config.json",
    )
    model = read_model(checkpoint.config, "llama-fp8", sidecar)
    return Subject(model=model, scheme=read_scheme(model, checkpoint.config, sidecar), name="nvidia/Llama-FP8")


@pytest.mark.parametrize(("version", "blocked"), [("0.27.1", True), ("0.32.0", True)])
@pytest.mark.parametrize("accelerator", ["mi300x", "mi325x", "mi308x"])
def test_modelopt_per_tensor_fp8_does_not_run_on_fnuz_chips(accelerator: str, version: str, blocked: bool) -> None:  # noqa: FBT001
    answer = ask(modelopt_fp8(), accelerator, version=version)
    assert ("fp8-modelopt-tensor-on-fnuz" in found(answer)) is blocked
    assert answer.dialect[0].treatment is Treatment.UNCONVERTED
    assert answer.readiness is Readiness.BLOCKED


@pytest.mark.parametrize("accelerator", ["mi355x", "h100", "b200"])
def test_modelopt_per_tensor_fp8_runs_where_fp8_is_ocp(accelerator: str) -> None:
    answer = ask(modelopt_fp8(), accelerator, tp=2)
    assert answer.dialect[0].treatment is Treatment.AS_STORED
    assert answer.passes


def test_mi325x_is_fnuz_too_and_mi355x_is_not() -> None:
    assert ask("deepseek-r1", "mi325x", tp=8).facts["chip.fp8"] == "fnuz"
    assert ask("deepseek-r1", "mi300x", tp=8).dialect[0].treatment is Treatment.CONVERTED
    assert ask("deepseek-r1", "mi355x", tp=8).dialect[0].treatment is Treatment.AS_STORED


@pytest.mark.parametrize(("platform", "treatment"), [("rocm", Treatment.REFUSED), ("cuda", Treatment.WIDENED)])
def test_a_chip_without_fp8_units_refuses_on_rocm_and_widens_on_cuda(platform: str, treatment: Treatment) -> None:
    (step,) = predict_dialect({"weights.formats": frozenset({"fp8"}), "chip.fp8": "none", "platform": platform})
    assert step.treatment is treatment


@pytest.mark.parametrize("accelerator", ["mi300x", "mi355x"])
def test_nvfp4_on_amd_loads_emulated(accelerator: str) -> None:
    from penstock.model.weight import NVFP4  # noqa: PLC0415

    checkpoint = open_checkpoint("llama-3.1-70b")
    model = checkpoint.spec.stored_as(NVFP4)
    scheme = read_scheme(model, checkpoint.config, None)
    answer = ask(Subject(model=model, scheme=scheme, name="x"), accelerator, tp=1)
    assert answer.kernels[0].kernel is KernelClass.EMULATED
    assert answer.passes
    assert answer.readiness is Readiness.SLOW


@pytest.mark.parametrize(
    ("accelerator", "engine", "kernel", "passes"),
    [
        ("mi300x", "vllm", KernelClass.WIDENED, True),
        ("mi355x", "vllm", KernelClass.NATIVE, True),
        ("h100", "vllm", KernelClass.WIDENED, True),
        ("b200", "vllm", KernelClass.NATIVE, True),
        ("mi300x", "sglang", KernelClass.NONE, False),
        ("mi355x", "sglang", KernelClass.NATIVE, True),
    ],
)
def test_gpt_oss_mxfp4_by_chip(accelerator: str, engine: EngineName, kernel: KernelClass, passes: bool) -> None:  # noqa: FBT001
    version = "0.27.1" if engine == "vllm" else "0.5.18"
    answer = ask("gpt-oss-120b", accelerator, engine=engine, version=version, tp=2 if accelerator == "h100" else 1)
    experts = next(group for group in answer.kernels if group.group == "experts")
    assert experts.kernel is kernel
    assert answer.passes is passes


def test_gpt_oss_needs_a_backend_with_sinks_on_amd() -> None:
    answer = ask("gpt-oss-120b", "mi300x")
    assert answer.backend.name == "ROCM_AITER_UNIFIED_ATTN"
    _, launch = parse_command("VLLM_ROCM_USE_AITER=1 vllm serve m --attention-backend ROCM_ATTN")
    assert "attention-sinks-in-rocm-attn" in found(ask("gpt-oss-120b", "mi300x", launch=launch))


def stored(model: str, headers: StoredFacts) -> Subject:
    checkpoint = open_checkpoint(model)
    scheme = read_scheme(checkpoint.spec, checkpoint.config, checkpoint.sidecar)
    return Subject(model=checkpoint.spec, scheme=scheme, name=model, stored=headers)


def test_an_fp8_cache_without_scales_is_a_risk_on_fnuz_only() -> None:
    bare = stored("llama-3.1-70b", STORED_FP8_WITHOUT_KV)
    assert ask(bare, "mi300x", kv="fp8").readiness is Readiness.RISK
    assert "kv-fp8-without-scales" not in found(ask(bare, "mi355x", kv="fp8"))
    assert "kv-fp8-without-scales" not in found(ask(bare, "mi300x"))
    assert ask(stored("llama-3.1-70b", STORED_FP8_WITH_KV), "mi300x", kv="fp8").passes


def test_an_fp8_cache_is_undetermined_where_headers_were_not_read() -> None:
    answer = ask("llama-3.1-70b", "mi300x", kv="fp8")
    assert "kv-fp8-without-scales" in {entry.rule.id for entry in answer.assessment.undetermined}
    assert isinstance(answer.facts["kv.scales"], Unknown)


def test_fp8_on_cdna2_is_refused() -> None:
    answer = ask("deepseek-r1", "mi250x", tp=8)
    assert "quant-fp8-block-on-cdna2" in found(answer)
    assert any("no kernel for fp8" in obstacle.text for obstacle in answer.obstacles)


def test_the_runtime_under_graphs_is_known_from_the_image_and_can_be_stated() -> None:
    fixed = ask("llama-3.1-70b", "mi300x", tp=2, version="0.27.1")
    assert str(fixed.facts["host.rocm"]) == "7.2.3"
    assert "graphs-rocm-watchdog" not in found(fixed)
    stated = ask("llama-3.1-70b", "mi300x", tp=2, host={"rocm": "7.2.0"})
    assert "graphs-rocm-watchdog" in found(stated)


@pytest.mark.parametrize("on", ["mi300x", "mi325x", "mi350x", "mi355x"])
def test_sglang_on_several_instincts_is_not_refused(on: str) -> None:
    """InferenceX runs deepseek-r1 with SGLang at tp 8 on ROCm 7.0 and 7.2 every week."""
    answer = ask("deepseek-r1", on, tp=8, engine="sglang", version="0.5.18")
    assert "graphs-rocm-watchdog" in found(answer)
    assert answer.passes


@pytest.mark.parametrize("tp", [2, 4, 8])
@pytest.mark.parametrize("on", ["h100", "h200", "mi300x", "mi325x", "mi355x"])
def test_gpt_oss_is_not_refused_where_engines_pad_its_experts(on: str, tp: int) -> None:
    """vLLM's recipe names tp 2, 4 and 8; InferenceX measured them on H100 and MI300X."""
    answer = ask("gpt-oss-120b", on, tp=tp)
    assert answer.memory.obstacle is None
    assert answer.passes


def test_qwen3_235b_at_tp8_needs_other_experts_than_aiters() -> None:
    answer = ask("qwen3-235b-a22b", "mi300x", tp=8)
    assert answer.facts["model.expert_width_per_rank"] == 1536 // 8
    assert ("VLLM_ROCM_USE_AITER_MOE", "0") in {(setting.name, setting.value) for setting in answer.plan.variables}
    forced = Launch(environment={"VLLM_ROCM_USE_AITER": "1"}, flags={"tensor-parallel-size": "8"})
    assert "model-aiter-expert-width" in found(ask("qwen3-235b-a22b", "mi300x", tp=8, launch=forced))


@pytest.mark.parametrize(
    ("version", "rule", "passes"),
    [
        ("0.17.1", "attention-aiter-mla-heads", False),
        ("0.18.0", "attention-aiter-mla-repeated-heads", True),
        ("0.26.0", "attention-aiter-mla-repeated-heads", True),
        ("0.27.0", "attention-aiter-mla-gluon-on-gfx942", False),
        ("0.27.1", "attention-aiter-mla-gluon-on-gfx942", False),
        ("0.28.0", "attention-aiter-mla-few-heads", True),
        ("0.32.0", "attention-aiter-mla-few-heads", True),
    ],
)
def test_eight_mla_heads_with_aiter_on_gfx942_by_release(version: str, rule: str, passes: bool) -> None:  # noqa: FBT001
    _, launch = parse_command("VLLM_ROCM_USE_AITER=1 vllm serve m -tp 8 --trust-remote-code --max-model-len 8192")
    answer = ask("kimi-k2.5", "mi300x", tp=8, version=version, launch=launch)
    mla = {name for name in found(answer) if name.startswith("attention-aiter-mla")}
    assert (mla, answer.passes) == ({rule}, passes)


@pytest.mark.parametrize(("model", "accelerator"), [("kimi-k2.5", "mi300x"), ("kimi-k3", "mi325x")])
def test_the_launch_goes_round_the_kernel_that_gfx942_does_not_have(model: str, accelerator: str) -> None:
    answer = ask(model, accelerator, tp=8, version="0.27.1")
    assert answer.launch.environment["VLLM_ROCM_USE_AITER_MLA"] == "0"
    assert answer.backend.name == "TRITON_MLA"
    assert not {name for name in found(answer) if name.startswith("attention-aiter-mla")}
    later = ask(model, accelerator, tp=8, version="0.28.0")
    assert (later.backend.name, later.launch.environment.get("VLLM_ROCM_USE_AITER_MLA")) == ("ROCM_AITER_MLA", None)


@pytest.mark.parametrize(
    ("version", "verdict"),
    [
        ("0.5.12.post1", Readiness.RUNS),  # InferenceX measured GLM-5 with it
        ("0.5.13", Readiness.SILENT_WRONG),
        ("0.5.13.post1", Readiness.SILENT_WRONG),
        ("0.5.14", Readiness.SILENT_WRONG),
        ("0.5.15", Readiness.RISK),  # SGLang's half is repaired; which images have the kernel's is not known
        ("0.5.18", Readiness.RISK),
    ],
)
def test_glm_5_2_in_block_fp8_with_sglang_on_gfx950(version: str, verdict: Readiness) -> None:
    answer = ask("glm-5.2-fp8", "mi355x", tp=4, engine="sglang", version=version)
    assert ("quant-sglang-bpreshuffle" in found(answer)) is (verdict is Readiness.SILENT_WRONG)
    assert answer.readiness is verdict
    assert ask("glm-5.2-fp8", "mi300x", tp=8, engine="sglang", version=version).passes


@pytest.mark.parametrize(("version", "wrong"), [("0.5.12", True), ("0.5.14", True), ("0.5.15", False)])
def test_deepseek_v4_with_sglang_on_fnuz_chips(version: str, wrong: bool) -> None:  # noqa: FBT001
    answer = ask("deepseek-v4-flash-fp8", "mi300x", tp=8, engine="sglang", version=version)
    assert ("fp8-sglang-deepseek-v4-cache" in found(answer)) is wrong
    assert answer.passes is not wrong


def test_the_unified_cache_of_sglang_0_5_14_is_right_on_fnuz_chips() -> None:
    line = "SGLANG_HACK_FLASHMLA_BACKEND=unified_kv_triton python3 -m sglang.launch_server --model-path m --tp 8"
    _, launch = parse_command(line)
    for version, right in (("0.5.13", False), ("0.5.14", True)):
        answer = ask("deepseek-v4-flash-fp8", "mi300x", tp=8, engine="sglang", version=version, launch=launch)
        assert ("fp8-sglang-deepseek-v4-cache" not in found(answer)) is right


@pytest.mark.parametrize("model", ["glm-5.2-fp8", "deepseek-v3.2"])
@pytest.mark.parametrize("accelerator", ["mi300x", "mi355x"])
@pytest.mark.parametrize(("version", "stops"), [("0.25.1", False), ("0.26.0", True), ("0.27.0", False)])
def test_sparse_mla_on_aiter_does_not_start_in_one_release(
    model: str,
    accelerator: str,
    version: str,
    stops: bool,  # noqa: FBT001
) -> None:
    answer = ask(model, accelerator, tp=8, version=version)
    assert ("attention-aiter-sparse-metadata" in found(answer)) is stops
    assert answer.passes is not stops
    assert not any(
        "0.26" in finding.rule.fix and "0.26 does not" not in finding.rule.fix for finding in findings(answer)
    )


@pytest.mark.parametrize(
    ("version", "kv", "environment", "stops"),
    [
        ("0.8.5", "fp8", {}, True),
        ("0.10.1", "fp8", {}, True),
        ("0.10.1", "fp8", {"VLLM_MLA_DISABLE": "1"}, False),
        ("0.10.1", "auto", {}, False),
        ("0.10.2", "fp8", {}, False),
    ],
)
def test_dense_mla_with_an_fp8_cache_on_hopper(
    version: str,
    kv: str,
    environment: dict[str, str],
    stops: bool,  # noqa: FBT001
) -> None:
    launch = Launch(flags={"tensor-parallel-size": "8", "kv-cache-dtype": kv}, environment=environment)
    answer = ask("deepseek-r1", "h200_sxm", tp=8, version=version, launch=launch)
    assert ("attention-flashmla-fp8-cache" in found(answer)) is stops


@pytest.mark.parametrize(("version", "context", "risk"), [("0.23.0", None, True), ("0.24.0", 131072, True)])
def test_long_prompts_of_sparse_mla_on_aiter(version: str, context: int | None, risk: bool) -> None:  # noqa: FBT001
    rule = "model-sparse-mla-long-prompts-rocm"
    assert (rule in found(ask("glm-5-fp8", "mi300x", tp=8, version=version, context=context))) is risk
    assert rule not in found(ask("glm-5-fp8", "mi300x", tp=8, version=version, context=16384))
    assert rule not in found(ask("glm-5-fp8", "mi300x", tp=8, version="0.25.0", context=context))


@pytest.mark.parametrize(
    ("version", "risk"), [("0.25.1", False), ("0.27.1", True), ("0.28.0", True), ("0.29.0", False)]
)
def test_aiter_s_all_reduce_with_glm_5_2(version: str, risk: bool) -> None:  # noqa: FBT001
    rule, flags = "model-glm5-aiter-all-reduce", {"tensor-parallel-size": "8", "block-size": "1"}
    typed = Launch(flags=flags, environment={"VLLM_ROCM_USE_AITER": "1"})
    assert (rule in found(ask("glm-5.2-fp8", "mi325x", tp=8, version=version, launch=typed))) is risk
    proposed = ask("glm-5.2-fp8", "mi325x", tp=8, version=version)
    assert rule not in found(proposed)
    assert (proposed.launch.environment.get("VLLM_ROCM_USE_AITER_CUSTOM_AR") == "0") is risk


@pytest.mark.parametrize(
    ("version", "kv", "wrong"), [("0.5.9", "fp8_e4m3", True), ("0.5.9", "auto", False), ("0.5.10", "fp8_e4m3", False)]
)
def test_minimax_m2_5_with_an_fp8_cache_through_fa3(version: str, kv: str, wrong: bool) -> None:  # noqa: FBT001
    launch = Launch(flags={"tp-size": "4", "kv-cache-dtype": kv, "attention-backend": "fa3"})
    answer = ask("minimax-m2.5", "h100_sxm", tp=4, engine="sglang", version=version, launch=launch)
    assert (answer.readiness is Readiness.SILENT_WRONG) is wrong


@pytest.mark.parametrize(("version", "said"), [("0.27.1", True), ("0.28.0", False), ("0.32.0", False)])
def test_a_kernel_that_a_release_has_is_not_announced(version: str, said: bool) -> None:  # noqa: FBT001
    slow = [finding.rule for finding in findings(ask("glm-5.2-fp8", "mi300x", tp=8, version=version))]
    assert [rule for rule in slow if rule.id.startswith("attention-sparse-on-gfx942")]
    assert any("came with 0.28" in rule.message for rule in slow) is said
