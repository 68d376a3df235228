"""Nothing is lost in any terminal: no cell cut, no line that ends in blanks, and commands that can be pasted."""

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType

import pytest
from click import Context
from click.testing import CliRunner

from fp8_checkpoints import block_checkpoint, write_safetensors
from penstock.api import audit, catalog, fit, predict, preflight, simulate, sweep
from penstock.cli import console
from penstock.cli.root import app
from penstock.performance.calibration import software_tax
from penstock.report.plan.terminal import render_plan
from small_plans import TWO_PARTS, solved

WIDTHS = (80, 100, 132, 160)
"""132 is what a pipe gets."""
EVERYWHERE = "mi355x:8,rtx_pro_6000_server:8,h100:2,h100:8"
COMMANDS: dict[str, str | list[str]] = {
    "audit": ["audit", "llama-3.1-405b fp8 on 8x mi300x with vllm in 1k/1k at 64 users: 6000 tok/s"],
    "fit": f"fit deepseek-r1 --on {EVERYWHERE} --context 128k",
    "predict": f"predict deepseek-r1 --on {EVERYWHERE} --in 8192 --mtp",
    "predict a curve": "predict llama-3.3-70b --on h200:2,mi355x,mi325x:2 --precision fp8 --concurrency 1,4,16,64",
    "predict apart": "predict deepseek-r1 --on gb200:8 --ep --replicas 4 --prefill 1 --prefill-split dp8,ep",
    "simulate": "simulate llama-3.1-70b --on mi300x:1,h100:2,h100:1,rtx_pro_6000_server:8 --rate 2 --requests 100"
    " --slo ttft=1s,tpot=50ms --capacity",
    "simulate apart": "simulate deepseek-r1 --on gb200:8 --ep --prefill 1 --users 8 --requests 40",
    "tax": "tax",
    "accuracy": "accuracy --by month",
    "inspect": "inspect deepseek-v4-flash",
    "catalog list": "catalog list --all",
    "catalog show": "catalog show mi300x",
    "catalog diff": "catalog diff mi300x rtx_pro_6000_server",
    "catalog prices": "catalog prices h100",
    "catalog models": "catalog models",
    "preflight": "preflight gpt-oss-120b --on mi300x,rtx_pro_6000_server --explain",
    "preflight short": "preflight gpt-oss-120b --on mi300x,rtx_pro_6000_server",
}


FIGURES = {"fit", "predict", "predict a curve", "predict apart", "simulate", "tax"}
"""Commands whose every figure is shown at every width."""
WORDS = {"inspect", "catalog prices", "catalog models"}
"""Commands that break no word in a narrow terminal."""
COMPUTED: tuple[tuple[ModuleType, str], ...] = (
    (audit, "audit"),
    (catalog, "catalog"),
    (fit, "fit"),
    (predict, "predict"),
    (preflight, "preflight"),
    (simulate, "simulate"),
    (sweep, "sweep"),
    (software_tax, "delivered_over_time"),
)
"""The functions that compute what commands print."""


def computed_once(compute: Callable[..., object]) -> Callable[..., object]:
    answers: list[object] = []

    def first_answer(*arguments: object, **named: object) -> object:
        if not answers:
            answers.append(compute(*arguments, **named))
        return answers[0]

    return first_answer


def printed(arguments: str | list[str], widths: Iterable[int], monkeypatch: pytest.MonkeyPatch) -> dict[int, str]:
    """Run a command in terminals of several widths; only the first one computes the answer."""
    for module, name in COMPUTED:
        monkeypatch.setattr(module, name, computed_once(getattr(module, name)))
    shown = {}
    for width in widths:
        monkeypatch.setattr(console, "PIPE_WIDTH", width)
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code in {0, 1, 4}, result.output
        shown[width] = result.stdout
    return shown


def wrong(text: str, width: int) -> list[str]:
    """Lines that lost something, end in blanks, or are too wide without being there to be pasted."""
    return [
        line
        for line in text.splitlines()
        if "…" in line or line != line.rstrip() or (len(line) > width and not line.startswith("  "))
    ]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_loses_nothing_in_a_terminal_of_any_width(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = printed(COMMANDS[command], (*WIDTHS, 200), monkeypatch)
    assert {width: wrong(shown[width], width) for width in WIDTHS} == {width: [] for width in WIDTHS}
    if command in FIGURES:
        figures, kept = (set(re.findall(r"\d[\d,.]*\d", shown[width])) for width in (160, 80))
        assert len(figures) > 10
        assert figures - kept == set()
    if command in WORDS:
        wide, narrow = (set(shown[width].replace(",", " ").split()) for width in (200, 80))
        assert len(wide) > 20
        # Apart from its layout a narrow terminal shows the words of a wide one.
        assert narrow - wide <= {"for", "what"}


@pytest.mark.parametrize("arguments", [[], ["plan"], ["catalog"], ["catalog", "prices"]])
def test_help_in_a_pipe_ends_where_its_letters_do(arguments: list[str]) -> None:
    asked = [sys.executable, "-m", "penstock", *arguments, "--help"]
    text = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=60).stdout
    assert "Usage: " in text
    assert wrong(text, 80) == []


@pytest.mark.parametrize("width", WIDTHS)
def test_reports_of_files_lose_nothing(width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = tmp_path / "requests.csv"
    rows = [f"{second},{100 + second % 900},{20 + second % 77}" for second in range(500)]
    trace.write_text("\n".join(["arrival_s,input_tokens,output_tokens", *rows]) + "\n", encoding="utf-8")
    assert wrong(printed(["workload", "describe", str(trace)], [width], monkeypatch)[width], width) == []
    weights = tmp_path / "model.safetensors"
    write_safetensors(weights, block_checkpoint())
    assert wrong(printed(["fp8", "scan", str(weights)], [width], monkeypatch)[width], width) == []


def test_a_plan_loses_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    result = solved(TWO_PARTS)
    for width in WIDTHS:
        monkeypatch.setenv("COLUMNS", str(width))
        console.stdout().print(render_plan(result, width))
        assert wrong(capsys.readouterr().out, width) == [], width


@pytest.mark.parametrize("width", [80, 100, 160])
@pytest.mark.parametrize("command", ["", *sorted(app.list_commands(Context(app)))])
def test_help_cuts_no_flag_and_no_word(command: str, width: int) -> None:
    result = CliRunner(env={"COLUMNS": str(width), "TERMINAL_WIDTH": str(width)}).invoke(
        app, [*command.split(), "--help"]
    )
    assert result.exit_code == 0
    assert "…" not in result.stdout


def test_a_terminal_with_colours_has_no_trailing_blanks_either() -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": "80", "TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)
    subprocess.run(
        [sys.executable, "-m", "penstock", "catalog", "list"],
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env=environment,
        check=True,
        timeout=60,
    )
    os.close(theirs)
    pieces = []
    try:
        while piece := os.read(ours, 65536):
            pieces.append(piece)
    except OSError:
        pass  # the other end is closed and everything was read
    text = b"".join(pieces).decode()
    assert "\x1b[1m" in text
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text).replace("\r", "")
    assert wrong(plain, 80) == []


def parses(command: str) -> bool:
    return subprocess.run(["bash", "-n", "-c", command], capture_output=True, check=False).returncode == 0  # noqa: S607


def test_a_launch_is_printed_as_it_can_be_pasted(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = COMMANDS["preflight"]
    document = json.loads(CliRunner().invoke(app, f"{arguments} --json").stdout)
    launches = [deployment["launch"] for deployment in document["deployments"]]
    commands = [command for launch in launches for command in (launch["bare"], launch["docker"]) if command]
    assert len(commands) > 1
    assert [command for command in commands if not parses(command)] == []
    for width, text in printed(arguments, WIDTHS, monkeypatch).items():
        shown = [line.strip() for line in text.splitlines()]
        for command in commands:
            lines = [line.strip() for line in command.splitlines()]
            assert any(shown[start : start + len(lines)] == lines for start in range(len(shown))), (width, command)


def test_every_example_is_a_command_a_shell_reads() -> None:
    source = Path(console.__file__).parent
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(source.rglob("*.py")))
    examples = re.findall(r"`(penstock [^`]+)`", text)
    assert len(examples) >= 30
    assert [example for example in examples if not parses(example)] == []
    assert not parses("penstock fit 'llama")
