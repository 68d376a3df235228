"""What rows say about a run: laws of the covariance, what one row changes, and slowdowns that say the same."""

from dataclasses import replace
from datetime import date, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import SLOWDOWNS, deployment
from penstock.performance.shipped.shipped_runs import shipped_efficiencies
from penstock.performance.similarity.cases import Cases
from penstock.performance.similarity.covariance import covariance, linear
from penstock.performance.similarity.curve import curve_of, slowdowns_of, uncertainty_of
from penstock.performance.similarity.posterior import Evidence, Measured, solve
from penstock.performance.similarity.slowdowns import GRID, closed_loop_case, slowdowns_through
from penstock.performance.step.step_work import COMPONENTS, PHYSICAL, Array, ReplicaWork

SHIPPED = shipped_efficiencies().evidence
SPREADS = SHIPPED.spreads
DAY = date(2026, 3, 1)
R1 = ReplicaWork(deployment("deepseek-r1", "mi300x", tp=8))
LLAMA = ReplicaWork(deployment("llama-3.1-70b", "h100", tp=8))


def measured(cases: Cases, seconds: Array) -> Measured:
    nothing = np.full(len(seconds), np.nan)
    return Measured(cases=cases, seconds=seconds, first_s=nothing, median_s=nothing, texts={})


def some_rows(count: int) -> Cases:
    return SHIPPED.cases.take(np.random.default_rng(5).permutation(len(SHIPPED.cases))[:count])


def test_the_covariance_is_symmetric_and_no_direction_has_less_than_no_spread() -> None:
    rows = some_rows(400)
    found = covariance(rows, rows, SPREADS).astype(np.float64)
    assert found == pytest.approx(found.T, abs=1e-6)
    assert np.linalg.eigvalsh(found).min() > -1e-4


def test_a_median_over_months_beside_every_month_is_still_a_covariance() -> None:
    load = ((16.0, 1000.0, 1000.0),)
    dated = [
        closed_loop_case(R1, "sglang", load, date(2025, 10, 1) + timedelta(days=31 * month)) for month in range(10)
    ]
    rows = [*dated, closed_loop_case(R1, "sglang", load, date(2026, 7, 19), undated=True)]
    found = np.array([[float(covariance(one, other, SPREADS)[0, 0]) for other in rows] for one in rows])
    assert np.linalg.eigvalsh(found).min() > -1e-6


def test_a_run_is_most_like_itself() -> None:
    rows = some_rows(200)
    found = covariance(rows, rows, SPREADS).astype(np.float64)
    own = np.sqrt(np.diag(found))
    assert (found <= np.outer(own, own) + 1e-5).all()


def test_what_is_far_in_load_or_lengths_is_less_alike() -> None:
    near, far = (
        closed_loop_case(R1, "sglang", (load,), DAY) for load in ((32.0, 1000.0, 1000.0), (256.0, 8000.0, 1000.0))
    )
    at = closed_loop_case(R1, "sglang", ((16.0, 1000.0, 1000.0),), DAY)
    assert covariance(at, near, SPREADS)[0, 0] > covariance(at, far, SPREADS)[0, 0]


def test_other_software_is_less_alike() -> None:
    load = ((16.0, 1000.0, 1000.0),)
    at, soon, late = (closed_loop_case(R1, "sglang", load, day) for day in (DAY, date(2026, 3, 20), date(2025, 10, 1)))
    assert covariance(at, soon, SPREADS)[0, 0] > covariance(at, late, SPREADS)[0, 0]
    undated = closed_loop_case(R1, "sglang", load, DAY, undated=True)
    assert covariance(at, undated, SPREADS)[0, 0] < covariance(at, at, SPREADS)[0, 0]


def test_kin_are_more_alike_than_strangers() -> None:
    load = ((16.0, 1000.0, 1000.0),)
    at = closed_loop_case(R1, "sglang", load, DAY)
    order = [
        closed_loop_case(ReplicaWork(deployment("deepseek-r1", "mi300x", tp=4)), "sglang", load, DAY),
        closed_loop_case(ReplicaWork(deployment("deepseek-r1", "mi355x", tp=8)), "sglang", load, DAY),
        closed_loop_case(LLAMA, "vllm", load, DAY),
    ]
    found = [float(covariance(at, other, SPREADS)[0, 0]) for other in order]
    assert found == sorted(found, reverse=True)


@given(factor=st.floats(0.7, 1.4))
def test_a_setup_that_runs_slower_throughout_is_followed(factor: float) -> None:
    loads = closed_loop_case(R1, "sglang", GRID, DAY)
    seconds = np.exp(linear(loads, SPREADS).reference) * factor
    found = solve(measured(loads, seconds), SPREADS)
    assert np.exp(found.log_seconds(loads)) == pytest.approx(seconds, rel=0.12)


def test_where_nothing_is_known_the_common_slowdowns_speak_and_doubt_is_largest() -> None:
    loads = closed_loop_case(R1, "sglang", GRID, DAY)
    rows = closed_loop_case(LLAMA, "vllm", GRID, DAY)
    alone = solve(measured(rows, np.exp(linear(rows, SPREADS).reference)), SPREADS)
    assert alone.log_seconds(loads) == pytest.approx(linear(loads, SPREADS).reference, abs=0.05)
    assert alone.spread(loads).min() > alone.spread(rows).max()


def test_a_measurement_never_makes_less_sure() -> None:
    rows = some_rows(300)
    centre = closed_loop_case(R1, "sglang", GRID[5:8], DAY)
    few, more = (
        Evidence(measured=measured(kept, np.ones(len(kept))), spreads=SPREADS, solved=np.zeros(len(kept)))
        for kept in (rows.take(np.arange(100)), rows)
    )
    assert (more.spread(centre) <= few.spread(centre) + 1e-4).all()


@given(st.lists(st.floats(0.7, 1.5), min_size=len(COMPONENTS), max_size=len(COMPONENTS)))
def test_slowdowns_pass_through_times_that_slowdowns_made(factors: list[float]) -> None:
    light = closed_loop_case(R1, "sglang", GRID, DAY).roofline
    true = np.maximum(SLOWDOWNS * np.array(factors), [1.0] * PHYSICAL + [0.0] * (len(COMPONENTS) - PHYSICAL))
    found = slowdowns_through(light, np.log(light @ true), SPREADS.common)
    assert np.median(np.abs(light @ found / (light @ true) - 1)) < 0.02
    assert np.max(np.abs(light @ found / (light @ true) - 1)) < 0.08


@given(st.floats(0.05, 20.0))
def test_no_part_is_ever_faster_than_light(factor: float) -> None:
    light = closed_loop_case(R1, "sglang", GRID, DAY).roofline
    found = slowdowns_through(light, np.log(light @ SLOWDOWNS * factor), SPREADS.common)
    assert (found[:5] >= 1 - 1e-9).all()
    assert (found > 0).all()


def test_five_percent_slower_rows_move_a_prediction_by_about_five_percent() -> None:
    rows = some_rows(600)
    seconds = np.exp(linear(rows, SPREADS).reference) * 1.2
    before, after = (solve(measured(rows, seconds * by), SPREADS) for by in (1.0, 1.05))
    light = closed_loop_case(R1, "sglang", GRID, DAY).roofline
    ratio = light @ slowdowns_of(after, R1, "sglang", DAY) / (light @ slowdowns_of(before, R1, "sglang", DAY))
    assert (ratio > 1.0).all()
    assert (ratio < 1.08).all()


@pytest.mark.parametrize("work", [R1, LLAMA])
def test_reason_by_reason_is_the_same_as_all_at_once(work: ReplicaWork) -> None:
    loads = closed_loop_case(work, "sglang", GRID, DAY)
    whole = linear(loads, SPREADS).reference + covariance(loads, SHIPPED.cases, SPREADS) @ SHIPPED.solved
    assert SHIPPED.log_seconds(loads) == pytest.approx(whole, abs=2e-3)


def test_the_shipped_rows_weigh_what_they_must() -> None:
    """The weights solve the system they claim to: every row is its prediction plus its own noise times its weight."""
    some = np.random.default_rng(3).permutation(len(SHIPPED.cases))[:150]
    rows = SHIPPED.cases.take(some)
    left = np.log(SHIPPED.measured.seconds[some]) - linear(rows, SPREADS).reference
    noise = SPREADS.noise**2 + SPREADS.of["undated"] ** 2 * rows.undated
    explained = covariance(rows, SHIPPED.cases, SPREADS) @ SHIPPED.solved
    assert explained + noise * SHIPPED.solved[some] == pytest.approx(left, abs=5e-3)


def test_doubt_is_small_where_it_was_measured_and_large_on_a_part_nobody_measured() -> None:
    unknown = replace(R1.deployment.accelerator, id="mi999x", vendor="intel")
    works = (
        R1,
        ReplicaWork(deployment("deepseek-r1", "mi300x", tp=4)),
        ReplicaWork(replace(R1.deployment, accelerator=unknown)),
    )
    own = (curve_of(SHIPPED, work, "sglang").own for work in works)
    known, other_split, stranger = (
        uncertainty_of(SHIPPED, work, "sglang", each) for work, each in zip(works, own, strict=True)
    )
    assert known < other_split < stranger
