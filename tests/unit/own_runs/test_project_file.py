"""A project's file names calibrations once: they are used where they fit, named each time, and refused if damaged."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from load_results import FOLDER
from penstock.api.calibrate import calibrate
from penstock.api.simulate_fleet import simulate_fleet
from penstock.cli.flags.project_file import find_project_file, read_project_file
from penstock.cli.root import app
from penstock.errors import UsageError

QUESTION = ["predict", "llama-3.1-70b", "--engine", "vllm", "--precision", "fp8", "--kv", "fp8", "--json"]


FLEET = Path(__file__).resolve().parents[3] / "examples" / "fleets" / "chat-h100-mi300x.yaml"


def asked(*more: str) -> Result:
    result = CliRunner().invoke(app, [*QUESTION, *more])
    assert result.exit_code == 0, result.output
    return result


def tpot(result: Result) -> float:
    return float(json.loads(result.stdout)["deployments"][0]["tpot_s"]["value"])


def test_a_project_file_is_used_where_it_fits_and_named(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = calibrate([shared / FOLDER / "vllm-bench-0.33.0/c16.json"], "h100:2", "vllm", "fp8", "fp8")
    body, runs = answer.text().split("runs:")
    text = f"{body}runs:" + re.sub(r"factor: [\d.]+", "factor: 1.5", runs)
    (tmp_path / "own.yaml").write_text(text)
    (tmp_path / "penstock.toml").write_text('calibration = "own.yaml"\n')
    (tmp_path / "deeper").mkdir()
    plain = tpot(asked("--on", "h100:2"))
    monkeypatch.chdir(tmp_path / "deeper")
    corrected = asked("--on", "h100:2")
    assert "penstock.toml names own.yaml" in corrected.stderr
    assert 1.1 * plain < tpot(corrected) < 1.5 * plain
    answer_text = CliRunner().invoke(app, [*QUESTION[:-1], "--on", "h100:2"]).output
    assert "penstock simulate" in answer_text
    assert "FoundCalibrations" not in answer_text
    other = asked("--on", "mi300x")
    assert "penstock.toml names own.yaml" in other.stderr
    stated = CliRunner().invoke(app, [*QUESTION, "--on", "mi300x", "--calibration", str(tmp_path / "own.yaml")])
    assert isinstance(stated.exception, UsageError)
    assert "does not correct a setup" in str(stated.exception)


def test_the_search_ends_at_the_repository(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text("")
    (tmp_path / "project" / ".git").mkdir(parents=True)
    (tmp_path / "project" / "deeper").mkdir()
    assert find_project_file(tmp_path / "project" / "deeper") is None
    assert find_project_file(tmp_path) == tmp_path / "penstock.toml"


@pytest.mark.parametrize("text", ["calibration = 3", "calibration = [1]", "colour = 'red'", "calibration = ", "= x"])
def test_a_damaged_project_file_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text(text)
    with pytest.raises(UsageError, match="write `calibration = "):
        read_project_file(tmp_path / "penstock.toml")


def test_a_simulated_fleet_names_the_correction_of_its_pools(shared: Path, tmp_path: Path) -> None:
    text = calibrate([shared / FOLDER / "vllm-bench-0.33.0/c16.json"], "h100:2", "vllm", "fp8", "fp8").text()
    (tmp_path / "own.yaml").write_text(text)
    fleet = FLEET.read_text().replace("llama-3.1-8b", "llama-3.1-70b").replace("bf16", "fp8")
    fleet = fleet.replace("{tp: 1,", "{tp: 2,", 1)
    (tmp_path / "fleet.yaml").write_text(fleet)
    plain = simulate_fleet(tmp_path / "fleet.yaml", requests=50, rate=2.0)
    own = simulate_fleet(tmp_path / "fleet.yaml", requests=50, rate=2.0, calibration=str(tmp_path / "own.yaml"))
    assert (plain.document()["corrected_by"], own.document()["corrected_by"]) == ([], ["own.yaml"])
    assert "Corrected by own.yaml" in own._repr_html_()
    assert "Corrected by" not in plain._repr_html_()
