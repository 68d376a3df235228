"""Factors that explain observed decode times: wrong coefficients are found from the times of an emulated engine."""

from dataclasses import fields, replace
from math import nan

import numpy as np
import pytest

from penstock.billing.live_charges import CHARGED_REQUEST, LiveCharges, LivePool
from penstock.billing.observed_scale import ObservedAnswers, ObservedScale, observed_scale
from penstock.billing.step_seconds import StepCoefficients, StepSeconds, TokenWork, token_work
from penstock.emulator.emulated_engine import EmulatedEngine, EmulatedRequest
from penstock.performance.step.step_cost import StepCost
from penstock.routing.records import new_endpoints
from penstock.simulation.loop.initial_visibility import describe_replica
from penstock.simulation.replica import Replica

COST = StepCost(step_s=0.012, decode_s=8e-4, prefill_token_s=3e-4, context_s=(3e-8,), pair_s=(1e-9,))
REPLICA = Replica(cost=COST, kv_blocks=8000, block_tokens=128)


def arrivals(seed: int, count: int) -> list[tuple[float, EmulatedRequest]]:
    """Chats and documents in random order."""
    rng = np.random.default_rng(seed)
    made, now_s = [], 0.0
    for number in range(count):
        now_s += float(rng.exponential(0.35))
        inputs, outputs = (100, 120) if number % 3 else (1500, 8)
        keys = [int(key) for key in rng.integers(10**9, 10**15, inputs // 128)]
        made.append((now_s, EmulatedRequest(input_tokens=inputs, output_tokens=outputs, keys=keys)))
    return made


def observed(predicted: StepCoefficients, *, count: int = 300, streamed: bool = True) -> ObservedAnswers:
    """Serve requests, and return their times with the seconds that the coefficients predict."""
    engine, coming, now_s = EmulatedEngine(REPLICA), arrivals(3, count), 0.0
    sent_s = {id(request): at_s for at_s, request in coming}
    first_s, ended_s, requests = dict[int, float](), dict[int, float](), [request for _, request in coming]
    while coming or not engine.idle:
        if engine.idle:
            now_s = max(now_s, coming[0][0])
        while coming and coming[0][0] <= now_s:
            engine.add(coming.pop(0)[1])
        now_s += engine.begin(now_s)
        scheduled = [request for request, _ in engine._scheduled]  # noqa: SLF001 - the truth of a step
        engine.end(now_s)
        for request in scheduled:
            ended_s[id(request)] = now_s
            if request.decoding:
                first_s.setdefault(id(request), now_s)
    works = (
        TokenWork(input_tokens=one.input_tokens, cached_tokens=0, output_tokens=one.output_tokens) for one in requests
    )
    ended = [ended_s[id(one)] for one in requests]
    firsts = [first_s.get(id(one), ended_s[id(one)]) if streamed else nan for one in requests]
    return ObservedAnswers(
        endpoint=["replica"] * len(requests),
        sent_s=np.array([sent_s[id(one)] for one in requests]),
        first_s=np.array(firsts),
        ended_s=np.array(ended),
        predicted=predicted.step_seconds(token_work(works)),
    )


def true_coefficients() -> StepCoefficients:
    endpoints = new_endpoints(1)
    describe_replica(endpoints, REPLICA, COST, usd_per_hour=1.0)
    return StepCoefficients.of(endpoints[0])


@pytest.mark.parametrize(("prefill", "decode", "step"), [(1.0, 1.0, 1.0), (2.0, 1.5, 0.5), (0.5, 0.8, 2.0)])
def test_wrong_coefficients_are_found(prefill: float, decode: float, step: float) -> None:
    """Prompts are predicted too slow by a factor, decodes by another, and the fixed part by a third."""
    wrong = replace(true_coefficients(), prefill_correction=prefill, decode_correction=decode)
    found = observed_scale(observed(wrong), COST.step_s * step)
    assert found.prefill * prefill == pytest.approx(1.0, rel=0.1)
    assert found.decode * decode == pytest.approx(1.0, rel=0.1)


def test_what_was_not_observed_is_not_corrected() -> None:
    assert observed_scale(observed(true_coefficients(), count=0), 0.01) == ObservedScale()
    whole = observed(true_coefficients(), count=30, streamed=False)
    found = observed_scale(whole, 0.01)
    assert (found.prefill, found.decode) == pytest.approx((1.0, 1.0))


def test_replicas_do_not_mix() -> None:
    """The same times at two replicas give the same factors as at one."""
    once = observed(replace(true_coefficients(), prefill_correction=2.0))
    twice = ObservedAnswers(
        endpoint=[*once.endpoint, *["other"] * len(once.endpoint)],
        **{name: np.tile(getattr(once, name), 2) for name in ("sent_s", "first_s", "ended_s")},
        predicted=StepSeconds(
            **{one.name: np.tile(getattr(once.predicted, one.name), 2) for one in fields(StepSeconds)}
        ),
    )
    one, two = (observed_scale(answers, COST.step_s) for answers in (once, twice))
    assert two.prefill == pytest.approx(one.prefill, rel=0.02)


def live_shares(predicted: StepCoefficients, seen: ObservedAnswers) -> dict[str, float]:
    """Charge the requests while they are served: a look every 0.1 s, a settlement every 30 s."""
    rows = np.zeros(len(seen.endpoint), CHARGED_REQUEST)
    document = np.arange(len(rows)) % 3 == 0
    rows["pool"], rows["endpoint"], rows["tenant"] = "pool", "replica", np.where(document, "documents", "chats")
    for name in ("sent_s", "first_s", "ended_s"):
        rows[name] = getattr(seen, name)
    rows["input_tokens"], rows["output_tokens"] = np.where(document, 1500, 100), np.where(document, 8, 120)
    charges, now_s = LiveCharges(0.0), 0.0
    charges.use([LivePool(name="pool", model="m", coefficients=predicted, usd_per_s=0.001, endpoints=("replica",))])
    for look in range(1, int(rows["ended_s"].max() * 10) + 20):
        before_s, now_s = now_s, look / 10
        charges.add(rows[(rows["ended_s"] > before_s) & (rows["ended_s"] <= now_s)])
        charges.look(now_s, {"replica": int(((rows["sent_s"] <= now_s) & (rows["ended_s"] > now_s)).sum())})
        if look % 300 == 0:
            charges.settle()
    charges.settle()
    usd = charges.books["pool"].tenants_usd
    return {tenant: one / sum(usd.values()) for tenant, one in usd.items()}


@pytest.mark.parametrize(("prefill", "decode"), [(2.0, 1.0), (0.5, 1.5), (1.0, 0.5)])
def test_live_charges_correct_wrong_coefficients_as_the_bill_does(prefill: float, decode: float) -> None:
    right, seen = true_coefficients(), observed(true_coefficients())
    wrong = replace(right, prefill_correction=prefill, decode_correction=decode)
    assert live_shares(wrong, seen) == pytest.approx(live_shares(right, seen), rel=0.1)
