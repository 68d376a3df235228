"""What breaks: faults that overlap are their union, and what a death costs is what it costs behind a gateway."""

import numpy as np
import pytest

from penstock.routing.baselines.all_policies import POLICIES
from penstock.routing.records import Records
from penstock.simulation.capacity import RateSearch, trial
from penstock.simulation.outcome import Outcome
from penstock.simulation.run import simulate
from penstock.simulation.run_options import Fault, Options, Routing
from penstock.workload import Fixed, Poisson, Slo, SloClass, Workload
from simulated import conversation_lengths, pool, requests


def after(*faults: Fault) -> Outcome:
    options = Options(routing=Routing(faults=faults), keep_requests=True)
    return simulate([pool(replicas=4)], [conversation_lengths(2_000, 30.0)], options=options)


def dead(at_s: float, for_s: float = float("inf")) -> Fault:
    return Fault(kind="dies", replica=0, at_s=at_s, for_s=for_s)


def slow(factor: float, at_s: float, for_s: float) -> Fault:
    return Fault(kind="slow", replica=0, at_s=at_s, for_s=for_s, factor=factor)


def silent(at_s: float, for_s: float) -> Fault:
    return Fault(kind="silent", replica=0, at_s=at_s, for_s=for_s)


@pytest.mark.parametrize(
    ("several", "same"),
    [
        ((dead(20.0), dead(30.0, 10.0)), (dead(20.0),)),
        ((dead(30.0, 10.0), dead(20.0, 15.0)), (dead(20.0, 20.0),)),
        ((dead(20.0, 10.0), dead(30.0, 10.0)), (dead(20.0, 20.0),)),
        ((slow(3.0, 10.0, 40.0), slow(3.0, 20.0, 5.0)), (slow(3.0, 10.0, 40.0),)),
        ((slow(3.0, 10.0, 40.0), slow(1.01, 11.0, 1.0)), (slow(3.0, 10.0, 40.0),)),
        (
            (slow(2.0, 10.0, 30.0), slow(4.0, 20.0, 10.0)),
            (slow(2.0, 10.0, 10.0), slow(4.0, 20.0, 10.0), slow(2.0, 30.0, 10.0)),
        ),
        ((silent(10.0, 40.0), silent(20.0, 5.0)), (silent(10.0, 40.0),)),
    ],
)
def test_faults_that_overlap_are_their_union(several: tuple[Fault, ...], same: tuple[Fault, ...]) -> None:
    once, again = after(*several), after(*same)
    assert once.served is not None
    assert again.served is not None
    assert once.served.replica.tobytes() == again.served.replica.tobytes()
    assert once.served.e2e_s.tobytes() == again.served.e2e_s.tobytes()


def test_after_a_death_the_others_are_as_if_they_had_been_alone() -> None:
    """First tokens are later after a death because fewer replicas carry the load, and for nothing else."""
    sent = conversation_lengths(20_000, 80.0)
    later = sent.arrival_s > 130.0
    p99 = []
    for replicas, faults in ((7, ()), (8, (dead(70.0),))):
        options = Options(routing=Routing(faults=faults), keep_requests=True)
        served = simulate([pool(replicas=replicas)], [sent], options=options).served
        assert served is not None
        p99.append(float(np.quantile(served.ttft_s[later], 0.99)))
    assert p99[1] == pytest.approx(p99[0], rel=0.05)


def test_who_finds_a_replica_dead_asks_the_policy_again_and_goes_where_it_says() -> None:
    named: dict[int, int] = {}
    refused: list[float] = []

    def fewest(request: Records, endpoints: Records, _hits: Records, _parameters: Records) -> int:
        chosen = int(np.argmin(np.where(endpoints["accepts"] != 0, endpoints["in_flight"], 10**9)))
        number, now_s = int(request[0]["number"]), float(request[0]["now_s"])
        if chosen == 0 and 20.0 <= now_s < 30.0:
            refused.append(now_s)
        named[number] = chosen
        return chosen

    options = Options(routing=Routing(pick=fewest, faults=(dead(20.0, 10.0),)), keep_requests=True)
    served = simulate([pool(replicas=4)], [conversation_lengths(2_000, 30.0)], options=options).served
    assert served is not None
    whole = served.replica >= 0
    assert [named[number] for number in served.number[whole]] == served.replica[whole].tolist()
    # What was under way told the picker; without it the first to be refused does.
    assert refused == []


@pytest.mark.parametrize("name", ["round-robin", "least-request", "penstock"])
def test_until_a_death_is_noticed_nobody_is_sent_to_its_neighbour_only(name: str) -> None:
    options = Options(routing=Routing(pick=POLICIES[name].pick, faults=(dead(20.0, 10.0),)), keep_requests=True)
    served = simulate([pool(replicas=8)], [conversation_lengths(3_000, 60.0)], options=options).served
    assert served is not None
    unnoticed = (served.arrival_s > 20.0) & (served.arrival_s < 21.0)
    shares = np.bincount(served.replica[unnoticed], minlength=8) / unnoticed.sum()
    assert shares[0] == 0
    assert shares.max() < 0.35


def test_with_nothing_under_way_the_first_request_to_be_refused_tells_its_picker() -> None:
    asked: list[int] = []

    def first(_request: Records, endpoints: Records, _hits: Records, _parameters: Records) -> int:
        asked.append(int(np.argmax(endpoints["accepts"] != 0)))
        return asked[-1]

    sent = requests([1.0, 1.1, 1.2], [(16, 2)] * 3)
    outcome = simulate([pool(replicas=2)], [sent], options=Options(routing=Routing(pick=first, faults=(dead(0.5),))))
    assert (outcome.requests, asked) == (3, [0, 1, 1, 1])


def test_a_policy_that_names_only_the_dead_turns_requests_away() -> None:
    def always(_request: Records, _endpoints: Records, _hits: Records, _parameters: Records) -> int:
        return 0

    sent = requests([1.0, 2.0], [(16, 2)] * 2)
    outcome = simulate([pool(replicas=2)], [sent], options=Options(routing=Routing(pick=always, faults=(dead(0.5),))))
    assert (outcome.requests, outcome.refused, outcome.lost) == (0, 2, 0)


def test_answers_that_had_begun_are_lost_and_every_request_is_counted_once() -> None:
    fresh, outcome = after().served, after(dead(20.0, 10.0))
    assert fresh is not None
    first_s, last_s = fresh.arrival_s + fresh.ttft_s, fresh.arrival_s + fresh.e2e_s
    begun = (fresh.replica == 0) & (first_s <= 20.0) & (last_s > 20.0)
    assert outcome.lost == begun.sum() > 0
    assert (outcome.requests + outcome.lost, outcome.refused) == (2_000, 0)
    assert outcome.asked == 2_000
    (kept,) = outcome.classes
    assert kept.met_fraction == kept.requests / 2_000
    assert not kept.attained
    assert outcome.served is not None
    assert outcome.served.number[outcome.served.replica == -2].tolist() == fresh.number[begun].tolist()
    assert set(outcome.served.picked[outcome.served.replica == -2].tolist()) == {0}


def test_what_is_lost_keeps_no_promise_of_any_kind_where_a_rate_is_judged() -> None:
    """An answer without times is not one that is too short to have a time per token."""
    kinds = (SloClass(name="all", share_fraction=1.0, slo=Slo(tpot_s=1.0)),)
    asked = Workload(name="fixed", arrivals=Poisson(), lengths=Fixed(input_tokens=200, output_tokens=300))
    options = Options(routing=Routing(faults=(dead(20.0),)))
    judged = trial([pool(replicas=4)], RateSearch(workload=asked, classes=kinds, options=options), 20.0, requests=1_000)
    assert judged.outcome is not None
    assert judged.outcome.lost > 0
    assert judged.attained_fraction < 1.0
