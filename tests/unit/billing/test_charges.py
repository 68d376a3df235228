"""The sum of all charges is the rent; more work never costs less; order and replica do not matter."""

import random
from math import fsum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.billing.charges import RentedTime, charge_requests
from penstock.billing.invoice import BilledPool, BilledRequest, IdleRule, make_invoice
from penstock.billing.step_seconds import StepCoefficients, TokenWork, token_work
from penstock.emulator.emulated_engine import EmulatedEngine, EmulatedRequest
from penstock.errors import UsageError
from penstock.performance.step.step_cost import StepCost
from penstock.routing.harm import work_seconds
from penstock.routing.latency import decode_seconds, prompt_seconds
from penstock.routing.records import new_endpoints, new_request
from penstock.simulation.loop.initial_visibility import describe_replica
from penstock.simulation.replica import Replica

COST = StepCost(step_s=0.012, decode_s=2e-5, prefill_token_s=3e-5, context_s=(3e-8,), pair_s=(1e-9,))
REPLICA = Replica(cost=COST, kv_blocks=8000)
"""Of the order of an 8B model on one accelerator."""


def coefficients(**fields: float) -> StepCoefficients:
    endpoints = new_endpoints(1)
    describe_replica(endpoints, REPLICA, COST, usd_per_hour=3.6)
    for name, value in fields.items():
        endpoints[name] = value
    return StepCoefficients.of(endpoints[0])


works = st.builds(
    lambda inputs, cached, outputs: TokenWork(
        input_tokens=inputs, cached_tokens=int(cached * inputs), output_tokens=outputs
    ),
    st.integers(1, 100_000),
    st.floats(0, 1),
    st.integers(0, 20_000),
)
billed = st.builds(
    lambda tenant, pool, work, kept: BilledRequest(tenant=tenant, pool=pool, work=work, kept=kept),
    st.sampled_from(["", "search", "batch"]),
    st.sampled_from(["p0", "p1", "p2"]),
    works,
    st.sampled_from([True, False, None]),
)
times = st.builds(
    lambda rented_s, busy, usd: RentedTime(rented_s=rented_s, busy_s=busy * rented_s, usd_per_s=usd),
    st.floats(1.0, 1e8),
    st.floats(0, 1),
    st.floats(0.0, 0.1),
)
idle_rules = st.sampled_from(["separate", "spread"])


def pools(rented: list[RentedTime]) -> list[BilledPool]:
    return [
        BilledPool(
            name=f"p{number}",
            model="a" if number < 2 else "b",
            vendor="amd" if number == 1 else "nvidia",
            coefficients=coefficients(),
            time=time,
            mean_batch=4.0,
        )
        for number, time in enumerate(rented)
    ]


three = st.lists(times, min_size=3, max_size=3)


@given(st.lists(billed, max_size=40), three, idle_rules)
def test_tenants_and_idle_add_up_to_the_rent(
    requests: list[BilledRequest], rented: list[RentedTime], idle: IdleRule
) -> None:
    served = {one.pool for one in requests}
    rented = [
        time if f"p{number}" in served else RentedTime(rented_s=time.rented_s, busy_s=0.0, usd_per_s=time.usd_per_s)
        for number, time in enumerate(rented)
    ]
    invoice = make_invoice(requests, pools(rented), idle=idle)
    rent_usd = sum(time.rented_s * time.usd_per_s for time in rented)
    assert fsum([*(line.usd for line in invoice.tenants), invoice.idle_usd]) == pytest.approx(rent_usd, rel=1e-9)
    assert invoice.rent_usd == pytest.approx(rent_usd, rel=1e-12)
    assert sum(line.requests for line in invoice.tenants) == len(requests)


@given(st.lists(works, min_size=1, max_size=40), times)
def test_charges_and_idle_seconds_add_up_to_the_rented_seconds(work: list[TokenWork], time: RentedTime) -> None:
    charged = charge_requests(time, coefficients().step_seconds(token_work(work)))
    assert fsum([*charged.seconds, charged.idle_s]) == pytest.approx(time.rented_s, rel=1e-9)
    assert min(*charged.own_s, *charged.shared_s) >= 0


@given(st.lists(billed, max_size=30), three, idle_rules, st.randoms())
def test_the_order_of_requests_does_not_matter(
    requests: list[BilledRequest], rented: list[RentedTime], idle: IdleRule, draw: random.Random
) -> None:
    shuffled = requests.copy()
    draw.shuffle(shuffled)
    first = {line.tenant: line for line in make_invoice(requests, pools(rented), idle=idle).tenants}
    second = {line.tenant: line for line in make_invoice(shuffled, pools(rented), idle=idle).tenants}
    assert first == second


@given(
    st.lists(works, min_size=1, max_size=20),
    times,
    st.integers(0, 5000),
    st.floats(0, 1),
    st.integers(0, 5000),
    idle_rules,
)
def test_more_work_never_costs_less(
    work: list[TokenWork], time: RentedTime, inputs: int, uncached: float, outputs: int, idle: IdleRule
) -> None:
    """More prompt, less of it cached and more answer, one or all of them."""
    more = TokenWork(
        input_tokens=work[0].input_tokens + inputs,
        cached_tokens=int(work[0].cached_tokens * (1 - uncached)),
        output_tokens=work[0].output_tokens + outputs,
    )

    def usd(first: TokenWork) -> float:
        requests = [
            BilledRequest(tenant=str(place), pool="p0", work=one) for place, one in enumerate([first, *work[1:]])
        ]
        lines = make_invoice(requests, pools([time, time, time]), idle=idle).tenants
        return next(line.usd for line in lines if line.tenant == "0")

    assert usd(more) >= usd(work[0]) * (1 - 1e-12)


@given(st.lists(billed, max_size=20), st.lists(works, min_size=1, max_size=10), three, idle_rules)
def test_two_tenants_with_equal_requests_pay_the_same(
    others: list[BilledRequest], same: list[TokenWork], rented: list[RentedTime], idle: IdleRule
) -> None:
    mine = [BilledRequest(tenant="x", pool="p0", work=one) for one in same]
    yours = [BilledRequest(tenant="y", pool="p0", work=one) for one in reversed(same)]
    lines = {line.tenant: line for line in make_invoice([*mine, *others, *yours], pools(rented), idle=idle).tenants}
    assert lines["x"].usd == lines["y"].usd


@given(three, idle_rules)
def test_without_traffic_all_is_idle(rented: list[RentedTime], idle: IdleRule) -> None:
    unused = [RentedTime(rented_s=one.rented_s, busy_s=0.0, usd_per_s=one.usd_per_s) for one in rented]
    invoice = make_invoice([], pools(unused), idle=idle)
    assert invoice.tenants == ()
    assert invoice.idle_usd == invoice.rent_usd


@given(works, st.floats(0.5, 2.0), st.floats(0.5, 2.0))
def test_own_seconds_are_those_of_simulation_and_routing(work: TokenWork, prefill: float, decode: float) -> None:
    endpoints = new_endpoints(1)
    describe_replica(endpoints, REPLICA, COST, usd_per_hour=3.6)
    endpoints["prefill_correction"], endpoints["decode_correction"] = prefill, decode
    e = endpoints[0]
    found = StepCoefficients.of(e).step_seconds(token_work([work]))
    assert found.prefill_s == pytest.approx(prompt_seconds(e, work.cached_tokens, work.input_tokens) * prefill)
    decodes = max(0, work.output_tokens - 1)
    mean_context = work.input_tokens + (decodes - 1) / 2
    mean_s = decode_seconds(e, 1.0, mean_context) - decode_seconds(e, 0.0, 0.0)
    assert found.decode_s + found.residency_s == pytest.approx(decodes * mean_s * decode)
    # The policy counts every token as a decode step, and half of them as context.
    q = new_request()[0]
    q["input_tokens"], q["expected_output_tokens"] = work.input_tokens, decodes
    assert work_seconds(q, e, float(found.prefill_s[0])) == pytest.approx(float(found.own_s[0]), rel=1e-3)


def test_own_seconds_are_what_an_engine_takes_longer() -> None:
    """A request alone in the emulated engine: its steps, less the fixed part of each."""
    engine = EmulatedEngine(REPLICA)
    engine.add(EmulatedRequest(input_tokens=20_000, output_tokens=300))
    total_s, steps = 0.0, 0
    while not engine.idle:
        total_s, steps = total_s + engine.begin(total_s), steps + 1
        engine.end(total_s)
    found = coefficients().step_seconds(
        token_work([TokenWork(input_tokens=20_000, cached_tokens=0, output_tokens=300)])
    )
    assert found.steps == steps == 3 + 299
    assert found.own_s == pytest.approx(total_s - steps * COST.step_s, rel=1e-9)


def test_a_cached_prefix_is_credited() -> None:
    whole, cached = (
        coefficients().step_seconds(token_work([TokenWork(input_tokens=4000, cached_tokens=tokens, output_tokens=10)]))
        for tokens in (0, 3000)
    )
    assert cached.prefill_s + cached.credited_s == pytest.approx(whole.prefill_s)
    assert cached.residency_s == whole.residency_s  # the prefix is read in every step all the same


def test_idle_of_a_model_is_spread_over_its_own_requests_only() -> None:
    rented = [RentedTime(rented_s=1000.0, busy_s=100.0, usd_per_s=0.001)] * 2
    rented.append(RentedTime(rented_s=1000.0, busy_s=0.0, usd_per_s=0.002))
    work = TokenWork(input_tokens=1000, cached_tokens=0, output_tokens=100)
    requests = [BilledRequest(tenant="x", pool="p0", work=work), BilledRequest(tenant="y", pool="p1", work=work)]
    invoice = make_invoice(requests, pools(rented), idle="spread")
    assert [line.usd for line in invoice.tenants] == pytest.approx([1.0, 1.0])
    assert invoice.idle_usd == pytest.approx(2.0)


def test_the_same_work_on_a_vendor_twice_as_fast_and_dear_costs_the_same() -> None:
    slow = coefficients()
    fast = coefficients(
        **{name: float(getattr(slow, name)) / 2 for name in ("step_s", "prompt_token_s", "prompt_pair_s")},
        sequence_s=slow.sequence_s / 2,
        context_token_s=slow.context_token_s / 2,
    )
    time = RentedTime(rented_s=1000.0, busy_s=600.0, usd_per_s=0.001)
    dear = RentedTime(rented_s=1000.0, busy_s=0.0, usd_per_s=0.002)
    both = [
        BilledPool(name="p0", model="a", vendor="amd", coefficients=slow, time=time, mean_batch=8.0),
        BilledPool(name="p1", model="a", vendor="nvidia", coefficients=fast, time=dear),
    ]
    work = TokenWork(input_tokens=1000, cached_tokens=500, output_tokens=100)
    (line,) = make_invoice([BilledRequest(tenant="x", pool="p0", work=work)] * 20, both, idle="separate").tenants
    assert line.usd == pytest.approx(0.6)
    assert line.vendor_usd == pytest.approx({"amd": 0.6, "nvidia": 0.6})


def test_a_vendor_without_the_model_has_no_amount() -> None:
    time = RentedTime(rented_s=1000.0, busy_s=600.0, usd_per_s=0.001)
    request = BilledRequest(tenant="x", pool="p2", work=TokenWork(input_tokens=10, cached_tokens=0, output_tokens=1))
    (line,) = make_invoice([request], pools([time] * 3), idle="separate").tenants
    assert line.vendor_usd["amd"] is None
    assert line.vendor_usd["nvidia"] == pytest.approx(0.6)


def test_more_busy_than_rented_is_an_error() -> None:
    with pytest.raises(UsageError, match="give a longer period"):
        RentedTime(rented_s=10.0, busy_s=11.0, usd_per_s=1.0)
