"""What a person in a hurry and a CI gate get: one screen, one command, and exit codes that leave nothing open."""

import shlex
import subprocess
from dataclasses import replace
from io import StringIO
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import penstock
from penstock.api.preflight import PreflightAnswer
from penstock.preflight import Readiness
from penstock.preflight.launch.launch_plan import pack_command
from penstock.preflight.strict_failures import strict_failures

COLUMNS, LINES = 80, 24
MODELS = {
    "llama-3.1-8b": 1,
    "llama-3.3-70b": 8,
    "qwen3-235b-a22b-fp8": 8,
    "gpt-oss-120b": 1,
    "deepseek-r1": 8,
    "glm-5.2-fp8": 8,
    "minimax-m2.5": 8,
    "kimi-k2.5": 8,
}
ACCELERATORS = ("mi300x", "mi325x", "mi355x", "h100", "h200", "b200", "b300")


def shown(answer: PreflightAnswer, columns: int = COLUMNS) -> str:
    written = StringIO()
    Console(width=columns, file=written, color_system=None).print(answer.render(columns), crop=False)
    return written.getvalue()


def test_the_answer_fits_one_screen_if_nothing_is_wrong() -> None:
    screens = {}
    for engine in ("vllm", "sglang"):
        for model, devices in MODELS.items():
            answer = penstock.preflight(model, ",".join(f"{name}:{devices}" for name in ACCELERATORS), engine=engine)
            for one, speed in zip(answer.answers, answer.speeds, strict=True):
                alone = replace(answer, answers=(one,), speeds=(speed,), instead=(None,), pools=(None,))
                if one.readiness is Readiness.RUNS:
                    screens[model, one.question.accelerator.id, engine] = shown(alone)
    assert len(screens) >= 60
    # One line is left for the prompt.
    assert {asked: text for asked, text in screens.items() if len(text.splitlines()) >= LINES} == {}


@pytest.mark.parametrize(
    ("on", "engine"),
    [
        ("mi300x:8", "vllm"),
        ("mi300x:8", "sglang"),
        ("mi355x:8", "vllm-atom"),
        ("h200:8", "vllm"),
        ("h200:8", "sglang"),
        ("h200:8", "trtllm"),
    ],
)
@pytest.mark.parametrize("columns", [80, 132])
def test_the_one_command_is_the_container_command_and_can_be_pasted(on: str, engine: str, columns: int) -> None:
    answer = penstock.preflight("deepseek-r1", on, engine=engine)
    (one,) = answer.answers
    printed = shown(answer, columns).partition("\n\n")[2].rpartition("\n\n")[0]
    docker = one.plan.docker()
    assert docker is not None
    assert shlex.split(printed.replace("\\\n", " ")) == shlex.split(docker.replace("\\\n", " "))
    subprocess.run(["bash", "-n"], input=printed, text=True, check=True)  # noqa: S607 - any bash


@given(words=st.lists(st.text("abc-=", min_size=1, max_size=30), min_size=1), columns=st.integers(20, 140))
def test_packing_keeps_every_argument_and_wastes_no_line(words: list[str], columns: int) -> None:
    packed = pack_command(" \\\n  ".join(words), columns)
    lines = [line.strip() for line in packed.split("\\\n")]
    assert " ".join(lines).split() == words
    for line, following in pairwise(lines):
        assert len(f"  {line} \\") <= columns or " " not in line
        assert len(f"  {line} {following.split()[0]} \\") > columns


def test_findings_come_with_their_fix_and_without_the_kernels() -> None:
    text = shown(penstock.preflight("deepseek-v4-flash", "mi300x", engine_version="0.23.0"))
    assert text.startswith("deepseek-v4-flash on mi300x, vllm 0.23.0: does not run\n")
    assert text.count("  fix: ") == 5
    assert "docker run" not in text
    assert "GEMM" not in text


def test_a_command_that_passes_is_not_repeated_and_one_that_fails_gets_a_replacement() -> None:
    line = "vllm serve meta-llama/Llama-3.3-70B-Instruct -tp 8"
    assert "vllm serve" not in shown(penstock.preflight(on="h100:8", command=line))
    refused = shown(penstock.preflight(on="h100:8", command=f"{line} --swap-space 4"))
    assert "launch that preflight proposes\n  docker run" in refused


@pytest.mark.parametrize(
    ("model", "on", "more", "reason"),
    [
        ("deepseek-r1", "mi355x:8", {"engine": "atom"}, "undetermined: the attention backend"),
        ("deepseek-r1", "mi355x:8", {"engine": "vllm-atom"}, "undetermined: the kernels of experts and linears"),
        ("llama-3.1-8b", "h100", {"engine_version": "0.99.0"}, "unread: vllm 0.99.0 was not read"),
        ("llama-3.2-1b", "tpu_v5e", {}, "undetermined: no rule covers tpu_v5e"),
        (
            "llama-3.1-8b",
            "mi300x",
            {"command": "vllm serve meta-llama/Llama-3.1-8B-Instruct"},
            "undetermined: host-mec-firmware",
        ),
        (
            "llama-3.1-8b",
            "h100",
            {"command": "vllm serve meta-llama/Llama-3.1-8B-Instruct --config a.yaml"},
            "undetermined: --config a.yaml is not read",
        ),
    ],
)
def test_strict_fails_on_whatever_is_open(model: str, on: str, more: dict[str, str], reason: str) -> None:
    answer = penstock.preflight(model, on, strict=True, **more)  # type: ignore[arg-type] # text options
    assert penstock.preflight(model, on, **more).exit_code in {0, 4}  # type: ignore[arg-type] # text options
    assert not answer.good
    assert any(found.startswith(reason) for found in strict_failures(answer.answers[0]))
    assert f"--strict fails: {reason}" in " ".join(shown(answer).split())


@pytest.mark.parametrize(("model", "on"), [("llama-3.1-8b", "h100"), ("deepseek-r1", "mi355x:8")])
def test_strict_passes_where_nothing_is_open(model: str, on: str) -> None:
    assert penstock.preflight(model, on, strict=True).good


@pytest.mark.parametrize(
    ("on", "engine", "most"), [("h100", "sglang", 17), ("mi300x", "sglang", 37), ("h100", "vllm", 39)]
)
def test_headline_counts_only_rules_that_apply(on: str, engine: str, most: int) -> None:
    """Attack: "150 rules: nothing found", where 17 could apply to SGLang on NVIDIA."""
    answer = penstock.preflight("llama-3.1-8b", on, engine=engine)
    (one,) = answer.answers
    assert 0 < one.assessment.rules_checked <= most
    assert f"\n{one.assessment.rules_checked} rules for {engine} {one.question.version} on this chip: " in shown(answer)


def test_no_rule_beyond_the_count_applies() -> None:
    for on in ("mi300x", "mi355x", "h100", "b200"):
        (one,) = penstock.preflight("gpt-oss-120b", on).answers
        assert len(one.assessment.findings) + len(one.assessment.undetermined) <= one.assessment.rules_checked
