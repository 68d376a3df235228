"""The proposed next run narrows the interval most, and the interval holds at loads that were not measured."""

from pathlib import Path

import numpy as np
import pytest
from check_next_run import coverage, trial

from load_results import FOLDER
from penstock.api.calibrate import calibrate
from penstock.errors import UsageError
from penstock.own_runs.fit_correction import load_errors
from penstock.own_runs.next_run import RunLoad, propose_run

PLAN = """
name: chat
workloads:
  - name: chat
    model: llama-3.1-70b
    requests_per_s: 20
    slo: ttft=2s,tpot=30ms
    lengths: [{input: 2000, output: 400}]
"""


@pytest.mark.parametrize("runs", [1, 3])
def test_measured_loads_lie_within_the_interval_that_other_loads_give(runs: int) -> None:
    found = coverage(runs)
    assert 0.75 <= found.in_interval <= 0.86
    assert 0.72 <= found.in_interval_far <= 0.86
    assert found.median_error < 0.7 * found.median_error_uncorrected


def test_proposed_runs_narrow_the_interval_more_than_random_designs() -> None:
    trials = [trial(seed, runs) for seed in range(30) for runs in (1, 2)]
    assert np.mean([one.sigma_proposed < one.sigma_random for one in trials]) >= 0.8
    proposed, random = (np.median([getattr(one, f"error_{kind}") for one in trials]) for kind in ("proposed", "random"))
    assert proposed < random


def test_the_next_run_is_far_from_the_measured_loads() -> None:
    errors = load_errors([(1, 512, 128), (4, 512, 128)], [0.1, 0.1], 0.2)
    loads = [RunLoad(2**number, 512, 128) for number in range(9)]
    found = propose_run(errors, loads, loads)
    assert found is not None
    assert found.load.users >= 32
    assert found.after[1] < 0.8 * found.before[1]


def test_no_run_is_proposed_if_none_narrows_the_interval() -> None:
    errors = load_errors([(2**number, 512, 128) for number in range(9)], [0.0] * 9, 0.2)
    loads = [RunLoad(2**number, 512, 128) for number in range(9)]
    assert propose_run(errors, loads, loads) is None


def test_a_plan_decides_the_loads_that_matter(shared: Path, tmp_path: Path) -> None:
    file, plan = shared / FOLDER / "vllm-bench-0.33.0/c4.json", tmp_path / "plan.yaml"
    plan.write_text(PLAN)
    proposed = calibrate([file], "h100:2", "vllm", "fp8", "fp8", plan=plan).next_run
    assert proposed is not None
    assert (proposed.run.load.input_tokens, proposed.run.load.output_tokens) == (2000, 400)
    assert proposed.command.startswith(f"penstock bench {plan} --workload chat --rate ")
    plan.write_text(PLAN.replace("llama-3.1-70b", "qwen3-32b"))
    with pytest.raises(UsageError, match="its models are qwen3-32b"):
        calibrate([file], "h100:2", "vllm", "fp8", "fp8", plan=plan)


def test_the_command_names_the_model_as_the_measured_server_does(shared: Path, tmp_path: Path) -> None:
    text = (
        (shared / FOLDER / "vllm-bench-0.33.0/c4.json")
        .read_text()
        .replace('"model_id": "llama-3.1-70b"', '"model_id": "meta-llama/Llama-3.1-70B-Instruct"')
    )
    (tmp_path / "run.json").write_text(text)
    proposed = calibrate([tmp_path / "run.json"], "h100:2", "vllm", "fp8", "fp8").next_run
    assert proposed is not None
    assert "--model meta-llama/Llama-3.1-70B-Instruct " in proposed.command
