"""Shares of tenants on the emulated engine, where the work of every request in every step is known."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from penstock.billing.charges import RentedTime
from penstock.billing.invoice import BilledPool, BilledRequest, make_invoice
from penstock.billing.step_seconds import StepCoefficients, TokenWork
from penstock.emulator.emulated_engine import EmulatedEngine, EmulatedRequest
from penstock.performance.step.step_cost import StepCost
from penstock.routing.records import new_endpoints
from penstock.simulation.loop.initial_visibility import describe_replica
from penstock.simulation.replica import Replica

DENSE = StepCost(step_s=0.012, decode_s=2e-5, prefill_token_s=3e-5, context_s=(3e-8,), pair_s=(1e-9,))
EXPERTS = StepCost(
    step_s=0.004,
    decode_s=2e-5,
    prefill_token_s=2e-5,
    context_s=(3e-8,),
    pair_s=(1e-9,),
    expert_s=0.02,
    expert_miss=0.97,
)


@dataclass(frozen=True)
class Tenant:
    """How a tenant asks: mean seconds between requests, tokens, and the blocks of a prefix that its prompts share."""

    every_s: float
    input_tokens: int
    output_tokens: int
    prefix_blocks: int = 0


TENANTS = {
    "chat": Tenant(every_s=0.25, input_tokens=600, output_tokens=180),
    "documents": Tenant(every_s=2.0, input_tokens=12_000, output_tokens=60),
    "agents": Tenant(every_s=0.5, input_tokens=5_000, output_tokens=90, prefix_blocks=35),
}
RUN_S, BLOCK = 120.0, 128


def arrivals(seed: int) -> Iterator[tuple[float, str, EmulatedRequest]]:
    rng = np.random.default_rng(seed)
    for number, (name, tenant) in enumerate(TENANTS.items()):
        now_s = 0.0
        while (now_s := now_s + float(rng.exponential(tenant.every_s))) < RUN_S:
            inputs = max(16, int(tenant.input_tokens * rng.lognormal(0, 0.3)))
            inputs = max(inputs, BLOCK * tenant.prefix_blocks + BLOCK)
            outputs = max(1, int(tenant.output_tokens * rng.lognormal(0, 0.5)))
            keys = [10**6 * number + block for block in range(tenant.prefix_blocks)]
            keys += [int(key) for key in rng.integers(10**9, 10**15, inputs // BLOCK - tenant.prefix_blocks)]
            yield now_s, name, EmulatedRequest(input_tokens=inputs, output_tokens=outputs, keys=keys)


def caused_s(cost: StepCost, scheduled: list[tuple[EmulatedRequest, int]], step_s: float) -> list[float]:
    """Divide one step: each request causes what its own tokens add, and an equal part of the rest."""
    own = []
    for request, tokens in scheduled:
        shared = cost.step_s + cost.expert_s * (1 - cost.expert_miss ** (1 if request.decoding else tokens))
        if request.decoding:
            own.append(cost.seconds((request.computed,)) - shared)
        else:
            own.append(cost.seconds((), ((request.computed, request.computed + tokens),)) - shared)
    rest_s = (step_s - sum(own)) / len(scheduled)
    return [one + rest_s for one in own]


@pytest.mark.parametrize("cost", [DENSE, EXPERTS], ids=["dense", "experts"])
def test_shares_are_those_of_the_work_in_each_step(cost: StepCost) -> None:
    replica = Replica(cost=cost, kv_blocks=8000, block_tokens=BLOCK)
    engine, truth_s = EmulatedEngine(replica), Counter[str]()
    coming = sorted(arrivals(7), key=lambda one: one[0])
    requests = [(name, request) for _, name, request in coming]
    tenant_of = {id(request): name for name, request in requests}
    now_s = busy_s = 0.0
    while coming or not engine.idle:
        if engine.idle:
            now_s = max(now_s, coming[0][0])
        while coming and coming[0][0] <= now_s:
            engine.add(coming.pop(0)[2])
        step_s = engine.begin(now_s)
        scheduled = engine._scheduled  # noqa: SLF001 - the truth of a step
        for (request, _), one_s in zip(scheduled, caused_s(cost, scheduled, step_s), strict=True):
            truth_s[tenant_of[id(request)]] += one_s  # type: ignore[assignment] # seconds, not counts
        now_s, busy_s = now_s + step_s, busy_s + step_s
        engine.end(now_s)
    invoice = make_invoice(
        [
            BilledRequest(
                tenant=name,
                pool="pool",
                work=TokenWork(
                    input_tokens=request.input_tokens,
                    cached_tokens=request.hit_tokens or 0,
                    output_tokens=request.output_tokens,
                ),
            )
            for name, request in requests
        ],
        [billed_pool(replica, RentedTime(rented_s=now_s, busy_s=busy_s, usd_per_s=0.001))],
        idle="separate",
    )
    assert busy_s / now_s > 0.5
    for line in invoice.tenants:
        true_fraction = truth_s[line.tenant] / busy_s
        assert line.share_fraction == pytest.approx(true_fraction, rel=0.03), line.tenant


def billed_pool(replica: Replica, time: RentedTime) -> BilledPool:
    endpoints = new_endpoints(1)
    describe_replica(endpoints, replica, replica.cost, usd_per_hour=3.6)
    coefficients = StepCoefficients.of(endpoints[0])
    return BilledPool(name="pool", model="m", vendor="amd", coefficients=coefficients, time=time)
