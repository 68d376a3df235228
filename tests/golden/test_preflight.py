"""What preflight and the scan show, kept as files."""

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


def test_a_launch_that_passes(golden: Golden) -> None:
    golden("preflight_gpt_oss_mi300x.txt", shown(render_preflight(answer("gpt-oss-120b", "mi300x", 1))))


def test_a_matrix(golden: Golden) -> None:
    engines: tuple[tuple[EngineName, str], ...] = (("vllm", "0.27.1"), ("sglang", "0.5.18"))
    parts = ("mi300x", "mi355x", "h200", "b200")
    answers = [answer("gpt-oss-120b", part, 1, *engine) for part in parts for engine in engines]
    golden("preflight_matrix.txt", shown(render_matrix(answers)))


def test_a_scan_with_findings(golden: Golden, tmp_path: Path) -> None:
    tensors = block_checkpoint()
    del tensors["model.layers.3.mlp.gate_proj.weight_scale_inv"]
    write_safetensors(tmp_path / "model.safetensors", tensors)
    golden("fp8_scan.txt", shown(render_scan(scan_fp8(tmp_path), 132)))


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
