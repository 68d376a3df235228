"""Exit codes, streams, options and one-line errors of every command."""

import re
import shlex
from collections.abc import Mapping
from typing import Final

import pytest
import yaml

from contract.conftest import Ask
from contract.doors import FOLDER, has_module
from contract.recording import RECORDED, Recorder

COMMANDS: Final = (
    *("accuracy", "audit", "bench", "bill", "calibrate", "catalog", "catalog diff", "catalog list", "catalog models"),
    *("catalog prices", "catalog show", "doctor", "emulate", "export", "fit", "fp8", "fp8 scan", "guide", "inspect"),
    *("mcp", "plan", "predict", "preflight", "preflight learn", "preflight packs", "receipts", "results", "route"),
    *("simulate", "tax", "top", "workload", "workload describe"),
)
OPTION: Final = re.compile(r"^│ +(--[a-z0-9-]+|[A-Z\[][A-Z:.\[\]]+) +(\S+(?: \S+)*)", re.MULTILINE)
ERRORS: Final[Mapping[str, tuple[int, str, list[str]]]] = yaml.safe_load((FOLDER / "questions/errors.yaml").read_text())
TEXTS: Final[Mapping[str, str]] = yaml.safe_load((FOLDER / "questions/texts.yaml").read_text())
EXTRAS: Final = {
    "emulate": ("grpc", "emulate addressed.yaml", 'pip install "penstock[gateway]"'),
    "route": ("grpc", "route addressed.yaml", 'pip install "penstock[gateway]"'),
    "mcp": ("mcp", "mcp", "pip install 'penstock[mcp]'"),
    "hub": ("huggingface_hub", "inspect hf:acme/small", "pip install 'penstock[hub]'"),
    "page": ("altair", "plan rent.yaml --html report.html", "pip install 'penstock[report]'"),
    "chart": ("altair", "workload describe agentic.csv --chart chart.svg", "pip install 'penstock[report]'"),
}


def figures(text: str) -> list[str]:
    """Return every word of a text that has a digit, without the punctuation around it."""
    words = (word.strip(".,;:()[]│╭╮╰╯─\"'`") for word in text.split())
    return [word for word in words if any(letter.isdigit() for letter in word)]


def options(text: str) -> dict[str, str]:
    """Return the options and arguments of a help page, with what an option takes."""
    cells = ((name, cell) for name, cell in OPTION.findall(text))
    return {
        name: "" if re.search("[a-z]", cell.split()[0]) or not name.startswith("-") else cell for name, cell in cells
    }


@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_options(command: str, ask: Ask, recorded: Recorder) -> None:
    answer = ask(f"{command} --help")
    assert (answer.exit_code, answer.stderr) == (0, "")
    assert answer.stdout.split()[: 2 + len(command.split())] == ["Usage:", "penstock", *command.split()]
    found = options(answer.stdout)
    assert "--help" in found
    recorded("help", command.replace(" ", "-"), found)


def test_root_help_names_commands(ask: Ask) -> None:
    answer = ask("--help")
    assert (answer.exit_code, answer.stderr) == (0, "")
    named = re.findall(r"^│ ([a-z0-9]+) {2,}", answer.stdout, re.MULTILINE)
    assert sorted(named) == sorted(command for command in COMMANDS if " " not in command)


@pytest.mark.parametrize("name", ERRORS)
def test_error_is_one_line(name: str, ask: Ask) -> None:
    exit_code, words, fix = ERRORS[name]
    answer = ask(shlex.split(words))
    assert answer.exit_code == exit_code, answer.stderr
    assert answer.stdout == ""
    assert "Traceback" not in answer.stderr
    assert answer.stderr.count("Error: ") == 1
    line = answer.stderr.rstrip("\n").rpartition("\n")[2]
    assert line.startswith("Error: ")
    assert [part for part in fix if part not in line] == []


@pytest.mark.parametrize("name", EXTRAS)
def test_missing_extra_is_named(name: str, ask: Ask) -> None:
    module, words, fix = EXTRAS[name]
    if has_module(module):
        pytest.skip(f"{module} is installed beside this command; `make contract` has an installation without it")
    answer = ask(words)
    assert (answer.exit_code, answer.stdout) == (3, "")
    assert fix in answer.stderr


@pytest.mark.parametrize("name", TEXTS)
def test_figures_of_text(name: str, ask: Ask, recorded: Recorder) -> None:
    answer = ask(shlex.split(TEXTS[name]))
    assert answer.exit_code in (0, 1), answer.stderr
    recorded("text", name, {"exit_code": answer.exit_code, "figures": figures(answer.stdout)})


@pytest.mark.parametrize("group", ["catalog", "fp8", "workload"])
def test_group_alone_is_a_usage_error(group: str, ask: Ask) -> None:
    answer = ask(group)
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert f"Usage: penstock {group}" in answer.stderr


def test_no_text_without_question() -> None:
    assert {path.stem for path in (RECORDED / "text").iterdir()} == set(TEXTS)
    assert {path.stem for path in (RECORDED / "help").iterdir()} == {command.replace(" ", "-") for command in COMMANDS}
