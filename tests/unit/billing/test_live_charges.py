"""Dollars while a fleet runs: tenants, idle and uncharged time are the rent, and a settlement is a bill of its time."""

import random
from dataclasses import astuple
from math import fsum, nan
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.billing.charges import RentedTime
from penstock.billing.invoice import BilledPool, BilledRequest, make_invoice
from penstock.billing.live_charges import CHARGED_REQUEST, LiveCharges, LivePool
from penstock.billing.step_seconds import StepCoefficients, TokenWork
from penstock.routing.records import Records

COEFFICIENTS = StepCoefficients(
    step_s=0.01, prompt_token_s=3e-5, sequence_s=2e-5, context_token_s=3e-8, step_tokens=2048
)
WORK = TokenWork(input_tokens=500, cached_tokens=100, output_tokens=80)


def pool(name: str = "p", endpoints: int = 2, usd_per_s: float = 0.001) -> LivePool:
    addresses = tuple(f"{name}{number}" for number in range(endpoints))
    return LivePool(name=name, model="m", coefficients=COEFFICIENTS, usd_per_s=usd_per_s, endpoints=addresses)


class ChargedRequest(NamedTuple):
    tenant: str
    pool: str
    endpoint: str
    sent_s: float
    ended_s: float
    work: TokenWork


def ended(tenant: str, sent_s: float, ended_s: float, endpoint: str = "p0", work: TokenWork = WORK) -> ChargedRequest:
    return ChargedRequest(tenant, endpoint[:-1], endpoint, sent_s, ended_s, work)


def rows_of(requests: list[ChargedRequest]) -> Records:
    return np.array([(*one[:4], nan, one.ended_s, *astuple(one.work)) for one in requests], CHARGED_REQUEST)


def run(
    charges: LiveCharges, requests: list[ChargedRequest], until_s: float, settle_s: float = 30.0, step_s: float = 0.1
) -> None:
    """Play requests: looks every 0.1 s, a settlement every `settle_s`."""
    waiting, now_s, settled_s = sorted(requests, key=lambda one: one.ended_s), 0.0, 0.0
    while now_s < until_s:
        now_s = min(until_s, now_s + step_s)
        charges.add(rows_of([one for one in waiting if one.ended_s <= now_s]))
        waiting = [one for one in waiting if one.ended_s > now_s]
        flying = [one.endpoint for one in requests if one.sent_s <= now_s < one.ended_s]
        charges.look(now_s, {address: flying.count(address) for address in set(flying)})
        if now_s - settled_s >= settle_s - 1e-9:
            charges.settle()
            settled_s = now_s


def total(charges: LiveCharges) -> float:
    sums = [fsum(one.tenants_usd.values()) + one.idle_usd for one in charges.books.values()]
    return fsum([*sums, *(charges.waiting_usd(name) for name in charges.books)])


spans = st.tuples(
    st.sampled_from(["a", "b", "c"]), st.floats(0, 100), st.floats(0.001, 60), st.sampled_from(["p0", "p1", "q0"])
)


@given(st.lists(spans, max_size=20), st.floats(1, 40), st.floats(0, 1))
def test_tenants_idle_and_uncharged_time_add_up_to_the_rent(
    drawn: list[tuple[str, float, float, str]], settle_s: float, usd_per_s: float
) -> None:
    charges = LiveCharges(0.0)
    charges.use([pool("p", 2, usd_per_s), pool("q", 1)])
    run(charges, [ended(who, at, at + long, where) for who, at, long, where in drawn], 120.0, settle_s, 0.7)
    rent = 120.0 * (2 * usd_per_s + 0.001)
    assert fsum(one.rent_usd for one in charges.books.values()) == pytest.approx(rent, rel=1e-9)
    assert total(charges) == pytest.approx(rent, rel=1e-9)


def billed_pool(*, rented_s: float, busy_s: float) -> BilledPool:
    """Return the pool of these tests as a bill has it."""
    time = RentedTime(rented_s=rented_s, busy_s=busy_s, usd_per_s=0.001)
    return BilledPool(name="p", model="m", vendor="amd", coefficients=COEFFICIENTS, time=time)


def test_a_settlement_without_requests_in_flight_is_a_bill_of_its_time() -> None:
    charges, rng = LiveCharges(0.0), random.Random(4)
    charges.use([pool(endpoints=1)])
    requests = [
        ended(
            rng.choice("abc"),
            at,
            at + rng.uniform(0.2, 4.0),
            work=TokenWork(input_tokens=rng.randint(1, 3000), cached_tokens=0, output_tokens=rng.randint(1, 300)),
        )
        for at in (rng.uniform(0, 25) for _ in range(60))
    ]
    run(charges, requests, 30.0)
    books = charges.books["p"]
    busy_s = 30.0 - books.idle_usd / 0.001
    invoice = make_invoice(
        [BilledRequest(tenant=one.tenant, pool="p", work=one.work) for one in requests],
        [billed_pool(rented_s=30.0, busy_s=busy_s)],
        idle="separate",
    )
    assert {line.tenant: line.usd for line in invoice.tenants} == pytest.approx(dict(books.tenants_usd), rel=1e-9)
    assert charges.waiting_usd("p") == pytest.approx(0.0, abs=1e-12)


def test_a_short_request_does_not_pay_for_long_ones_that_are_still_in_flight() -> None:
    charges = LiveCharges(0.0)
    charges.use([pool(endpoints=1)])
    long = [ended("long", 0.0, 60.0) for _ in range(9)]
    run(charges, [*long, ended("short", 1.0, 2.0)], 31.0)
    books = charges.books["p"]
    assert books.tenants_usd["short"] < 0.01 * 30 * 0.001  # one request second of 271
    assert charges.waiting_usd("p") > 0.98 * 30 * 0.001


def test_shares_of_a_long_time_are_those_of_the_bill() -> None:
    """With many short settlements the shares come near those of one bill over the whole time."""
    charges, rng = LiveCharges(0.0), random.Random(7)
    charges.use([pool(endpoints=1)])
    requests = []
    for number in range(900):
        tokens = rng.randint(50, 400)
        at = number * 0.66
        work = TokenWork(input_tokens=rng.randint(50, 3000), cached_tokens=0, output_tokens=tokens)
        requests.append(ended(rng.choice("aab"), at, at + 0.02 * tokens, work=work))
    run(charges, requests, 630.0)
    billed = make_invoice(
        [BilledRequest(tenant=one.tenant, pool="p", work=one.work) for one in requests],
        [billed_pool(rented_s=630.0, busy_s=600.0)],
        idle="separate",
    )
    live = charges.books["p"].tenants_usd
    for line in billed.tenants:
        assert live[line.tenant] / fsum(live.values()) == pytest.approx(line.share_fraction, rel=0.03)


def test_a_short_request_between_two_looks_makes_its_endpoint_busy_for_as_long() -> None:
    charges = LiveCharges(0.0)
    charges.use([pool(endpoints=1)])
    run(charges, [ended("a", at + 0.02, at + 0.03) for at in range(30)], 30.0)
    assert charges.books["p"].idle_usd == pytest.approx((30.0 - 0.3) * 0.001, rel=1e-6)


def test_a_pool_that_is_no_longer_rented_costs_no_more() -> None:
    charges = LiveCharges(0.0)
    charges.use([pool("p"), pool("q")])
    run(charges, [ended("a", 5.0, 10.0)], 30.0)
    charges.use([pool("q")])
    before = charges.books["p"].rent_usd
    charges.look(60.0, {})
    charges.settle()
    assert charges.books["p"].rent_usd == before
    assert charges.books["q"].rent_usd == pytest.approx(60 * 2 * 0.001)
