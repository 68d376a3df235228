"""What a pasted line says beyond the names of its flags: values, weights, images, devices."""

import pytest

import penstock
from penstock.api.preflight import preflight
from penstock.catalog import load_accelerator, load_models
from penstock.checkpoint import open_checkpoint
from penstock.errors import UsageError
from penstock.fleet import Parallelism, Release
from penstock.fleet.engines import EngineName
from penstock.preflight import Launch, LaunchChoices, Preflight, PreflightQuestion, Readiness, check, load_knowledge
from penstock.preflight.facts.subject import subject_of
from penstock.preflight.launch.flag_values import check_values, takes
from penstock.preflight.launch.recipe import cookbook_settings, find_recipe

KNOWLEDGE = load_knowledge()


def asked(line: str, on: str = "h100:8", version: str | None = None) -> Preflight:
    (answer,) = penstock.preflight(on=on, command=line, engine_version=version).answers
    return answer


def stops(answer: Preflight) -> dict[str, str]:
    return {obstacle.kind: obstacle.text for obstacle in answer.obstacles}


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--max-model-len abc", "is not a whole number"),
        ("--gpu-memory-utilization 1.2", "share of memory"),
        ("--gpu-memory-utilization 90", "share of memory"),
        ("--dtype float8", "no such value"),
        ("--enable-auto-tool-choice --tool-call-parser lama3_json", "did you mean llama3_json?"),
        ("--reasoning-parser deepseek-r1", "did you mean deepseek_r1?"),
        ("--attention-backend FLASH_ATN", "did you mean FLASH_ATTN?"),
        ("--kv-cache-dtype fp9", "did you mean fp8?"),
        ("--max-num-batched-tokens 100 --max-model-len 8192 --no-enable-chunked-prefill", "prompt that is not chunked"),
        ("--max-num-batched-tokens 100 --max-num-seqs 128", "less than --max-num-seqs"),
        ("--quantization awq", "not quantised"),
    ],
)
def test_a_value_the_release_does_not_take_stops_the_start(flags: str, said: str) -> None:
    assert said in stops(asked(f"vllm serve Qwen/Qwen3-8B {flags}"))["flag"]


@pytest.mark.parametrize(
    "flags",
    [
        "--max-model-len 32k",
        "--max-model-len auto",
        "--max-model-len $LENGTH",
        "--attention-backend flash_attn",
        "--tool-call-parser mine",  # not looked up without --enable-auto-tool-choice
        "--reasoning-parser mine --reasoning-parser-plugin mine.py",
        "--dtype bfloat16 --kv-cache-dtype fp8 --gpu-memory-utilization 1.0",
    ],
)
def test_a_value_it_takes_does_not(flags: str) -> None:
    assert asked(f"vllm serve Qwen/Qwen3-8B {flags}").passes


def test_sglang_has_values_of_its_own() -> None:
    line = "python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B --attention-backend"
    assert "did you mean fa4?" in stops(asked(f"{line} fa4x"))["flag"]
    assert asked(f"{line} fa3").passes


@pytest.mark.parametrize("method", ["fp8", "fp8_per_block"])
def test_weights_quantised_while_they_load_take_their_new_size(method: str) -> None:
    plain = "vllm serve meta-llama/Llama-3.3-70B-Instruct -tp 2"
    assert "context" in stops(asked(plain, "h100:2"))
    narrow = asked(f"{plain} --quantization {method}", "h100:2")
    assert narrow.passes
    assert narrow.memory.budget is not None
    assert narrow.memory.budget.weight_bytes < 0.55 * 141e9 / 2
    assert "--quantization" in narrow.plan.bare()


def test_bitsandbytes_narrows_where_the_release_has_it() -> None:
    line = "vllm serve meta-llama/Llama-3.3-70B-Instruct --quantization bitsandbytes --max-model-len 8192"
    assert asked(line, "h100", "0.27.1").passes
    assert not asked(line, "h100", "0.32.0").passes


def test_sglang_quantises_too() -> None:
    line = "python3 -m sglang.launch_server --model-path meta-llama/Llama-3.3-70B-Instruct --tp 2 --quantization fp8"
    assert asked(line, "h100:2").passes


def test_weights_in_host_memory_leave_room_and_are_slow() -> None:
    answer = asked("vllm serve meta-llama/Llama-3.3-70B-Instruct -tp 2 --cpu-offload-gb 40", "h100:2")
    assert answer.passes
    assert answer.memory.budget is not None
    whole = sum(weight.stored_bytes for weight in open_checkpoint("llama-3.3-70b").spec.weights) / 2
    assert answer.memory.budget.weight_bytes == pytest.approx(whole - 40 * 2**30, rel=0.02)
    assert answer.readiness.value == "slow"


def test_an_image_says_which_release_is_started() -> None:
    assert asked("docker run --gpus all vllm/vllm-openai:v0.11.0 --model Qwen/Qwen3-8B --swap-space 4").passes
    old = asked("docker run --gpus all vllm/vllm-openai:v0.10.0 --model openai/gpt-oss-120b -tp 2")
    assert "0.10.0 does not know GptOssForCausalLM" in stops(old)["architecture"]
    with pytest.raises(UsageError, match="disagree"):
        asked("docker run vllm/vllm-openai:v0.11.0 --model Qwen/Qwen3-8B", version="0.32.0")


@pytest.mark.parametrize(
    ("image", "on"),
    [
        ("vllm/vllm-openai-rocm:v0.32.0", "h100"),
        ("vllm/vllm-openai:v0.32.0", "mi300x"),
        ("lmsysorg/sglang:v0.5.18-rocm720-mi30x python3 -m sglang.launch_server", "h200"),
    ],
)
def test_an_image_for_the_other_vendor_does_not_start(image: str, on: str) -> None:
    assert "image" in stops(asked(f"docker run {image} --model Qwen/Qwen3-8B", on))


@pytest.mark.parametrize(("flags", "devices"), [("-tp 4", 4), ("", 1), ("-tp 2 -pp 2", 4)])
def test_a_line_may_use_fewer_devices_than_a_host_has(flags: str, devices: int) -> None:
    answer = asked(f"vllm serve Qwen/Qwen3-8B {flags}", "h100:8")
    assert answer.passes
    assert answer.question.asked.parallelism.devices == devices


@pytest.mark.parametrize("line", ["vllm bench serve --model Qwen/Qwen3-8B", "python -m sglang.bench_serving --model x"])
def test_a_line_that_starts_no_server_is_refused(line: str) -> None:
    with pytest.raises(UsageError, match="does not start a server"):
        asked(line)


def test_a_name_of_ours_is_no_repository() -> None:
    assert stops(asked("vllm serve qwen3-8b"))["model"].endswith("write Qwen/Qwen3-8B")


RELEASES = ("0.6.6", "0.8.5", "0.9.2", "0.10.1", "0.11.0", "0.11.1", "0.12.0", "0.13.0", "0.16.0", "0.20.0", "0.32.0")


@pytest.mark.parametrize("release", RELEASES)
def test_recipes_give_only_values_their_release_has(release: str) -> None:
    version, choices = Release(release), KNOWLEDGE.choices
    for known in load_models():
        for accelerator in ("h200_sxm", "mi300x"):
            recipe = find_recipe(
                known.repo or "",
                load_accelerator(accelerator),
                version,
                KNOWLEDGE.recipes,
                KNOWLEDGE.flags["vllm"],
                choices["vllm"],
            )
            flags = {} if recipe is None else {flag.name: flag.value or "true" for flag in recipe.flags}
            assert check_values(Launch(flags=flags), "vllm", version, KNOWLEDGE) == (), known.id
            assert ("enable-auto-tool-choice" in flags) is ("tool-call-parser" in flags), known.id
            assert "reasoning-parser-plugin" not in flags
            if release == "0.6.6":
                assert "reasoning-parser" not in flags


@pytest.mark.parametrize(
    ("flag", "value", "before", "since"),
    [
        ("tokenizer-mode", "deepseek_v32", "0.12.0", "0.13.0"),
        ("tool-call-parser", "deepseek_v32", "0.12.0", "0.13.0"),
        ("reasoning-parser", "deepseek_v3", "0.11.0", "0.11.1"),
        ("tool-call-parser", "kimi_k2", "0.9.2", "0.10.0"),
        ("tool-call-parser", "deepseek_v31", "0.10.1", "0.10.2"),
        ("tool-call-parser", "glm47", "0.13.0", "0.14.0"),
        ("tool-call-parser", "openai", "0.10.1", "0.10.2"),
        ("attention-backend", "ROCM_AITER_UNIFIED_ATTN", "0.11.0", "0.11.1"),
    ],
)
def test_values_begin_with_the_release_that_registered_them(flag: str, value: str, before: str, since: str) -> None:
    table = KNOWLEDGE.choices["vllm"]
    assert not takes(flag, value, Release(before), table)
    assert takes(flag, value, Release(since), table)


def proposed(model: str, on: str, engine: EngineName, version: str, tp: int = 8, pp: int = 1) -> Preflight:
    question = PreflightQuestion(
        subject=subject_of(open_checkpoint(model), model),
        accelerator=load_accelerator(on),
        engine=engine,
        version=Release(version),
        asked=LaunchChoices(parallelism=Parallelism(tp=tp, pp=pp)),
    )
    return check(question, KNOWLEDGE)


@pytest.mark.parametrize("model", ["kimi-k2", "kimi-k2.5", "minimax-m3", "nemotron-3-nano", "mimo-v2-flash"])
def test_sglang_is_told_to_trust_models_that_bring_code(model: str) -> None:
    repo = open_checkpoint(model).repository or ""
    found = cookbook_settings(repo, Release("0.5.18"), KNOWLEDGE.cookbook, KNOWLEDGE.choices["sglang"])
    assert {"trust-remote-code", "tool-call-parser"} <= {setting.name for setting in found}


def test_parsers_of_the_cookbook_are_those_of_its_release() -> None:
    for release in ("0.4.9", "0.5.4", "0.5.18"):
        for family, entry in KNOWLEDGE.cookbook.items():
            found = cookbook_settings(family, Release(release), KNOWLEDGE.cookbook, KNOWLEDGE.choices["sglang"])
            flags = {setting.name: setting.value or "true" for setting in found}
            assert check_values(Launch(flags=flags), "sglang", Release(release), KNOWLEDGE) == ()
            if release == "0.5.18":
                assert ("tools" in entry) == ("tool-call-parser" in flags), family


def test_a_parser_that_is_a_file_becomes_the_built_in_one() -> None:
    new = proposed("nemotron-3-nano", "h200", "vllm", "0.32.0", tp=1).plan.bare()
    assert "--reasoning-parser nemotron_v3" in new
    old = proposed("nemotron-3-nano", "h200", "vllm", "0.12.0", tp=1).plan.bare()
    assert "reasoning-parser" not in old


def test_the_other_machines_are_headless() -> None:
    plan = proposed("deepseek-r1", "h100", "vllm", "0.32.0", pp=2).plan
    (rank,) = [flag for flag in plan.flags if flag.name == "node-rank"]
    assert "--headless" in rank.why


@pytest.mark.parametrize(
    ("version", "tag"),
    [("0.11", "0.11.0"), ("0.11.0", "0.11.0"), ("0.17.2", None), ("0.11.2.dev3", None), ("0.32", "0.32.0")],
)
def test_images_have_the_tags_of_releases_there_are(version: str, tag: str | None) -> None:
    plan = proposed("qwen3-8b", "h100", "vllm", version, tp=1).plan
    assert plan.image == (None if tag is None else f"vllm/vllm-openai:v{tag}")
    assert plan.unreleased == (tag is None)


def test_sparse_attention_of_sglang_on_amd_is_its_own_backend() -> None:
    for model, accelerator in (("glm-5-fp8", "mi355x"), ("deepseek-v3.2", "mi300x")):
        answer = proposed(model, accelerator, "sglang", "0.5.18")
        assert answer.backend.name == "dsa"
        assert "--attention-backend" not in answer.plan.bare()
        assert "attention-sglang-mla-heads" not in {finding.rule.id for finding in answer.assessment.findings}
    line = "python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3.2 --tp 8 --attention-backend aiter"
    found = {finding.rule.id for finding in asked(line, "mi300x:8").assessment.findings}
    assert "attention-sglang-sparse-overridden" in found


def test_before_the_first_registry_read_nothing_is_known() -> None:
    assert proposed("llama-3.1-8b", "h100", "vllm", "0.2.0", tp=1).architecture.since is None


@pytest.mark.parametrize(
    ("model", "on", "version", "backend", "passes"),
    [
        ("deepseek-v3.2", "b200:8", "0.13.0", "CUTLASS_MLA", False),
        ("deepseek-v3.2", "b200:8", "0.13.0", "FLASHMLA_SPARSE", True),
        ("llama-3.1-70b", "mi300x:8", "0.14.0", "FLASHINFER", False),
        ("llama-3.1-70b", "h200:8", "0.14.0", "FLASH_ATN", False),
        ("llama-3.1-70b", "h200:8", "0.14.0", "FLASHINFER", True),
    ],
)
def test_the_variable_names_a_backend_as_the_flag_does(
    model: str,
    on: str,
    version: str,
    backend: str,
    passes: bool,  # noqa: FBT001 - a table
) -> None:
    serve = "vllm serve x/y -tp 8 --max-model-len 8192"
    flag, variable = (
        preflight(model, on, engine_version=version, command=line).answers[0]
        for line in (f"{serve} --attention-backend {backend}", f"VLLM_ATTENTION_BACKEND={backend} {serve}")
    )
    assert flag.passes is variable.passes is passes
    assert (flag.backend, flag.readiness) == (variable.backend, variable.readiness)


def test_the_variable_is_read_only_in_releases_that_have_it() -> None:
    line = "VLLM_ATTENTION_BACKEND=FLASHINFER vllm serve x/y -tp 8 --max-model-len 8192"
    early, late = (
        preflight("llama-3.1-70b", "mi300x:8", engine_version=version, command=line).answers[0]
        for version in ("0.12.0", "0.32.0")
    )
    assert (early.passes, late.passes) == (False, True)
    assert [flag.problem for flag in late.flags] == ["removed"]


SPECULATIVE = (
    "vllm serve deepseek-ai/DeepSeek-R1 -tp 8 "
    """--speculative-config '{"method": "mtp", "model": "deepseek-ai/DeepSeek-R1", "%s": 2}'"""
)
COMPILATION = """vllm serve deepseek-ai/DeepSeek-R1 -tp 8 --compilation-config '{"%s": true}'"""


@pytest.mark.parametrize(
    ("line", "key", "version", "found"),
    [
        (SPECULATIVE, "num_speculative_tokens", "0.32.0", None),
        (SPECULATIVE, "num_speculative_token", "0.32.0", "did you mean num_speculative_tokens"),
        (SPECULATIVE, "speculative_token_tree", "0.32.0", "was removed in 0.21.0"),
        (SPECULATIVE, "xpress_topc", "0.32.0", "exists from 0.33.0 only"),
        (COMPILATION, "cudagraph_mod", "0.32.0", "did you mean cudagraph_mode"),
        (COMPILATION, "full_cuda_graph", "0.32.0", "was removed in 0.11.1"),
        (COMPILATION, "full_cuda_graph", "0.11.0", None),
    ],
)
def test_keys_inside_json_are_checked(line: str, key: str, version: str, found: str | None) -> None:
    answer = penstock.preflight(on="h200:8", command=line % key, engine_version=version).answers[0]
    texts = [flag.message for flag in answer.flags]
    assert texts == [] if found is None else found in texts[0]
    assert answer.passes == ("did you mean" not in (found or ""))


def test_json_whose_keys_are_not_checked_is_named() -> None:
    line = """vllm serve deepseek-ai/DeepSeek-R1 -tp 8 --hf-overrides '{"anything": 1}'"""
    answer = penstock.preflight(on="h200:8", command=line).answers[0]
    assert answer.notes == ("the keys inside --hf-overrides are not checked",)


@pytest.mark.parametrize(
    ("config", "version", "found"),
    [
        ('{"method": "mtpp", "num_speculative_tokens": 2}', "0.32.0", "did you mean mtp?"),
        ('{"method": "medusa", "model": "a/b", "num_speculative_tokens": 2}', "0.33.0", "was removed in 0.33.0"),
        ('{"method": "dflash", "model": "a/b", "num_speculative_tokens": 2}', "0.18.0", "exists from 0.20.0 only"),
        (
            '{"method": "eagle3", "model": "a/b", "num_speculative_tokens": "two"}',
            "0.32.0",
            "not a whole number above 0",
        ),
        ('{"method": "eagle3", "model": "a/b", "num_speculative_tokens": 0}', "0.32.0", "not a whole number above 0"),
        ('{"method": "eagle3", "num_speculative_tokens": 2}', "0.32.0", "names no model"),
        ('{"num_speculative_tokens": 2}', "0.32.0", "names no model"),
        ('{"method": "eagle3", "model": "a/b", "num_speculative_tokens": "2"}', "0.32.0", None),
        ('{"method": "ngram", "num_speculative_tokens": 2}', "0.32.0", None),
        ('{"method": "suffix", "num_speculative_tokens": 2}', "0.32.0", None),
    ],
)
def test_values_of_speculative_decoding_are_checked(config: str, version: str, found: str | None) -> None:
    """Attack: unknown methods, counts that are no numbers and drafts without a model passed."""
    line = f"vllm serve Qwen/Qwen3-14B --speculative-config '{config}'"
    answer = penstock.preflight(on="h100", command=line, engine_version=version).answers[0]
    texts = [flag.message for flag in answer.flags]
    assert texts == [] if found is None else found in texts[0]
    assert answer.passes == (found is None)


@pytest.mark.parametrize(("model", "passes"), [("Qwen/Qwen3-14B", False), ("moonshotai/Kimi-K2-Instruct", True)])
def test_drafts_of_layers_that_the_model_lacks_stop_where_that_is_certain(model: str, *, passes: bool) -> None:
    line = f"""vllm serve {model} -tp 8 --speculative-config '{{"method": "mtp", "num_speculative_tokens": 1}}'"""
    answer = penstock.preflight(on="b200:8", command=line).answers[0]
    assert answer.passes == passes
    assert any("own layers" in one.text for one in (*answer.obstacles, *answer.possible_obstacles))


@pytest.mark.parametrize(
    ("model", "flag", "passes"),
    [
        ("google/gemma-3-27b-it", "--dtype half", False),
        ("google/gemma-3-27b-it", "--dtype float16", False),
        ("google/gemma-3-27b-it", "--dtype bfloat16", True),
        ("Qwen/Qwen3-14B", "--dtype half", True),
    ],
)
def test_models_that_vllm_refuses_in_float16(model: str, flag: str, *, passes: bool) -> None:
    assert asked(f"vllm serve {model} -tp 2 {flag}", "h100:2").passes == passes


@pytest.mark.parametrize(
    "where", ["CUDA_VISIBLE_DEVICES=MIG-41b3", "docker run --gpus device=MIG-41b3 vllm/vllm-openai:v0.32.0"]
)
def test_a_slice_of_a_device_is_not_counted_as_a_device(where: str) -> None:
    serve = "" if where.startswith("docker") else "vllm serve "
    answered = preflight(on="h100", command=f"{where} {serve}Qwen/Qwen3-14B", strict=True)
    assert answered.answers[0].readiness is Readiness.UNDETERMINED
    assert not answered.good


def test_more_ranks_than_devices_is_an_answer() -> None:
    """Attack: `-tp 8` on four devices ended in a usage error."""
    answered = preflight(on="h200:4", command="vllm serve Qwen/Qwen3-14B -tp 8")
    assert stops(answered.answers[0])["devices"] == "it starts on 8 devices, and there are 4"
    assert answered.instead[0] is not None
    assert answered.instead[0].question.asked.parallelism.devices == 4
    both = "vllm serve Qwen/Qwen3-14B -tp 8 --nnodes 2 --node-rank 0 --master-addr head"
    assert "devices" not in stops(asked(both, "h200:4"))


def test_the_old_form_of_a_json_flag_names_the_new_one() -> None:
    said = stops(asked("vllm serve Qwen/Qwen3-8B --limit-mm-per-prompt image=4"))["flag"]
    assert """write '{"image": 4}'""" in said


@pytest.mark.parametrize(
    ("flags", "version"),
    [
        ("--moe-backend FLASHINFER_CUTLASS", "0.21.0"),
        ("--moe-backend flashinfer-cutlass", "0.33.0"),
        ("--quantization FP8", "0.16.0"),
        ("--load-format SAFETENSORS", "0.11.0"),
        ("--tokenizer-mode AUTO", "0.16.0"),
        ("--limit-mm-per-prompt image=2,video=1", "0.8.5"),
    ],
)
def test_a_spelling_that_the_release_converts_is_not_refused(flags: str, version: str) -> None:
    """Read in engine/arg_utils.py, config/model.py and config/load.py of these releases."""
    assert "flag" not in stops(asked(f"vllm serve Qwen/Qwen3-8B {flags}", version=version))


@pytest.mark.parametrize(
    ("flags", "version"),
    [
        ("--quantization FP8", "0.8.5"),
        ("--load-format SAFETENSORS", "0.8.5"),
        ("--tokenizer-mode AUTO", "0.11.0"),
        ("--limit-mm-per-prompt image=2", "0.11.0"),
        ("--dtype FP16", "0.33.0"),
        ("--kv-cache-dtype FP8", "0.33.0"),
        ("--moe-backend NOT_THIS", "0.33.0"),
    ],
)
def test_a_spelling_that_the_parser_refuses_stops_the_start(flags: str, version: str) -> None:
    assert "flag" in stops(asked(f"vllm serve Qwen/Qwen3-8B {flags}", version=version))


def test_a_method_in_upper_case_changes_the_weights_like_the_other() -> None:
    lower, upper = (
        asked(f"vllm serve Qwen/Qwen3-8B --quantization {name}", version="0.28.0") for name in ("fp8", "FP8")
    )
    assert upper.question.subject.model.formats == lower.question.subject.model.formats
    assert "fp8" in upper.question.subject.model.formats
