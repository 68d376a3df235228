"""Launch commands: each flag exists in the release it is printed for, and a pasted line is read as a shell would."""

import csv
import json
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

import penstock
from penstock.catalog import load_accelerator, load_accelerators, load_models
from penstock.checkpoint import open_checkpoint
from penstock.errors import UsageError
from penstock.fleet import Parallelism, Release
from penstock.fleet.engines import EngineName
from penstock.preflight import (
    Launch,
    LaunchChoices,
    LaunchPlan,
    PreflightQuestion,
    check,
    load_knowledge,
    parse_command,
)
from penstock.preflight.facts.drafting import drafting_of
from penstock.preflight.facts.stated_split import StatedSplit, stated_split
from penstock.preflight.facts.subject import smallest_split, subject_of
from penstock.preflight.launch.images import rocm_of_image
from penstock.preflight.launch.launch_plan import plan_launch
from penstock.preflight.launch.recipe import find_recipe
from penstock.preflight.launch.release_flags import check_flags, expand_abbreviations

KNOWLEDGE = load_knowledge()
ASKED = LaunchChoices(
    parallelism=Parallelism(tp=2, pp=2, dp=2, expert_parallel=True), cache_dtype="fp8", context_tokens=32768
)


def plan(
    model: str, on: str, engine: EngineName = "vllm", version: str = "0.32.0", asked: LaunchChoices = ASKED
) -> LaunchPlan:
    subject = subject_of(open_checkpoint(model), model)
    return plan_launch(subject, load_accelerator(on), engine, Release(version), asked)


def problems(planned: LaunchPlan) -> list[str]:
    found = check_flags(planned.as_launch(), planned.version, KNOWLEDGE.flags[planned.engine])
    return [finding.message for finding in found]


@pytest.mark.parametrize(("engine", "version"), [("vllm", "0.32.0"), ("vllm", "0.24.0"), ("sglang", "0.5.18")])
def test_every_flag_of_every_proposed_launch_exists_in_its_release(engine: EngineName, version: str) -> None:
    accelerators = {accelerator.compute_target: accelerator for accelerator in load_accelerators()}
    for model in load_models():
        subject = subject_of(open_checkpoint(model.id), model.id)
        for accelerator in accelerators.values():
            assert problems(plan_launch(subject, accelerator, engine, Release(version), ASKED)) == []


def typed(command: str) -> list[str]:
    """Read a command as a shell does, which goes on after a backslash."""
    return shlex.split(command.replace("\\\n", " "))


def named_elsewhere() -> dict[str, str]:
    """Repositories as recipes, cookbooks and benchmarks of others write them."""
    with (Path(__file__).parents[2] / "data" / "repositories.csv").open(newline="", encoding="utf-8") as file:
        return {row["model"]: row["repository"] for row in csv.DictReader(file)}


def test_a_catalog_model_is_launched_by_the_repository_others_name() -> None:
    elsewhere = named_elsewhere()
    launched = {known.id: subject_of(open_checkpoint(known.id), known.id).name for known in load_models()}
    assert {name: launched[name] for name in elsewhere} == elsewhere
    # Nobody whose files were read serves these any more, or under this name.
    unnamed = {
        *("allam-7b", "command-r-plus", "deepseek-r1-nvfp4", "falcon-180b", "nemotron-nano-12b-v2"),
        *("olmo-2-13b", "qwen2.5-14b"),
    }
    assert set(launched) - set(elsewhere) == unnamed


@pytest.mark.parametrize(
    ("typed", "shape", "launched"),
    [
        ("kimi-k2.6", "kimi-k2.5", "moonshotai/Kimi-K2.6"),
        ("moonshotai/Kimi-K2.7-Code", "kimi-k2.5", "moonshotai/Kimi-K2.7-Code"),
        ("DeepSeek-R1-0528", "deepseek-r1", "deepseek-ai/DeepSeek-R1-0528"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b", "meta-llama/Meta-Llama-3.1-8B-Instruct"),
        ("NVIDIA/kimi-k2.7-code-nvfp4", "kimi-k2.6-nvfp4", "nvidia/Kimi-K2.7-Code-NVFP4"),
        ("llama-70b", "llama-3.1-70b", "meta-llama/Llama-3.1-70B-Instruct"),
    ],
)
def test_a_repository_of_a_known_shape_is_launched_under_its_own_name(typed: str, shape: str, launched: str) -> None:
    opened = open_checkpoint(typed)
    assert opened.spec == open_checkpoint(shape).spec
    assert subject_of(opened, typed).name == launched


@pytest.mark.parametrize(("typed", "called"), [("./here/config.json", "./here"), ("./here", "./here")])
def test_a_model_on_disk_is_launched_by_its_directory(typed: str, called: str) -> None:
    found = replace(open_checkpoint("phi-4"), repository=None)
    assert subject_of(found, typed).name == called


@pytest.mark.parametrize(("engine", "version"), [("vllm", "0.32.0"), ("sglang", "0.5.18")])
def test_every_printed_command_is_one_a_shell_reads(engine: EngineName, version: str) -> None:
    printed = []
    for known in load_models():
        subject, accelerator = subject_of(open_checkpoint(known.id), known.id), load_accelerator("mi300x")
        asked = LaunchChoices(parallelism=smallest_split(subject, accelerator, None, engine))
        question = PreflightQuestion(
            subject=subject, accelerator=accelerator, engine=engine, version=Release(version), asked=asked
        )
        planned = check(question, KNOWLEDGE).plan
        printed += [planned.bare(), str(planned.docker())]
        assert known.repo in typed(planned.bare())
    read = subprocess.run(["bash", "-n"], input="\n".join(printed), text=True, capture_output=True, check=False)  # noqa: S607
    assert (read.returncode, read.stderr) == (0, "")


def test_the_four_forms_of_a_command() -> None:
    one = LaunchChoices(parallelism=Parallelism(tp=8))
    amd, nvidia = plan("deepseek-r1", "mi300x", asked=one), plan("deepseek-r1", "h200", asked=one)
    repository = "deepseek-ai/DeepSeek-R1"
    assert typed(amd.bare()) == [
        "VLLM_ROCM_USE_AITER=1",
        *("vllm", "serve", repository),
        *("--tensor-parallel-size", "8"),
    ]
    assert typed(nvidia.bare()) == ["vllm", "serve", repository, "--tensor-parallel-size", "8"]
    assert "--device /dev/kfd --device /dev/dri" in str(amd.docker())
    assert "vllm/vllm-openai-rocm:v0.32.0" in str(amd.docker())
    assert "--gpus all" in str(nvidia.docker())
    assert "vllm/vllm-openai:v0.32.0" in str(nvidia.docker())
    sglang = plan("deepseek-r1", "mi300x", "sglang", "0.5.18", one)
    assert typed(sglang.bare())[:5] == [
        *("SGLANG_USE_AITER=1", "python3", "-m", "sglang.launch_server", "--model-path"),
    ]
    assert typed(sglang.bare())[5] == repository
    assert "--attention-backend aiter" in sglang.bare()  # 128 heads over 8 devices
    assert sglang.image == "lmsysorg/sglang:v0.5.18-rocm720-mi30x"
    assert plan("deepseek-r1", "mi355x", "sglang", "0.5.18", one).image == "lmsysorg/sglang:v0.5.18-rocm720-mi35x"


def test_every_flag_and_variable_has_a_reason() -> None:
    for accelerator in ("mi300x", "mi355x", "h100"):
        planned = plan("gpt-oss-120b", accelerator)
        assert all(setting.why for setting in (*planned.flags, *planned.variables))


def test_a_local_checkpoint_is_mounted_and_quoted() -> None:
    subject = subject_of(open_checkpoint("qwen3-32b"), "qwen3-32b")
    from dataclasses import replace  # noqa: PLC0415

    here = plan_launch(
        replace(subject, name="./my models/x; rm -rf ~"),
        load_accelerator("h100"),
        "vllm",
        Release("0.27.1"),
        LaunchChoices(parallelism=Parallelism()),
    )
    assert "'./my models/x; rm -rf ~'" in here.bare()
    assert "-v './my models/x; rm -rf ~':/model:ro" in str(here.docker())


def test_flags_follow_the_release() -> None:
    table = KNOWLEDGE.flags["vllm"]
    pasted = Launch(
        flags={"swap-space": "4", "max-model-len": "8192", "no-enable-prefix-caching": "true", "tensr": "1"},
        environment={"VLLM_ATTENTION_BACKEND": "ROCM_ATTN", "HF_HOME": "/x"},
    )
    old = {finding.name: finding.problem for finding in check_flags(pasted, Release("0.14.1"), table)}
    new = {finding.name: finding for finding in check_flags(pasted, Release("0.18.0"), table)}
    assert old == {"--tensr": "unknown"}
    assert {name: finding.problem for name, finding in new.items()} == {
        "--swap-space": "removed",
        "--tensr": "unknown",
        "VLLM_ATTENTION_BACKEND": "removed",
    }
    assert "--attention-backend" in new["VLLM_ATTENTION_BACKEND"].message
    assert "0.18.0" in new["--swap-space"].message
    early = check_flags(Launch(flags={"attention-backend": "x"}), Release("0.11.0"), table)
    assert [finding.problem for finding in early] == ["too_new"]


def test_a_pasted_line_is_read_with_its_environment_and_image() -> None:
    engine, launch = parse_command(
        "docker run --rm -e VLLM_ROCM_USE_AITER=1 --env=HF_TOKEN=x --gpus all vllm/vllm-openai-rocm:v0.27.1 "
        "meta/llama -tp 8 --kv_cache_dtype=fp8 --enforce-eager "
        """--speculative-config '{"method": "mtp", "num_speculative_tokens": 3}'"""
    )
    assert engine == "vllm"
    assert launch.image == "vllm/vllm-openai-rocm:v0.27.1"
    assert launch.environment == {"VLLM_ROCM_USE_AITER": "1", "HF_TOKEN": "x"}
    assert launch.flags["tensor-parallel-size"] == "8"
    assert launch.flags["kv-cache-dtype"] == "fp8"
    assert launch.flags["enforce-eager"] == "true"
    assert (drafts := drafting_of(launch)) is not None
    assert drafts.tokens == 3
    assert "gpus" not in launch.flags


def test_sglang_is_recognised_and_its_short_names_are_the_long_ones() -> None:
    engine, launch = parse_command("SGLANG_USE_AITER=1 python3 -m sglang.launch_server --model-path m --tp 4")
    assert engine == "sglang"
    assert launch.flags["tensor-parallel-size"] == "4"


@pytest.mark.parametrize("text", ["vllm serve 'unclosed", "x" * 30_000])
def test_a_line_no_shell_would_take_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--command"):
        parse_command(text)


@pytest.mark.parametrize(
    ("image", "version", "rocm"),
    [
        ("vllm/vllm-openai-rocm:v0.18.0", "0.18.0", "7.0"),
        ("vllm/vllm-openai-rocm:v0.22.1", "0.22.1", "7.2.2"),
        ("vllm/vllm-openai-rocm:v0.27.1", "0.27.1", "7.2.3"),
        ("vllm/vllm-openai-rocm:v0.32.0", "0.32.0", "7.2.3"),  # not read, and no image went back
        ("lmsysorg/sglang:v0.5.18-rocm720-mi30x", "0.5.18", "7.2.0"),
        ("vllm/vllm-openai:v0.27.1", "0.27.1", None),
        (None, "0.27.1", None),
    ],
)
def test_the_runtime_inside_an_image(image: str | None, version: str, rocm: str | None) -> None:
    assert rocm_of_image(image, Release(version), KNOWLEDGE.images) == rocm


@pytest.mark.parametrize(
    "line",
    [
        "docker run --gpus all --ipc=host -p 8000:8000 vllm/vllm-openai --model m/n --max-model-len 4096",
        "sudo docker run -itd --rm --name x -v $HOME/.cache:/root vllm/vllm-openai@sha256:0 m/n --max-model-len 4096",
        'docker run --privileged --entrypoint="" -e A=1 "$IMAGE" vllm serve m/n --max-model-len 4096',
        "podman run -d img/vllm:1 bash -c 'export A=1 && vllm serve m/n --max-model-len 4096'",
        "export LENGTH=4096\n# a remark: don't\nvllm serve m/n --max-model-len $LENGTH  # the end",
    ],
)
def test_what_a_container_takes_is_no_flag_of_the_engine(line: str) -> None:
    engine, launch = parse_command(line)
    assert engine == "vllm"
    assert dict(launch.flags) == {"max-model-len": "4096", "model-path": "m/n"}


@pytest.mark.parametrize(
    ("engine", "line", "split"),
    [
        ("sglang", "sglang serve m --tp 8 --dp 8 --enable-dp-attention --ep 8", (1, 1, 8, True)),
        ("sglang", "sglang serve m --tp 8 --dp 4 --enable-dp-attention", (2, 1, 4, False)),
        ("sglang", "sglang serve m --tp 8 --dp 4", (8, 1, 1, False)),
        ("sglang", "sglang serve m --tp 8 --moe-a2a-backend deepep", (8, 1, 1, True)),
        ("sglang", "sglang serve m --tp-size 4 --ep-size 1 --pp 2", (4, 2, 1, False)),
        ("vllm", "vllm serve m -tp 2 -dp 4 -ep", (2, 1, 4, True)),
        ("vllm", "vllm serve m", (None, 1, 1, False)),
    ],
)
def test_data_ranks_of_sglang_are_groups_of_its_tensor_ranks_and_those_of_vllm_multiply(
    engine: EngineName, line: str, split: tuple[int | None, int, int, bool]
) -> None:
    tp, pp, dp, spreads = split
    stated = stated_split(parse_command(line)[1], engine)
    assert stated == StatedSplit(tp=tp, pp=pp, dp=dp, spreads_experts=spreads)


def test_a_shortened_flag_is_the_only_one_it_begins() -> None:
    known, newest = KNOWLEDGE.flags["vllm"], Release("0.32.0")
    launch = parse_command("vllm serve m --tensor-parallel 4 --max-num 8 --tensor-paralel-size 2")[1]
    whole = expand_abbreviations(launch, known, newest).flags
    assert whole["tensor-parallel-size"] == "4"
    # More than one begins so, and a misspelt one begins none: both stay as typed, and are refused.
    assert {"max-num", "tensor-paralel-size"} <= set(whole)
    sglang = parse_command("sglang serve m --speculative-algo NEXTN")[1]
    assert "speculative-algorithm" in expand_abbreviations(sglang, KNOWLEDGE.flags["sglang"], Release("0.5.18")).flags


def test_speculation_is_read_from_json_and_from_dotted_flags() -> None:
    for line in (
        """vllm serve m --speculative-config '{"method": "mtp", "num_speculative_tokens": 5}'""",
        "vllm serve m --speculative-config.method mtp --speculative-config.num_speculative_tokens 5",
    ):
        drafts = drafting_of(parse_command(line)[1])
        assert drafts is not None
        assert (drafts.method, drafts.tokens) == ("mtp", 5)


def flags(engine: EngineName, on: str, split: Parallelism, drafted: int = 0) -> list[str]:
    version = {"vllm": "0.32.0", "sglang": "0.5.18"}[engine]
    planned = plan("deepseek-r1", on, engine, version, LaunchChoices(parallelism=split, drafted_tokens=drafted))
    assert problems(planned) == []
    return typed(planned.bare())


def pairs(words: list[str], *names: str) -> dict[str, str]:
    return {name: words[words.index(f"--{name}") + 1] for name in names}


def test_experts_spread_with_attention_by_itself_are_started_as_each_engine_spells_it() -> None:
    split = Parallelism(dp=8, expert_parallel=True)
    vllm, sglang = flags("vllm", "h200", split), flags("sglang", "mi355x", split)
    assert pairs(vllm, "data-parallel-size") == {"data-parallel-size": "8"}
    assert "--enable-expert-parallel" in vllm
    assert "--tensor-parallel-size" not in vllm
    # SGLang counts all ranks as tensor parallel.
    assert pairs(sglang, "tp-size", "dp-size", "ep-size") == {"tp-size": "8", "dp-size": "8", "ep-size": "8"}
    assert "--enable-dp-attention" in sglang


def test_ranks_on_two_machines_say_how_many_are_here_and_where_they_begin() -> None:
    words = flags("vllm", "h200", Parallelism(dp=16, expert_parallel=True))
    assert pairs(words, "data-parallel-size", "data-parallel-size-local", "data-parallel-start-rank") == {
        "data-parallel-size": "16",
        "data-parallel-size-local": "8",
        "data-parallel-start-rank": "0",
    }
    assert pairs(flags("sglang", "h200", Parallelism(dp=16, expert_parallel=True)), "nnodes") == {"nnodes": "2"}


def test_drafts_of_the_checkpoint_are_started_as_each_engine_spells_it() -> None:
    vllm, sglang = (flags(engine, "h200", Parallelism(tp=8), drafted=3) for engine in ("vllm", "sglang"))
    assert json.loads(pairs(vllm, "speculative-config")["speculative-config"]) == {
        "method": "mtp",
        "num_speculative_tokens": 3,
    }
    assert pairs(sglang, "speculative-num-steps", "speculative-eagle-topk", "speculative-num-draft-tokens") == {
        "speculative-num-steps": "3",
        "speculative-eagle-topk": "1",
        "speculative-num-draft-tokens": str(3 + 1),
    }


@pytest.mark.parametrize("on", ["h100", "b200"])
def test_a_setting_for_benchmarks_is_no_setting_for_serving(on: str) -> None:
    """Attack: the proposed launch of Llama turned prefix caching off, as its recipe does to measure."""
    recipe = penstock.preflight("llama-3.3-70b", f"{on}:4").answers[0].recipe
    assert recipe is not None
    assert "async-scheduling" in {flag.name for flag in recipe.flags}
    assert "no-enable-prefix-caching" not in {flag.name for flag in recipe.flags}


def test_a_recipe_that_turns_prefix_caching_off_for_the_model_keeps_it() -> None:
    accelerator, known = load_accelerator("h100"), KNOWLEDGE.flags["vllm"]
    recipe = find_recipe(
        "deepseek-ai/DeepSeek-OCR-2",
        accelerator,
        Release("0.32.0"),
        KNOWLEDGE.recipes,
        known,
        KNOWLEDGE.choices["vllm"],
    )
    assert recipe is not None
    assert "no-enable-prefix-caching" in {flag.name for flag in recipe.flags}
