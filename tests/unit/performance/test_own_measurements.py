"""Predictions at measured loads: the answer is the measurement, between loads it is interpolated, far away it fades."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import deployment
from penstock.api.predict import PredictAnswer, predict
from penstock.performance.calibration.measured_runs import Run, measured_engine
from penstock.performance.calibration.repeated_runs import repeat_spread
from penstock.performance.prediction.measured_load import RequestedLoad, time_per_token_at
from penstock.performance.prediction.nearest_measurements import reasons_to_differ
from penstock.performance.prediction.predict_deployment import Prediction
from penstock.performance.prediction.serving_stack import stack_of
from penstock.performance.shipped.shipped_runs import shipped_efficiencies, shipped_runs
from penstock.performance.similarity.cases import LogLoad
from penstock.performance.similarity.curve import curve_of
from penstock.performance.similarity.own_measurements import OwnMeasurements
from penstock.performance.step.step_work import ReplicaWork

SHIPPED = shipped_efficiencies()
LOADS = st.lists(
    st.tuples(st.floats(0, 10), st.floats(7, 15), st.floats(5, 13)), min_size=1, max_size=8, unique_by=lambda load: load
)


def logs(loads: list[tuple[float, float, float]]) -> LogLoad:
    users, inputs, outputs = (np.array(column) for column in zip(*loads, strict=True))
    return users, inputs, outputs


def own_of(loads: list[tuple[float, float, float]]) -> OwnMeasurements:
    return OwnMeasurements(loads=logs(loads), log_seconds=np.zeros(len(loads)), drift=np.zeros(len(loads)))


def answer_of(model: str, target: str, users: int) -> PredictAnswer:
    answer = predict(model, target, input_tokens=7373, output_tokens=922, concurrency=users)
    assert isinstance(answer, PredictAnswer)
    return answer


def sampled_setups(count: int) -> list[Run]:
    """Return one run of each of `count` served setups, sampled with a fixed seed."""
    first: dict[int, Run] = {}
    for number, run in enumerate(shipped_runs()):
        if run.row.scenario == "online":
            first.setdefault(int(SHIPPED.evidence.cases.labels["setup"][number]), run)
    order = np.random.default_rng(11).permutation(len(first))[:count]
    return [list(first.values())[number] for number in order.tolist()]


def test_at_a_measured_load_the_answer_is_the_measurement() -> None:
    for run in sampled_setups(30):
        curve = curve_of(SHIPPED.evidence, run.work, measured_engine(run.row))
        left = curve.differences - curve.correction(curve.own.loads)
        assert np.max(np.abs(left), initial=0.0) < 0.02, run.row.id


@given(LOADS, st.lists(st.floats(-0.5, 0.5), min_size=8, max_size=8))
def test_far_from_every_measurement_the_correction_vanishes(
    loads: list[tuple[float, float, float]], differences: list[float]
) -> None:
    own = own_of(loads)
    far = logs([(30.0, 40.0, 40.0)])
    assert own.interpolate(far, np.array(differences[: len(loads)])) == pytest.approx(0.0, abs=1e-6)
    assert own.unexplained_share(far) == pytest.approx(1.0)


@given(LOADS, st.tuples(st.floats(0, 10), st.floats(7, 15), st.floats(5, 13)))
def test_a_further_measurement_never_leaves_more_unexplained(
    loads: list[tuple[float, float, float]], asked: tuple[float, float, float]
) -> None:
    at = logs([asked])
    fewer = own_of(loads[:-1]).unexplained_share(at)[0] if len(loads) > 1 else 1.0
    more = own_of(loads).unexplained_share(at)[0]
    assert 0 <= more <= fewer + 1e-6


def test_a_shared_difference_holds_between_two_measured_loads() -> None:
    own = own_of([(4.0, 10.0, 10.0), (6.0, 10.0, 10.0)])
    between = own.interpolate(logs([(5.0, 10.0, 10.0)]), np.array([0.1, 0.1]))[0]
    assert between == pytest.approx(0.1, rel=0.15)


def test_a_measurement_of_outdated_software_is_not_the_answer() -> None:
    """16 users were measured once, in 2025. At 4 and at 64 users, software of 2026 is a third faster."""
    work, load = ReplicaWork(deployment("deepseek-r1", "b200", tp=8)), RequestedLoad(16, 7373, 922)
    rows = SHIPPED.rows_of(work, "trtllm")
    cases, seconds = SHIPPED.evidence.cases, SHIPPED.evidence.measured.seconds
    (outdated,) = (row for row in rows if (cases.users[row], round(cases.input_tokens[row])) == (16, 7373))
    stack = stack_of(work, "trtllm", SHIPPED)
    assert time_per_token_at(stack, work, "trtllm", SHIPPED, load).tier == "interpolated"
    answer = answer_of("deepseek-r1", "b200:8", 16)
    assert answer.predictions[0].tpot_s.value < 0.9 * seconds[outdated]


@pytest.mark.parametrize(("target", "measured_ms"), [("mi355x:8", 31.7), ("b200:8", 31.6)])
def test_two_accelerators_that_measure_equal_are_predicted_equal(target: str, measured_ms: float) -> None:
    answer = answer_of("deepseek-r1", target, 64)
    (prediction,) = answer.predictions
    assert prediction.tier == "measured"
    assert prediction.tpot_s.value * 1e3 == pytest.approx(measured_ms, rel=0.02)
    nearest = answer.nearest[0][0]
    assert nearest.weights == "fp8"
    assert not reasons_to_differ(prediction, nearest)
    older = [row for row in answer.nearest[0] if abs((row.tpot_s or 0) * 1e3 / measured_ms - 1) > 0.08]
    assert all(reasons_to_differ(prediction, row) for row in older)


def test_tiers_say_how_near_the_load_was_measured() -> None:
    work = ReplicaWork(deployment("deepseek-r1", "b200", tp=8))
    stack = stack_of(work, "trtllm", SHIPPED)
    loads = RequestedLoad(64, 7373, 922), RequestedLoad(50, 7000, 1000), RequestedLoad(64, 200_000, 16)
    found = [time_per_token_at(stack, work, "trtllm", SHIPPED, load) for load in loads]
    assert [each.tier for each in found] == ["measured", "interpolated", "calibrated"]
    widths = [each.spread[1] - each.spread[0] for each in found]
    assert widths == sorted(widths)


def test_repetitions_differ_less_than_predictions() -> None:
    low, high = SHIPPED.repeats
    assert low < 0 < high
    assert np.exp(high - low) < 1.25
    assert (low, high) == pytest.approx(
        repeat_spread(SHIPPED.evidence.measured, SHIPPED.evidence.measured.seconds), rel=1e-3
    )


@pytest.mark.parametrize(("users", "lengths"), list(product((16, 64), ((1000, 1000), (7373, 922)))))
def test_intervals_widen_away_from_the_measured_lengths(users: int, lengths: tuple[int, int]) -> None:
    work = ReplicaWork(deployment("deepseek-r1", "mi300x", tp=8))
    stack = stack_of(work, "sglang", SHIPPED)
    near = time_per_token_at(stack, work, "sglang", SHIPPED, RequestedLoad(users * 1.3, *lengths))
    far = time_per_token_at(stack, work, "sglang", SHIPPED, RequestedLoad(users, 131_072, 16))
    assert near.spread[1] - near.spread[0] < far.spread[1] - far.spread[0]


def test_a_measured_time_to_first_token_is_the_answer() -> None:
    """8 MI355X answered in 0.98 to 1.1 s, the start of the benchmark included."""
    (prediction,) = answer_of("deepseek-r1", "mi355x:8", 64).predictions
    work = ReplicaWork(prediction.deployment)
    rows = SHIPPED.rows_of(work, prediction.measured_engine)
    cases, first_s = SHIPPED.evidence.cases, SHIPPED.evidence.measured.first_s
    at = [row for row in rows if (cases.users[row], round(cases.input_tokens[row])) == (64, 7373)]
    newest = max(at, key=lambda row: float(cases.day[row]))
    assert prediction.ttft_tier == "measured"
    assert prediction.ttft_s is not None
    assert prediction.ttft_s.value == pytest.approx(first_s[newest], rel=0.05)


@pytest.mark.parametrize(
    ("model", "on", "engine"), [("gpt-oss-120b", "mi300x:1", "vllm"), ("deepseek-r1", "b200:8", "trtllm")]
)
def test_the_time_to_first_token_is_continuous_and_rises_with_the_load(model: str, on: str, engine: str) -> None:
    """Also where the tier changes. The statistic is the same at every load. Single steps make a difference of 5%."""
    loads = (1, 4, 8, 16, 19, 20, 21, 22, 32, 64)
    predictions = [only(predict(model, on, engine=engine, concurrency=users)) for users in loads]
    first_s = np.array([each.ttft_s.value for each in predictions if each.ttft_s is not None])
    assert len({each.ttft_tier for each in predictions}) > 1
    assert len({each.ttft_statistic for each in predictions}) == 1
    assert np.all(first_s[1:] > 0.95 * first_s[:-1])
    assert np.all(first_s[5:8] < 1.1 * first_s[4:7])


def test_slightly_longer_answers_stop_few_measured_users() -> None:
    """Two H100 ran 64 users with these lengths. Room for whole answers would be room for 24."""
    running = [
        only(
            predict(
                "llama-3.3-70b",
                "h100:2",
                engine="vllm",
                precision="fp8",
                input_tokens=922,
                output_tokens=round(7373 * longer),
                concurrency=64,
            )
        ).running
        for longer in (1.0, 1.04, 1.08, 1.12, 1.16, 1.2, 1.25)
    ]
    assert running[0] == 64
    assert np.all(np.abs(np.diff(running)) <= 0.1 * np.array(running[:-1]))


def only(answer: object) -> Prediction:
    assert isinstance(answer, PredictAnswer)
    (prediction,) = answer.predictions
    return prediction
