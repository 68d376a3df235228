"""Users who think are not in step: a closed loop serves as an open one does at the rate it settles at."""

import numpy as np
import pytest

from penstock.errors import UsageError
from penstock.simulation.outcome import Outcome
from penstock.simulation.run import simulate
from penstock.simulation.run_options import Options
from penstock.simulation.scenario import require_rounds, stagger_users
from penstock.workload import Fixed, Slo, SloClass, Workload
from penstock.workload.requests import Float64s
from penstock.workload.synthetic.arrivals import ClosedLoop, Poisson
from simulated import pool, requests

CHAT = (SloClass(name="all", share_fraction=1.0, slo=Slo(ttft_s=0.5, tpot_s=0.03)),)
LENGTHS = Fixed(input_tokens=1000, output_tokens=200)


def closed(users: int, think_s: float, *, replicas: int, rounds: int = 20, seed: int = 0) -> Outcome:
    workload = Workload(name="closed", arrivals=ClosedLoop(users=users, think_s=think_s), lengths=LENGTHS)
    fleet = [pool(replicas=replicas)]
    asked = Options(users=users, think_s=think_s, seed=seed, keep_requests=True)
    blocks = workload.blocks(seed=seed, requests=rounds * users)
    return simulate(fleet, blocks, classes=CHAT, options=stagger_users(asked, fleet, workload))


def opened(rate_per_s: float, *, replicas: int, count: int) -> Outcome:
    workload = Workload(name="open", arrivals=Poisson(), lengths=LENGTHS)
    return simulate(
        [pool(replicas=replicas)], workload.blocks(seed=0, requests=count, rate_per_s=rate_per_s), classes=CHAT
    )


def pauses(users: int, think_s: float, *, cut: int = 4_000, seed: int = 0) -> Float64s:
    """Of one user after another: from the end of each answer to the next request."""
    sent = requests([0.0] * 4_000, [(100, 5)] * 4_000)
    blocks = [sent.rows(start, min(start + cut, 4_000)) for start in range(0, 4_000, cut)]
    options = Options(users=users, think_s=think_s, seed=seed, keep_requests=True)
    served = simulate([pool()], blocks, options=options).served
    assert served is not None
    found: Float64s = served.arrival_s[1:] - served.arrival_s[:-1] - served.e2e_s[:-1]
    return found


@pytest.mark.parametrize(("users", "think_s", "replicas"), [(120, 8.0, 1), (400, 5.0, 4), (200, 0.5, 4)])
def test_a_closed_loop_keeps_what_an_open_one_at_its_rate_keeps(users: int, think_s: float, replicas: int) -> None:
    """All users at once with equal pauses came in waves: first tokens late, and nothing kept."""
    together = closed(users, think_s, replicas=replicas)
    served, kept = together.served, together.classes[0].met_fraction
    assert served is not None
    assert kept is not None
    rate = 10 * users / float(served.arrival_s[15 * users] - served.arrival_s[5 * users])
    apart = opened(rate, replicas=replicas, count=20 * users).classes[0].met_fraction
    assert apart is not None
    assert apart > 0.9
    assert kept == pytest.approx(apart, abs=0.03)


def test_arrivals_do_not_come_in_waves() -> None:
    served = closed(300, 2.0, replicas=4).served
    assert served is not None
    middle = served.arrival_s[600:-600]
    gaps = np.diff(middle)
    assert (np.diff(served.arrival_s) >= 0).all()
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.1)  # as of independent users
    per_second = np.histogram(middle, bins=int(middle[-1] - middle[0]))[0]
    assert per_second.std() < 1.5 * per_second.mean() ** 0.5


def test_pauses_are_exponential_around_the_mean() -> None:
    alone = pauses(1, 2.0)
    assert alone.mean() == pytest.approx(2.0, rel=0.05)
    assert alone.std() == pytest.approx(2.0, rel=0.1)
    assert alone.min() < 0.01


def test_pauses_hang_on_the_seed_and_not_on_how_requests_are_cut() -> None:
    once = pauses(7, 1.0)
    assert (once == pauses(7, 1.0, cut=333)).all()
    assert (once != pauses(7, 1.0, seed=1)).any()


def test_the_beginning_is_served_and_not_judged() -> None:
    outcome = closed(300, 5.0, replicas=4, rounds=5)
    item = outcome.classes[0]
    assert outcome.requests == outcome.asked == 1_500
    assert outcome.output_tokens == 1_500 * 200
    assert (item.unjudged, item.requests) == (300, 1_200)
    assert item.ttft.count == item.e2e.count == item.asked == item.requests


def test_users_ask_as_often_at_the_end_as_before() -> None:
    """The rate does not dwindle while the last rows are out: users think on, and a run ends with its last answer."""
    outcome = closed(300, 20.0, replicas=4)
    assert outcome.served is not None
    arrival_s = outcome.served.arrival_s
    rate = 3_000 / (arrival_s[4_000] - arrival_s[1_000])
    assert 300 / (arrival_s[-1] - arrival_s[-301]) == pytest.approx(rate, rel=0.2)
    assert outcome.makespan_s - arrival_s[-1] < 2 * outcome.served.e2e_s.max()


def test_users_who_do_not_think_start_together_and_are_all_judged() -> None:
    rows = requests([0.0] * 40, [(100, 10)] * 40)
    outcome = simulate([pool()], [rows], options=Options(users=8, spread_s=5.0, keep_requests=True))
    assert outcome.served is not None
    assert (outcome.served.arrival_s[:8] == 0).all()
    assert outcome.classes[0].unjudged == 0


def test_too_few_requests_for_users_who_think_are_refused_with_how_many() -> None:
    require_rounds(100, 200)
    with pytest.raises(UsageError, match="write --requests 200 or more"):
        require_rounds(100, 199)
