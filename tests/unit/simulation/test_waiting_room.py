"""Beyond capacity, requests that may be refused or held are, and who is admitted is served in time."""

from dataclasses import replace

import numpy as np
import pytest

from penstock.routing.latency import times_of
from penstock.routing.records import REJECTED, Records
from penstock.simulation.outcome import Outcome
from penstock.simulation.run import simulate
from penstock.simulation.run_options import Options, Routing
from penstock.workload import Overload, Slo, SloClass
from simulated import conversation_lengths, pool

PROMISED = (SloClass(name="all", share_fraction=1.0, slo=Slo(ttft_s=1.0, tpot_s=0.05)),)
COUNT = 3_000
BEYOND_PER_S, ABOVE_PER_S, WITHIN_PER_S = 160.0, 72.0, 30.0
"""About 2.9, 1.3 and 0.5 times the rate at which 95% keep their SLO."""


def overloaded(overload: Overload, routing: Routing | None = None, rate_per_s: float = BEYOND_PER_S) -> Outcome:
    sent = conversation_lengths(COUNT, rate_per_s)
    classes = [replace(item, overload=overload) for item in PROMISED]
    options = Options(routing=routing or Routing(), keep_requests=True)
    return simulate([pool(replicas=4)], [sent], classes=classes, options=options)


def p99_s(outcome: Outcome) -> float:
    assert outcome.served is not None
    ttft_s = outcome.served.ttft_s
    return float(np.quantile(ttft_s[np.isfinite(ttft_s)], 0.99))


@pytest.mark.parametrize("overload", ["serve", "refuse", "hold"])
def test_below_capacity_everybody_is_served_at_once(overload: Overload) -> None:
    outcome = overloaded(overload, rate_per_s=WITHIN_PER_S)
    assert outcome.refused == outcome.classes[0].held == 0
    assert outcome.classes[0].met_fraction == 1.0


@pytest.mark.parametrize("overload", ["refuse", "hold"])
def test_beyond_capacity_more_are_kept_and_nobody_is_buried(overload: Overload) -> None:
    served, admitted = overloaded("serve"), overloaded(overload)
    assert served.refused == 0 < admitted.refused
    assert admitted.requests + admitted.refused == served.requests == COUNT
    assert admitted.classes[0].met >= served.classes[0].met
    assert p99_s(admitted) <= 3 * 1.0 < p99_s(served)


@pytest.mark.parametrize("rate_per_s", [ABOVE_PER_S, 100.0, BEYOND_PER_S, 220.0])
def test_who_is_held_is_sent_when_the_price_falls_or_refused_after_half_of_the_limit(rate_per_s: float) -> None:
    outcome, refused = (overloaded(overload, rate_per_s=rate_per_s) for overload in ("hold", "refuse"))
    held = outcome.classes[0].held
    assert 0 < outcome.refused < held + 1
    # Held requests take the place of newer ones with more time left: 0.95 to 1.03 times as many, by the load.
    assert outcome.classes[0].met >= 0.94 * refused.classes[0].met
    assert p99_s(outcome) <= p99_s(refused) + 0.6  # half of the limit, and a report


def test_the_room_for_held_requests_is_bounded() -> None:
    unbounded, none = (overloaded("hold", Routing(max_held=most)) for most in (COUNT, 0))
    refused = overloaded("refuse")
    assert none.classes[0].held == 0
    assert none.refused == refused.refused >= unbounded.refused


def test_clients_that_return_do_not_take_from_those_that_do_not() -> None:
    patient = overloaded("refuse")
    returning = overloaded("refuse", Routing(max_tries=5))
    assert returning.requests + returning.refused == COUNT
    assert returning.refused < patient.refused
    good, before = (sum(item.good_tokens for item in one.classes) for one in (returning, patient))
    assert good >= 0.9 * before
    assert p99_s(returning) <= 3.0
    assert returning.arrival_span_s == patient.arrival_span_s


def test_the_same_requests_have_the_same_outcome() -> None:
    first, again = (overloaded("hold", Routing(max_tries=2)) for _ in range(2))
    assert first.served is not None
    assert again.served is not None
    np.testing.assert_array_equal(first.served.ttft_s, again.served.ttft_s)


@pytest.mark.parametrize("pickers", [2, 3, 4])
def test_several_pickers_hold_and_refuse_each_its_own(pickers: int) -> None:
    outcome = overloaded("hold", Routing(pickers=pickers))
    assert outcome.requests + outcome.refused == COUNT
    assert p99_s(outcome) <= 3.0


@pytest.mark.parametrize("pickers", [1, 4])
@pytest.mark.parametrize("overload", ["refuse", "hold"])
def test_who_would_wait_too_long_for_kv_blocks_is_not_let_in(overload: Overload, pickers: int) -> None:
    outcome = overloaded(overload, Routing(pickers=pickers), rate_per_s=ABOVE_PER_S)
    assert outcome.classes[0].met >= 0.8 * COUNT
    assert p99_s(outcome) <= 2.0


def test_first_tokens_that_wait_for_kv_blocks_are_predicted() -> None:
    predicted_s = np.full(COUNT, np.nan)

    def show(request: Records, endpoints: Records, _: Records, chosen: int) -> None:
        if chosen != REJECTED and endpoints[chosen]["waiting"] > 5:
            predicted_s[request[0]["number"]] = times_of(request[0], endpoints[chosen], 0, 0.0)[0]

    outcome = overloaded("refuse", Routing(sampled_every=1, show=show), rate_per_s=ABOVE_PER_S)
    assert outcome.served is not None
    over = outcome.served.ttft_s / predicted_s
    assert np.isfinite(over).sum() > COUNT / 10
    assert 0.8 < np.nanmedian(over) < 1.25
