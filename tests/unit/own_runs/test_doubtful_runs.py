"""Runs that contradict the prediction, each other or the stated setup are doubted, and drafting is refused."""

import json
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from load_results import FOLDER
from penstock.api.calibrate import calibrate
from penstock.errors import UsageError
from penstock.own_runs.fit_correction import load_errors
from penstock.performance.calibration.own_correction import log_loads

SETUP: dict[str, Any] = {"engine": "vllm", "precision": "fp8", "kv": "fp8"}
MODEL = "llama-3.1-70b"


def changed(shared: Path, folder: Path, name: str, **facts: object) -> Path:
    """Return a copy of a file of vLLM's load tool without lists, with other facts."""
    document = json.loads((shared / FOLDER / f"vllm-bench-0.33.0/{name}.json").read_text())
    kept = {key: value for key, value in document.items() if key not in {"start_times", "itls"}}
    path = folder / f"{name}.json"
    path.write_text(json.dumps({**kept, **facts}))
    return path


def with_other_first_tokens(shared: Path, folder: Path, factor: float) -> list[Path]:
    """Return runs whose TTFT is that of another server, although their TPOT is not."""
    found = []
    for name in ("c4", "c16", "r3"):
        document = json.loads((shared / FOLDER / f"vllm-bench-0.33.0/{name}.json").read_text())
        first = {key: value * factor for key, value in document.items() if key.endswith("_ttft_ms")}
        later = (factor - 1) * document["mean_ttft_ms"]
        whole = {key: value + later for key, value in document.items() if key.endswith("_e2el_ms")}
        slower = (document["mean_e2el_ms"] + later) / document["mean_e2el_ms"] if name != "r3" else 1.0
        found.append(changed(shared, folder, name, **first, **whole, duration=document["duration"] * slower))
    return found


@pytest.mark.parametrize("factor", [0.1, 3.0])
def test_times_to_first_token_that_the_prediction_excludes_are_doubted(
    shared: Path, tmp_path: Path, factor: float
) -> None:
    """A warm prefix cache, or a queue before the server, changes TTFT and leaves TPOT as it is."""
    answer = calibrate(with_other_first_tokens(shared, tmp_path, factor), "h100:2", model=MODEL, **SETUP)
    assert not answer.usable
    assert any("TTFT" in doubt for doubt in answer.doubts)


def test_undisturbed_runs_are_not_doubted(shared: Path) -> None:
    files = [shared / FOLDER / f"vllm-bench-0.33.0/{name}.json" for name in ("c4", "c16", "r3")]
    assert calibrate(files, "h100:2", model=MODEL, **SETUP).doubts == ()


@pytest.mark.parametrize(
    ("folder", "on", "more", "doubt"),
    [
        ("genai-bench-0.0.5/v16", "mi300x:2", {}, "states the accelerator as h100"),
        ("genai-bench-0.0.5/v16", "h100:4", {}, "states the number of accelerators as 2, not 4"),
        ("genai-bench-0.0.5/v16", "h100:2", {"engine_version": "0.11.0"}, "version as 0.32.0, not 0.11.0"),
        ("inference-perf-0.7.0/c16", "h100:2", {"engine": "sglang"}, "states the engine as vllm, not sglang"),
    ],
)
def test_a_setup_that_the_file_contradicts_is_doubted(
    shared: Path, folder: str, on: str, more: dict[str, str], doubt: str
) -> None:
    answer = calibrate([shared / FOLDER / folder], on, model=MODEL, **{**SETUP, **more})
    assert not answer.usable
    assert any(doubt in one for one in answer.doubts)


def test_what_a_file_states_rightly_is_not_doubted(shared: Path) -> None:
    more = {"engine_version": "0.32.0", **SETUP}
    assert calibrate([shared / FOLDER / "genai-bench-0.0.5/v16"], "h100:2", model=MODEL, **more).doubts == ()


def test_a_run_with_drafting_is_refused(shared: Path, tmp_path: Path) -> None:
    drafted = changed(shared, tmp_path, "c16", spec_decode_acceptance_length=2.4)
    with pytest.raises(UsageError, match=r"drafted and accepted 2\.4 tokens per step"):
        calibrate([drafted], "h100:2", model=MODEL, **SETUP)


@pytest.mark.parametrize("ratio", [1.02, 1.5])
def test_repeated_runs_that_differ_widen_the_interval(ratio: float) -> None:
    """A server whose speed drifts by half gives an interval that holds both runs; other loads widen as well."""
    load, other = (16.0, 512.0, 128.0), (4.0, 512.0, 128.0)
    errors = [0.0, log(ratio)]
    found = load_errors([load, load], errors, 0.15)
    here = log_loads([tuple(np.log2(load))])
    (mean,), (_, high) = found.mean(here), found.spread(here)
    once = load_errors([load, other], errors[:1] * 2, 0.15)
    assert once.noise == pytest.approx(0.03)
    if ratio > 1.1:
        assert exp(mean + high) > ratio
        assert exp(mean - high) < 1
        assert found.spread(log_loads([tuple(np.log2(other))]))[1] > 2 * once.spread(here)[1]
    else:
        assert found.noise == pytest.approx(0.03)
