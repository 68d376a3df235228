"""Own runs correct predictions: a hidden speed is found, and the answer is corrected for exactly the measured setup."""

import json
import re
from dataclasses import replace
from functools import cache, partial
from math import exp, log, log2
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from load_results import CLOSED_LOOPS, FOLDER
from penstock.api.arguments.choices import counted_targets
from penstock.api.arguments.deployment_argument import RequestedDeployment
from penstock.api.calibrate import calibrate
from penstock.api.options.predict_options import PredictOptions
from penstock.api.predict import PredictAnswer, predict
from penstock.cli.root import app
from penstock.errors import UsageError
from penstock.load_tools.load_run import CountedBy, LatencyStatistics, LoadRun, RequestRecord, TokenLength
from penstock.own_runs.calibration_file import read_correction
from penstock.own_runs.fit_correction import FittedCorrection, Replay, fit_correction
from penstock.own_runs.replay_run import SimulatedRun, replay_run
from penstock.performance.calibration.own_correction import log_loads
from penstock.performance.prediction.serving_stack import stack_of
from penstock.performance.shipped.shipped_runs import shipped_efficiencies
from penstock.performance.step.step_work import ReplicaWork
from penstock.simulation.placement import Placement, place

SETUP: dict[str, Any] = {"engine": "vllm", "precision": "fp8", "kv": "fp8"}


@cache
def placement() -> Placement:
    """Return the predicted replica of the emulated endpoint that the sample runs measured."""
    placing = RequestedDeployment(PredictOptions("llama-3.1-70b", "h100:2", **SETUP))
    prediction = placing.predict(*counted_targets("h100:2")[0], (512, 128, 16))
    return place(prediction.deployment, "vllm", shipped_efficiencies(), typical_lengths=(512, 128))


def run_of(users: int | None, rate_per_s: float | None = None) -> LoadRun:
    """Return a run whose times are not measured yet."""
    placeholder = LatencyStatistics(mean_s=1.0)
    return LoadRun(
        tool="vllm",
        where="hidden.json",
        duration_s=100.0,
        completed=100,
        failed=0,
        users=users,
        asked_rate_per_s=rate_per_s,
        input_length=TokenLength(mean=512, counted_by=CountedBy.SERVER),
        output_length=TokenLength(mean=128, counted_by=CountedBy.SERVER),
        ttft=placeholder,
        tpot=placeholder,
        output_tokens_per_s=128.0,
    )


def measured(run: LoadRun, hidden_log: float, prompt_log: float = 0.0) -> LoadRun:
    """Return a run as a server with a hidden speed answers it."""
    seen = replay_run(run, placement().with_slower_prompts(prompt_log), hidden_log)
    return replace(
        run,
        tpot=LatencyStatistics(mean_s=seen.tpot_s),
        ttft=LatencyStatistics(mean_s=seen.ttft_s),
        output_tokens_per_s=seen.output_tokens_per_s,
    )


def fitted(*runs: LoadRun) -> FittedCorrection:
    stack = placement().stack
    return fit_correction(runs, replay_at, prior=stack.spread, first_prior=stack.first_spread)


def replay_at(prompt_log: float) -> Replay:
    return partial(_replay, placement().with_slower_prompts(prompt_log))


def _replay(slower: Placement, run: LoadRun, log_factor: float) -> SimulatedRun:
    return replay_run(run, slower, log_factor)


@pytest.mark.parametrize("hidden", [0.7, 1.0, 1.4])
def test_a_hidden_speed_is_found_from_six_runs(hidden: float) -> None:
    loads = [(1, None), (4, None), (16, None), (64, None), (None, 1.0), (None, 3.0)]
    found = fitted(*(measured(run_of(users, rate), log(hidden), log(1.2)) for users, rate in loads))
    assert exp(found.steps.level) == pytest.approx(hidden, rel=0.05)
    assert exp(found.prompts.log_factor) == pytest.approx(1.2, rel=0.1)
    low, high = found.steps.spread(found.steps.loads)
    before_low, before_high = placement().stack.spread
    assert before_low < low < 0 < high < before_high


def test_the_interval_grows_with_the_distance_from_the_measured_load() -> None:
    one, three = (fitted(*(measured(run_of(users), 0.0) for users in loads)) for loads in ([16], [4, 16, 64]))
    at = log_loads([(doublings, 9.0, 7.0) for doublings in (4.0, 5.0, 6.0, 8.0)])
    sigmas = one.steps.sigma(at)
    assert (np.diff(sigmas) > 0).all()
    assert sigmas[0] < 0.05
    assert 0.5 < sigmas[-1] / one.steps.prior_sigma <= 1.05
    assert (three.steps.sigma(at) <= sigmas).all()


def test_repetitions_of_an_open_loop_that_differ_say_nothing_of_other_loads() -> None:
    """A slow repetition has more requests in flight, but the same load. So it widens the interval at every load."""
    found = fitted(*(measured(run_of(None, 3.0), log(hidden)) for hidden in (1.0, 1.3, 1.0, 1.3)))
    users = [one.load[0] for one in found.runs]
    assert max(users) == pytest.approx(min(users), rel=1e-9)
    at = log_loads([(log2(users[0]) + more, 9.0, 7.0) for more in (0.0, 1.5)])
    near, far = np.exp(found.steps.mean(at))
    assert near == pytest.approx(np.sqrt(1.3), rel=0.03)
    assert far < near
    low, high = np.exp(found.steps.spread(at))
    assert near * low < 1.0
    assert near * high > 1.3


def test_a_correction_shrinks_away_from_the_measured_load() -> None:
    found = fitted(measured(run_of(16), log(1.2)))
    near, far = found.steps.mean(log_loads([(4.0, 9.0, 7.0), (4.0, 15.0, 7.0)]))
    assert exp(near) == pytest.approx(1.2, rel=0.02)
    assert 1 < exp(far) < 1.15


def test_a_run_with_listed_starts_is_replayed() -> None:
    """Requests that start one at a time wait for nobody, although the tool names a closed loop of 16 users."""
    draw = np.random.default_rng(1)
    records = tuple(
        RequestRecord(start_s=4.0 * number, input_tokens=512, output_tokens=128, ttft_s=0.1, latency_s=2.0)
        for number in range(int(draw.integers(20, 30)))
    )
    run = replace(run_of(16), records=records, completed=len(records))
    assert replay_run(run, placement(), 0.0).ttft_s < 0.5 * replay_run(run_of(16), placement(), 0.0).ttft_s


def test_the_listed_starts_of_a_closed_loop_never_overload_a_slower_server() -> None:
    """One user who started when each answer of a fast server ended waits for the answers of a slow one as well."""
    alone_s = replay_run(run_of(1), placement(), 0.0).tpot_s
    records = tuple(
        RequestRecord(start_s=0.2 * number, input_tokens=512, output_tokens=128, ttft_s=0.1, latency_s=0.2)
        for number in range(40)
    )
    one_user = replace(run_of(1), records=records, completed=len(records))
    assert replay_run(one_user, placement(), 0.0).tpot_s == pytest.approx(alone_s, rel=1e-6)
    open_loop = replace(one_user, users=None, asked_rate_per_s=5.0)
    assert replay_run(open_loop, placement(), 0.0).tpot_s > 1.2 * alone_s


def test_one_run_moves_a_certain_prediction_little() -> None:
    run = measured(run_of(16), log(1.2))
    certain = fit_correction([run], replay_at, prior=(-0.01, 0.01), first_prior=(-0.1, 0.1))
    assert exp(certain.steps.level) < 1.02


def test_seven_tools_give_the_same_correction(shared: Path) -> None:
    """Their times to first token differ by a factor of 2.2."""
    found = [
        calibrate([shared / FOLDER / name], "h100:2", model="llama-3.1-70b", **SETUP).steps.factor
        for name in CLOSED_LOOPS.values()
    ]
    assert max(found) / min(found) < 1.05


def test_predictions_are_corrected_for_exactly_this_setup(shared: Path, tmp_path: Path) -> None:
    files = [shared / FOLDER / f"vllm-bench-0.33.0/{load}.json" for load in ("c4", "c16")]
    answer = calibrate(files, "h100:2", **SETUP)
    body, runs = answer.text().split("runs:")
    body = re.sub(r"factor: [\d.]+", "factor: 1.0", body)
    text = f"{body}runs:" + re.sub(r"factor: [\d.]+", "factor: 1.5", runs)
    (tmp_path / "calibration.yaml").write_text(text)
    read = read_correction(text, "calibration.yaml").errors
    (expected,) = np.exp(read.mean(log_loads([(4.0, 10.0, 10.0)])))
    assert 1.2 < expected < 1.5
    load: dict[str, Any] = {"input_tokens": 1024, "output_tokens": 1024, "concurrency": 16, **SETUP}
    plain = predict("llama-3.1-70b", "h100:2,mi300x", **load)
    own = predict("llama-3.1-70b", "h100:2,mi300x", calibration=str(tmp_path / "calibration.yaml"), **load)
    assert isinstance(plain, PredictAnswer)
    assert isinstance(own, PredictAnswer)
    changed, other = (a.tpot_s.value / b.tpot_s.value for a, b in zip(own.predictions, plain.predictions, strict=True))
    assert changed == pytest.approx(expected, rel=1e-4)
    assert other == 1
    assert own.predictions[0].tier == "calibrated"
    with pytest.raises(UsageError, match="kv: fp8, not bf16"):
        predict("llama-3.1-70b", "h100:2", calibration=str(tmp_path / "calibration.yaml"), **{**load, "kv": "bf16"})


def test_runs_without_drafts_do_not_correct_a_setup_that_drafts(shared: Path) -> None:
    text = calibrate([shared / FOLDER / "vllm-bench-0.33.0/c4.json"], "h100:2", **SETUP).text()
    evidence = replace(shipped_efficiencies(), corrections=(read_correction(text, "own.yaml"),))
    work = ReplicaWork(placement().deployment)
    assert stack_of(work, "vllm", evidence).correction is not None
    assert stack_of(work, "vllm", evidence, drafting=True).correction is None


def test_the_same_run_twice_is_one_measurement(shared: Path, tmp_path: Path) -> None:
    file = shared / FOLDER / "vllm-bench-0.33.0/c4.json"
    (tmp_path / "copy.json").write_text(file.read_text())
    answer = calibrate([file, tmp_path / "copy.json"], "h100:2", **SETUP)
    assert len(answer.fitted.runs) == 1
    assert "It is the same run as" in answer.refused[0]
    assert answer.steps == calibrate([file], "h100:2", **SETUP).steps


def test_a_run_of_another_model_is_doubted(shared: Path) -> None:
    file = shared / FOLDER / "vllm-bench-0.33.0/c4.json"
    answer = calibrate([file], "h100:2", model="llama-3.1-8b", **SETUP)
    assert not answer.good
    assert "outside the prediction's P1 to P99" in answer.doubts[0]
    assert "names llama-3.1-70b, not llama-3.1-8b" in answer.doubts[-1]
    assert calibrate([file], "h100:2", model="llama-3.1-8b", accept_doubtful=True, **SETUP).good


def test_a_doubtful_calibration_is_not_written(shared: Path, tmp_path: Path) -> None:
    file, to = shared / FOLDER / "vllm-bench-0.33.0/c4.json", tmp_path / "own.yaml"
    words = ["calibrate", str(file), "--on", "h100:2", "--model", "llama-3.1-8b", "--to", str(to)]
    words += ["--engine", "vllm", "--precision", "fp8", "--kv", "fp8"]
    refused = CliRunner().invoke(app, words)
    assert (refused.exit_code, to.exists()) == (1, False)
    assert "add --accept-doubtful" in refused.stderr
    accepted = CliRunner().invoke(app, [*words, "--accept-doubtful"])
    assert (accepted.exit_code, to.exists()) == (0, True)


def test_a_run_faster_than_the_hardware_limit_is_refused(shared: Path, tmp_path: Path) -> None:
    document = json.loads((shared / FOLDER / "vllm-bench-0.33.0/c4.json").read_text())
    faster = {key: value / 3 if "_tpot_ms" in key or "_e2el_ms" in key else value for key, value in document.items()}
    kept = {key: value for key, value in faster.items() if key not in {"start_times", "itls"}}
    (tmp_path / "fast.json").write_text(json.dumps({**kept, "duration": document["duration"] / 2.7}))
    with pytest.raises(UsageError, match="is below the hardware limit of 10"):
        calibrate([tmp_path / "fast.json"], "h100:2", **SETUP)


@pytest.mark.parametrize("more", [{"drafted": 3, "accepted": 2.2}, {"prefill": 1}, {"roofline": True}])
def test_a_calibration_is_refused_for_what_it_did_not_measure(
    more: dict[str, Any], shared: Path, tmp_path: Path
) -> None:
    text = calibrate([shared / FOLDER / "vllm-bench-0.33.0/c4.json"], "h100:2", **SETUP).text()
    (tmp_path / "own.yaml").write_text(text)
    with pytest.raises(UsageError, match="--calibration: "):
        predict("llama-3.1-70b", "h100:2", calibration=str(tmp_path / "own.yaml"), **SETUP, **more)


def test_a_disturbed_run_is_left_out_with_the_reason(shared: Path) -> None:
    files = [shared / FOLDER / "vllm-bench-0.33.0/c4.json", shared / FOLDER / "genai-bench-0.0.5/c4"]
    answer = calibrate(files, "h100:2", **SETUP)
    assert not answer.good
    assert len(answer.fitted.runs) == 1
    assert "Answers had 92 tokens" in answer.refused[0]
    with pytest.raises(UsageError, match="no run can be used"):
        calibrate(files[1:], "h100:2", **SETUP)
