"""Answers that belong together agree: preflight and fit, the verdict and its reasons, the proposal and the command."""

import shlex
from io import StringIO

import pytest
from rich.console import Console

import penstock
from penstock.preflight import Preflight, Readiness
from penstock.preflight.strict_failures import strict_failures

LLAMA = "vllm serve meta-llama/Llama-3.1-8B-Instruct"


def shown(answer: penstock.PreflightAnswer) -> str:
    written = StringIO()
    Console(file=written, width=200).print(answer.render(200))
    return written.getvalue()


@pytest.mark.parametrize(("on", "version", "kv"), [("b200:8", "0.32.0", "fp8"), ("b200:8", "0.31.0", "bf16")])
def test_fit_and_preflight_take_the_cache_type_that_the_engine_chooses(on: str, version: str, kv: str) -> None:
    line = "vllm serve zai-org/GLM-5.2-FP8 -tp 8"
    (answer,) = penstock.preflight("glm-5.2-fp8", on, command=line, engine_version=version).answers
    (row,) = penstock.fit("glm-5.2-fp8", on, engine_version=version).rows()
    assert row["cache_dtype"] == answer.facts["kv.stored"] == kv
    assert answer.memory.capacity is not None
    assert row["kv_tokens"] == answer.memory.capacity.tokens
    text = shown(penstock.preflight("glm-5.2-fp8", on, command=line, engine_version=version))
    assert ("tokens of KV cache in fp8, for requests of up to 1,048,576 tokens" in text) == (kv == "fp8")


@pytest.mark.parametrize(
    ("model", "on", "version", "kv"),
    [
        ("deepseek-v3.2", "b200:8", "0.5.18", "fp8"),
        ("deepseek-v3.2", "b200:8", "0.5.4", "fp8"),
        ("glm-5-fp8", "b300:8", "0.5.9", "fp8"),
        ("deepseek-v3.2", "h200:8", "0.5.18", "bf16"),
        ("glm-5-fp8", "mi355x:8", "0.5.18", "bf16"),
        ("deepseek-v3", "b200:8", "0.5.18", "bf16"),
    ],
)
def test_sglang_stores_the_cache_of_sparse_mla_in_fp8_on_blackwell(model: str, on: str, version: str, kv: str) -> None:
    (answer,) = penstock.preflight(model, on, engine="sglang", engine_version=version).answers
    (row,) = penstock.fit(model, on, engine="sglang", engine_version=version).rows()
    assert row["cache_dtype"] == answer.facts["kv.stored"] == kv
    assert answer.memory.deployment.chosen_cache_dtype.value == kv


def test_a_recipe_s_setting_for_a_chip_replaces_its_general_one() -> None:
    for on, kv in (("h200:8", "fp8"), ("b200:8", "fp8_e4m3")):
        (answer,) = penstock.preflight("glm-5.2-fp8", on, engine_version="0.23.0").answers
        assert answer.passes
        assert answer.launch.flag("kv-cache-dtype") == kv
    (hopper,) = penstock.preflight("glm-5.2-fp8", "h200:8", engine_version="0.23.0").answers
    assert hopper.cut is not None
    assert hopper.launch.flag("max-model-len") == str(hopper.cut.tokens)
    typed = "vllm serve zai-org/GLM-5.2-FP8 -tp 8 --kv-cache-dtype fp8_e4m3"
    (refused,) = penstock.preflight("glm-5.2-fp8", "h200:8", command=typed, engine_version="0.23.0").answers
    assert not refused.passes


def test_glm_5_3_is_stored_in_fp8_and_its_bf16_copy_has_a_name_of_its_own() -> None:
    narrow, wide, before = (
        penstock.fit(name, "b300:8").reports[0].fit.budget for name in ("glm-5.3", "GLM-5.3-BF16", "glm-5.2-fp8")
    )
    assert narrow is not None
    assert wide is not None
    assert before is not None
    assert narrow.weight_bytes == before.weight_bytes
    assert wide.weight_bytes > 1.9 * narrow.weight_bytes


def test_an_image_is_named_only_for_a_release_that_is_known() -> None:
    for version, named in (("0.33.0", True), ("0.40.0", False)):
        (answer,) = penstock.preflight("llama-3.1-8b", "h100", engine_version=version).answers
        assert (answer.plan.image is not None) == named


def test_measurements_of_the_same_shape_and_format_decide_the_kernels() -> None:
    def verdict(model: str) -> Readiness:
        return penstock.preflight(model, "mi355x:8", engine="atom").answers[0].readiness

    assert verdict("deepseek-r1-0528-mxfp4") is Readiness.RUNS
    assert verdict("llama-3.1-405b-mxfp4") is Readiness.UNDETERMINED


def test_aiter_off_costs_more_with_experts() -> None:
    lost = {}
    for model, line in (
        ("llama-3.1-70b", "meta-llama/Llama-3.1-70B-Instruct"),
        ("mixtral-8x7b", "mistralai/Mixtral-8x7B-Instruct-v0.1"),
    ):
        (speed,) = penstock.preflight(model, "mi300x:4", command=f"vllm serve {line} -tp 4").speeds
        assert speed is not None
        (cost,) = [one for one in speed.costs.priced if one.setting.startswith("AITER")]
        lost[model] = speed.costs.lost_fractions(cost)[1]
    assert lost["mixtral-8x7b"] == pytest.approx(0.11 / 1.11)
    assert lost["llama-3.1-70b"] == pytest.approx(0.05 / 1.05)


def kept(command: str, on: str) -> list[str]:
    found = penstock.preflight(on=on, command=command)
    assert not found.answers[0].passes
    (ours,) = found.instead
    assert isinstance(ours, Preflight)
    assert ours.passes
    return shlex.split(ours.plan.bare().replace("\\\n", " "))


def test_the_proposal_keeps_the_flags_that_were_right() -> None:
    words = kept(
        f"OMP_NUM_THREADS=4 {LLAMA} --swap-space 4 --max-model-len 32k --served-model-name me --port 9000", "h100"
    )
    assert {"OMP_NUM_THREADS=4", "--max-model-len", "32k", "--served-model-name", "me", "--port", "9000"} <= set(words)
    assert "--swap-space" not in words


def test_the_proposal_leaves_out_what_is_in_the_way() -> None:
    words = kept(f"{LLAMA} --kv-cache-dtype fp8_e5m2 --attention-backend FLASH_ATTN --max-num-seqs 64", "h100")
    assert {"fp8_e5m2", "--max-num-seqs"} <= set(words)
    assert "FLASH_ATTN" not in words
    sglang = "python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-R1 --tp 8 --enable-dp-atention"
    words = kept(f"{sglang} --host 0.0.0.0 --speculative-algorithm EAGLE --speculative-num-draft-tokens 4", "h200:8")
    assert words.count("--host") == words.count("--speculative-num-draft-tokens") == 1


def test_a_verdict_names_its_reason() -> None:
    slow = penstock.preflight("qwen3-32b-fp8", "l40s:2")
    assert slow.answers[0].readiness is Readiness.SLOW
    assert "slow: " in shown(slow)
    unread = shown(penstock.preflight("llama-3.1-405b-mxfp4", "mi355x:8", engine="atom"))
    assert "undetermined: which kernels atom has for mxfp4 and bf16 on mi355x was not read" in unread.replace("\n", " ")
    other = shown(penstock.preflight("llama-3.1-8b", "gaudi3"))
    assert "undetermined: no rule covers gaudi3" in other.replace("\n", " ")
    command = shown(penstock.preflight("deepseek-r1", "mi300x:8", command="vllm serve deepseek-ai/DeepSeek-R1 -tp 8"))
    assert (
        "host-mec-firmware; to decide, state --host mec_firmware=... and --host install=..., or use --host here"
        in command
    )


def test_a_model_that_is_not_read_prints_why_strict_fails() -> None:
    answer = penstock.preflight("deepseek-ai/DeepSeek-V4.1-Flash", "mi355x:8", strict=True)
    assert not answer.good
    assert "--strict fails: undetermined: memory, kernels and speed" in shown(answer)


def test_drafting_without_draft_layers_is_a_risk_or_certain_to_stop() -> None:
    drafts = """ --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'"""
    (answer,) = penstock.preflight("llama-3.1-8b", "h100", command=LLAMA + drafts).answers
    assert answer.readiness is Readiness.BLOCKED
    line = "vllm serve moonshotai/Kimi-K2.5 -tp 8" + drafts
    assert penstock.preflight("kimi-k2.5", "b200:8", command=line).answers[0].readiness is Readiness.RISK
    line = "vllm serve deepseek-ai/DeepSeek-R1 -tp 8" + drafts
    assert penstock.preflight("deepseek-r1", "h200:8", command=line).answers[0].readiness is Readiness.RUNS


@pytest.mark.parametrize(("tokens", "passes"), [(22_000, False), (8_064, True)])
def test_strict_fails_a_context_that_fits_by_the_median_only(tokens: int, *, passes: bool) -> None:
    """Attack: a launch was called tight, and `--strict` passed it."""
    line = f"vllm serve meta-llama/Llama-3.3-70B-Instruct -tp 2 --max-model-len {tokens}"
    answered = penstock.preflight(on="h100:2", command=line, strict=True)
    assert answered.good == passes
    assert (answered.answers[0].readiness is Readiness.RISK) != passes
    assert ("--max-model-len 8064 fits there too" in shown(answered)) != passes


def test_the_hint_at_a_shorter_context_says_how_sure_it_is() -> None:
    text = shown(penstock.preflight(on="h100:2", command="vllm serve meta-llama/Llama-3.3-70B-Instruct -tp 2"))
    assert "--max-model-len 16384 fits by the median estimate, 8064 at its P90" in text


def test_a_context_beyond_the_models_limit_is_named_with_the_lack_of_memory() -> None:
    text = shown(penstock.preflight(on="h100", command="vllm serve openai/gpt-oss-120b --max-model-len 137626"))
    assert "the model allows at most 131,072" in text


def test_sglang_takes_the_context_of_the_config() -> None:
    """Attack: the answer said 8,192 tokens for a server that takes 163,840."""
    line = "python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-R1 --tp 8"
    for answered in (
        penstock.preflight(on="h200:8", command=line),
        penstock.preflight("deepseek-r1", "h200:8", engine="sglang"),
    ):
        assert "for requests of up to 163,840 tokens" in shown(answered)


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        (f"{LLAMA} extra", True),
        (f"{LLAMA} > log.txt", False),
        (f"{LLAMA} $MORE --port 80", False),
        ("vllm serve --model meta-llama/Llama-3.1-8B-Instruct", False),
        (f"{LLAMA} --port 80", False),
    ],
)
def test_vllm_serve_takes_one_argument(line: str, refused: bool) -> None:  # noqa: FBT001
    (answer,) = penstock.preflight("llama-3.1-8b", "h100", command=line, engine_version="0.27.1").answers
    assert any("takes one argument" in obstacle.text for obstacle in answer.obstacles) is refused
    assert answer.passes is not refused


@pytest.mark.parametrize(
    ("version", "switch", "refused"),
    [
        ("0.9.2", "--enforce-eager true", True),
        ("0.9.2", "--enforce-eager", False),
        ("0.8.4", "--enable-chunked-prefill True", False),
        ("0.8.5", "--enable-chunked-prefill True", True),
    ],
)
def test_a_switch_takes_no_value(version: str, switch: str, refused: bool) -> None:  # noqa: FBT001
    line = f"{LLAMA} {switch}"
    (answer,) = penstock.preflight("llama-3.1-8b", "h100", command=line, engine_version=version).answers
    assert answer.passes is not refused


@pytest.mark.parametrize(("version", "unread"), [("0.7.1", True), ("0.8.0", False), ("0.50.0", True)])
def test_a_release_that_was_not_read_fails_a_strict_question(version: str, unread: bool) -> None:  # noqa: FBT001
    answer = penstock.preflight("llama-3.1-8b", "h100", engine_version=version)
    assert any(reason.startswith("unread: ") for reason in strict_failures(answer.answers[0])) is unread
    assert ("this release was not read" in shown(answer)) is unread
