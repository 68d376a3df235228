"""One run tells what slower replicas sustain: held against runs of replicas that really are slower."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from penstock.simulation.capacity import RateSearch, capacity, trial
from penstock.simulation.replica import ReplicaPool
from penstock.simulation.run import simulate
from penstock.simulation.slower_steps import SlowerSteps
from penstock.workload import LogNormal, Poisson, Slo, SloClass, Workload
from simulated import COST, pool

LENGTHS = LogNormal(
    input_median_tokens=600,
    input_sigma=1.0,
    output_median_tokens=130,
    output_sigma=0.9,
    max_input_tokens=8000,
    max_output_tokens=2000,
)
CHAT = Workload(name="chat", arrivals=Poisson(), lengths=LENGTHS)
REQUESTS = 6000
MANY = 20_000
"""With few requests, chance alone moves a rate by several percent where attainment hardly depends on the rate."""


def classes(**limits: float) -> list[SloClass]:
    return [SloClass(name="all", share_fraction=1.0, slo=Slo(**limits))]


def slower(by: float) -> ReplicaPool:
    found = pool(replicas=3, cost=COST.scaled(by))
    return replace(found, replica=replace(found.replica, request_s=0.02, first_ratio=1.3))


@pytest.mark.parametrize("by", [0.5, 1.7, 4.0])
def test_slower_steps_and_arrivals_stretch_every_time_but_that_outside_the_engine(by: float) -> None:
    plain, stretched = (
        simulate(
            [slower(factor)],
            CHAT.blocks(seed=3, requests=REQUESTS, rate_per_s=20 / factor),
            options=replace(RateSearch(workload=CHAT, classes=()).options, keep_requests=True),
        ).served
        for factor in (1.0, by)
    )
    assert plain is not None
    assert stretched is not None
    # A tie of two events may fall the other way by rounding; what follows is then another run of the same law.
    same = np.isclose(stretched.ttft_s - 0.02, by * (plain.ttft_s - 0.02), rtol=1e-6)
    assert same.mean() > 0.99


@pytest.mark.parametrize("limits", [{"ttft_s": 0.5, "tpot_s": 0.03}, {"e2e_s": 9.0}, {"tpot_s": 0.022}])
def test_the_limit_of_a_trial_is_where_slower_replicas_begin_to_miss(limits: dict[str, float]) -> None:
    asked = RateSearch(workload=CHAT, classes=classes(**limits), seed=3)
    limit = trial([slower(1.0)], asked, 12.0, requests=REQUESTS).slowdown_limit
    assert limit is not None
    below, above = (trial([slower(limit * f)], asked, 12.0 / (limit * f), requests=REQUESTS) for f in (0.99, 1.01))
    assert below.met
    assert not above.met


@pytest.mark.parametrize("by", [0.7, 1.0, 1.3, 1.8])
@pytest.mark.parametrize("limits", [{"ttft_s": 0.5, "tpot_s": 0.03}, {"tpot_s": 0.03}])
def test_the_rate_of_slower_replicas_is_that_of_a_search_with_slower_replicas(
    by: float, limits: dict[str, float]
) -> None:
    asked = RateSearch(workload=CHAT, classes=classes(**limits), seed=3)
    run = partial(trial, [slower(1.0)], asked, requests=MANY)
    found = SlowerSteps(run, 15.0, [run(15.0)]).sustained_per_s(by)
    direct = capacity([slower(by)], CHAT, classes=asked.classes, requests=MANY, seed=3)
    # Both state the rate that was asked; of the drawn arrivals chance makes another rate.
    drawn = run(15.0).rate_per_s / 15.0
    assert found * drawn == pytest.approx(direct.rate_per_s, rel=0.03)


def test_replicas_too_slow_for_the_slo_sustain_nothing() -> None:
    asked = RateSearch(workload=CHAT, classes=classes(tpot_s=0.03), seed=3)
    run = partial(trial, [slower(1.0)], asked, requests=REQUESTS)
    steps = SlowerSteps(run, 15.0, [run(15.0)])
    assert steps.feasible(1.5)
    assert not steps.feasible(3.0)
    assert steps.sustained_per_s(3.0) == 0
