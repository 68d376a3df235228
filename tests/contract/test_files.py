"""Files that go in and out: what is written is read back for its values, and a mistake in an input is one line."""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from contract.conftest import Ask
from contract.doors import FOLDER
from contract.recording import RECORDED, Recorder
from contract.test_cli import figures

WRITTEN: Final[Mapping[str, Any]] = yaml.safe_load((FOLDER / "questions/files.yaml").read_text())
BROKEN: Final[Mapping[str, Any]] = yaml.safe_load((FOLDER / "questions/broken.yaml").read_text())


def parsed(name: str, text: str) -> object:
    """Return the values of a file by the ending of its name."""
    match Path(name).suffix:
        case ".json":
            return json.loads(text)
        case ".jsonl":
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        case ".yaml":
            return json.loads(json.dumps(list(yaml.safe_load_all(text)), default=str))
        case _:
            return figures(text)


@pytest.mark.parametrize("name", WRITTEN)
def test_written_file(name: str, ask: Ask, folder: Path, recorded: Recorder) -> None:
    answer = ask(shlex.split(WRITTEN[name]["words"]))
    assert answer.exit_code in (0, 1), answer.stderr
    values = {
        read: parsed(read, answer.stdout if Path(read).stem == "stdout" else (folder / read).read_text())
        for read in WRITTEN[name]["reads"]
    }
    recorded("files", name, {"exit_code": answer.exit_code, "files": values})


@pytest.mark.parametrize("name", BROKEN)
def test_mistake_is_one_line(name: str, ask: Ask, folder: Path) -> None:
    exit_code, words, file, old, new, fix = BROKEN[name]
    path = folder / file
    text = path.read_text() if old else ""
    assert old in text
    path.unlink()  # a link to the file of all tests
    path.write_text(text.replace(old, new, 1) if old else new)
    answer = ask(shlex.split(words))
    assert (answer.exit_code, answer.stdout) == (exit_code, ""), answer.stderr
    line = answer.stderr.rstrip("\n").rpartition("\n")[2]
    assert line.startswith("Error: ")
    assert answer.stderr.count("Error: ") == 1
    assert "Traceback" not in answer.stderr
    assert [part for part in fix if part not in line] == [], line


def test_planned_fleet_is_read_by_every_reader(ask: Ask) -> None:
    assert ask("plan bought.yaml --fleet fleet.yaml").exit_code == 0
    assert ask("preflight --fleet fleet.yaml --json").json["deployments"][0]["accelerator"] == "mi300x"
    assert ask("simulate --fleet fleet.yaml --rate 4 --requests 20 --json").json["pools"][0]["replicas"] == 8


def test_calibration_moves_only_its_setup(ask: Ask) -> None:
    """Another accelerator keeps its prediction."""
    words = "calibrate vllm-8.json --on h100 --engine vllm --precision bf16 --kv bf16 --model llama-3.1-8b"
    assert ask(f"{words} --accept-doubtful --to own.yaml").exit_code == 0
    words = "predict llama-3.1-8b --on h100,mi300x --engine vllm --precision bf16 --kv bf16 --concurrency 8 --json"
    plain, moved = (ask(f"{words}{more}").json["deployments"] for more in ("", " --calibration own.yaml"))
    assert moved[0]["tpot_s"] != plain[0]["tpot_s"]
    assert moved[0]["corrected_by"] is not None
    assert moved[1] == plain[1]


def test_learnt_pack_is_known(ask: Ask) -> None:
    assert ask("preflight learn vllm-0.41.0-cp38-abi3-manylinux1_x86_64.whl --to packs").exit_code == 0
    assert "0.41.0" in json.dumps(ask("preflight packs --rules packs --json").json)


def test_no_file_without_question() -> None:
    assert {path.stem for path in (RECORDED / "files").iterdir()} == set(WRITTEN)
