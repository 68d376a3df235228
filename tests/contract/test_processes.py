"""Exit codes and streams of real processes, as a shell sees them; the driver is a witness only if they agree."""

import json
import subprocess
from pathlib import Path

import pytest

from contract.conftest import Ask
from contract.doors import command_path, environment


@pytest.mark.parametrize(
    ("words", "exit_code"),
    [
        ("fit llama-3.1-70b --on mi300x,h200:2", 0),
        ("fit llama-3.1-70b --on mi300x,h100", 1),
        ("audit claims.md", 1),
        ("preflight deepseek-v4-flash --on mi300x --engine-version 0.23.0", 1),
        ("fp8 scan zero-scale", 1),
        ("plan impossible.yaml", 1),
        ("simulate llama-3.1-8b --on l40s --rate 40 --requests 150 --slo ttft=200ms,tpot=20ms", 1),
        ("results vllm-early.json", 1),
        ("fit llama-3.1-70b", 2),
        ("simulate --fleet chat-h100-mi300x.yaml --rate 2 --policy best", 2),
        ("fit llama-3.1-70b --on mi300", 3),
        ("plan nothing.yaml", 3),
    ],
)
def test_exit_code_and_stream(words: str, exit_code: int, run: Ask) -> None:
    answer = run(words)
    assert answer.exit_code == exit_code, answer.stderr
    assert "Traceback" not in answer.stderr
    assert bool(answer.stdout) is (exit_code in (0, 1))
    assert ("Error: " in answer.stderr) is (exit_code in (2, 3))


@pytest.mark.parametrize(
    "words",
    [
        "predict llama-3.1-8b --on h100,mi300x --json",
        "simulate llama-3.1-8b --on h100 --rate 5 --requests 60 --json",
        "bill ended.jsonl --fleet addressed.yaml --json",
    ],
)
def test_driver_answers_as_a_process(words: str, run: Ask, ask: Ask) -> None:
    assert run(words).json == ask(words).json


def test_version_names_a_release(run: Ask) -> None:
    answer = run("--version")
    assert (answer.exit_code, answer.stderr) == (0, "")
    assert answer.stdout.startswith("penstock ")


def test_closed_pipe_is_no_error(home: Path) -> None:
    with subprocess.Popen(
        [str(command_path()), "catalog", "prices", "h100"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(environment(home)),
    ) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert not process.stderr.read()
    assert process.returncode not in (1, 70)


def test_ascii_terminal_gets_its_answer(home: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [str(command_path()), "fit", "llama-3.1-70b", "--on", "mi300x"],
        capture_output=True,
        check=False,
        cwd=tmp_path,
        env={**environment(home), "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
    )
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert b"mi300x" in done.stdout


def test_json_has_no_control_sequences(run: Ask) -> None:
    answer = run("fit llama-3.1-8b --on h100 --json")
    assert "\x1b" not in answer.stdout
    assert json.loads(answer.stdout)["schema"] == "penstock.fit/1"
