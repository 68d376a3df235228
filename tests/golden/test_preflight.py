"""What preflight and the scan show: one report kept as a file, the figures of the others."""

import shlex
import subprocess
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from fp8_checkpoints import block_checkpoint, write_safetensors
from penstock.catalog import load_accelerator
from penstock.checkpoint import open_checkpoint
from penstock.checkpoint.fp8.scan import scan_fp8
from penstock.fleet import Parallelism, Release
from penstock.fleet.engines import EngineName
from penstock.preflight import LaunchChoices, Preflight, PreflightQuestion, check, load_knowledge
from penstock.preflight.facts.subject import subject_of
from penstock.report.fp8 import render_scan
from penstock.report.preflight.terminal import render_matrix, render_preflight
from printed import row

Golden = Callable[[str, str], None]


def shown(view: RenderableType, width: int = 132) -> str:
    console = Console(file=StringIO(), width=width, color_system=None)
    console.print(view, crop=False)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def answer(model: str, on: str, tp: int, engine: EngineName = "vllm", version: str = "0.27.1") -> Preflight:
    question = PreflightQuestion(
        subject=subject_of(open_checkpoint(model), model),
        accelerator=load_accelerator(on),
        engine=engine,
        version=Release(version),
        asked=LaunchChoices(parallelism=Parallelism(tp=tp)),
    )
    return check(question, load_knowledge())


def test_a_history_of_blockers(golden: Golden) -> None:
    golden(
        "preflight_v4_mi300x.txt", shown(render_preflight(answer("deepseek-v4-flash", "mi300x", 4, version="0.23.0")))
    )


def test_a_launch_that_passes() -> None:
    found = answer("gpt-oss-120b", "mi300x", 1)
    text = shown(render_preflight(found))
    assert text.startswith("gpt-oss-120b on mi300x, vllm 0.27.1: runs")
    assert "(model-gpt-oss-gfx942)" in text
    served = {
        "experts": "56.7 GiB mxfp4",
        "linears": "2.9 GiB bf16",
        "attention": "ROCM_AITER_UNIFIED_ATTN",
        "graphs": "FULL_AND_PIECEWISE",
        "memory": "2,977,444 tokens of KV cache",
        "recipe": "vLLM 0.10.0",
        "measured": "vllm/vllm-openai-rocm:v0.19.1",
    }
    for label, fact in served.items():
        assert fact in " ".join(row(text, label))
    _, _, launch = text.partition("\nlaunch\n")
    docker = found.plan.docker()
    assert docker is not None
    for line in (*found.plan.bare().splitlines(), *docker.splitlines()):
        assert line.strip() in [shown_line.strip() for shown_line in launch.splitlines()]
    # Below the commands each setting is explained.
    for setting in ("VLLM_ROCM_USE_AITER", "AMDGCN_USE_BUFFER_OPS", "--attention-backend", "--tool-call-parser"):
        assert any(line.strip().startswith(f"{setting}  ") for line in launch.splitlines())


def test_a_matrix() -> None:
    engines: tuple[tuple[EngineName, str], ...] = (("vllm", "0.27.1"), ("sglang", "0.5.18"))
    accelerators = ("mi300x", "mi355x", "h200", "b200")
    text = shown(render_matrix([answer("gpt-oss-120b", one, 1, *engine) for one in accelerators for engine in engines]))
    assert row(text, "accelerator") == ["vllm", "0.27.1", "sglang", "0.5.18"]
    assert row(text, "mi300x x1")[:2] == ["yes", "no"]
    assert "no kernel for mxfp4 experts" in " ".join(row(text, "mi300x x1"))
    assert [row(text, f"{one} x1") for one in ("mi355x", "h200_sxm", "b200_sxm")] == [["yes", "yes"]] * 3


def test_a_scan_with_findings(tmp_path: Path) -> None:
    tensors = block_checkpoint()
    del tensors["model.layers.3.mlp.gate_proj.weight_scale_inv"]
    write_safetensors(tmp_path / "model.safetensors", tensors)
    text = shown(render_scan(scan_fp8(tmp_path), 132))
    assert text.startswith("12 FP8 tensors and 11 scales, 0.0 GiB read: 1 damaged, 0 suspicious")
    assert row(text, "missing_scale")[0] == "(1):"
    assert "model.layers.3.mlp.gate_proj.weight" in [line.strip() for line in text.splitlines()]
    measured = {"self_attn.o_proj": ["0.03%", "50%", "9.3%"], "mlp.gate_proj": ["0.04%", "50%", "9.6%"]}
    for name, shares in measured.items():
        cells = row(text, f"model.layers.*.{name}.weight (6)")
        assert cells == ["e4m3fn", "block", "0.0", "448", "224", "0", *shares]


@pytest.mark.parametrize("width", [80, 132, 160])
@pytest.mark.parametrize("engine", [("vllm", "0.27.1"), ("sglang", "0.5.18")])
def test_printed_commands_can_be_pasted_whatever_the_width(width: int, engine: tuple[EngineName, str]) -> None:
    asked = answer("deepseek-r1", "mi300x", 8, *engine)
    lines = shown(render_preflight(asked), width).partition("\nlaunch\n")[2].splitlines()
    # A command goes on while its line ends in a backslash, with nothing behind it.
    commands, current = [], ""
    for line in lines:
        current += line + "\n"
        if not line.endswith("\\"):
            commands.append(current)
            current = ""
    for printed, meant in zip(commands, (asked.plan.bare(), str(asked.plan.docker())), strict=False):
        assert shlex.split(printed.replace("\\\n", " ")) == shlex.split(meant.replace("\\\n", " "))
        subprocess.run(["bash", "-n"], input=printed, text=True, check=True)  # noqa: S607 - any bash
