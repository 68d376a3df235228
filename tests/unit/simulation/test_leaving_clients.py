"""Clients that wait too long leave: their work is stopped, their KV blocks are freed, and no request is lost."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.compiled import interface
from penstock.compiled.interface import exported_functions
from penstock.errors import UsageError
from penstock.routing.records import Records
from penstock.simulation import collect
from penstock.simulation.model_swapping import SwappedModel, SwappingDevice
from penstock.simulation.outcome import Outcome
from penstock.simulation.replica import ReplicaPool, Transfer
from penstock.simulation.run import simulate
from penstock.simulation.run_options import Fault, Options, Routing
from penstock.workload import Fixed, Overload, Slo, SloClass, SystemPrompts, Workload
from penstock.workload.synthetic.arrivals import Poisson
from simulated import COST, conversation_lengths, pool, requests, result_bytes

PROMISED = SloClass(name="all", share_fraction=1.0, slo=Slo(ttft_s=1.0, tpot_s=0.05))
RANKED = replace(COST, ranks=3, expert_s=0.004, expert_miss=0.97, experts_decode_s=1e-6, experts_prefill_token_s=2e-6)
"""Ranks of one engine, which step together."""
COUNT, BEYOND_PER_S, FOREVER = 1_000, 100.0, float("inf")
WORLDS: list[Any] = []


@pytest.fixture(autouse=True)
def _keep_worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the arrays of every run, to look at them after it."""
    outcome = collect.Collected.outcome

    def kept(self: collect.Collected, world: Any, *rest: Any, **more: Any) -> Outcome:  # noqa: ANN401 - arrays
        WORLDS[:] = [world]
        return outcome(self, world, *rest, **more)

    monkeypatch.setattr(collect.Collected, "outcome", kept)


def run(
    patience_s: float,
    routing: Routing | None = None,
    fleet: list[ReplicaPool] | None = None,
    overload: Overload = "serve",
    **more: Any,  # noqa: ANN401 - options of a run
) -> Outcome:
    options = Options(routing=routing, patience_s=(patience_s,), keep_requests=True, **more)
    classes = [replace(PROMISED, overload=overload)]
    return simulate(
        fleet or [engine(replicas=3)], [conversation_lengths(COUNT, BEYOND_PER_S)], classes=classes, options=options
    )


def engine(kv_blocks: int = 8000, *, replicas: int = 1, name: str = "one", **more: object) -> ReplicaPool:
    one = pool(kv_blocks, replicas=replicas, name=name)
    return replace(one, replica=replace(one.replica, **more))  # type: ignore[arg-type] # whatever a test states


def check_nothing_is_left_behind(outcome: Outcome, count: int = COUNT) -> None:
    """Every request has one end, all blocks are free, and no picker counts a request."""
    (world,) = WORLDS
    control, replicas = world.control[0], world.replicas
    assert outcome.asked == count == outcome.requests + outcome.refused + outcome.lost + outcome.left
    np.testing.assert_array_equal(replicas["free"], replicas["blocks"])
    for field in ("running", "waiting", "decoding", "outstanding_tokens"):
        assert not replicas[field].any(), field
    for field in ("in_flight", "may_leave", "held", "returning", "transferring"):
        assert control[field] == 0, field
    assert not world.cached["users"].any()
    assert not world.contexts.any()
    assert not world.phases.any()
    for field in ("in_flight", "prefilling", "resident_tokens", "outstanding_prompt_tokens", "shared_tokens"):
        assert not control["routed"] or not world.endpoints[field].any(), field


FLEETS = {
    "roomy": [engine(replicas=3)],
    "little KV": [engine(700, replicas=3)],
    "asynchronous": [engine(700, replicas=3, asynchronous=True, max_batched_tokens=1024)],
    "ranks": [engine(2000, cost=RANKED, asynchronous=True)],
    "no prefix cache": [engine(900, replicas=2, prefix_caching=False)],
}
CASES: list[tuple[Routing | None, Overload]] = [
    (None, "serve"),
    (Routing(), "serve"),
    (Routing(max_tries=3, pickers=2), "serve"),
    (Routing(max_tries=3), "refuse"),
    (Routing(max_tries=2, pickers=2), "hold"),
]


@pytest.mark.parametrize("fleet", FLEETS)
@pytest.mark.parametrize("patience_s", [0.2, 2.0])
@pytest.mark.parametrize(("routing", "overload"), CASES)
def test_no_request_and_no_block_is_lost(
    fleet: str, patience_s: float, routing: Routing | None, overload: Overload
) -> None:
    outcome = run(patience_s, routing, FLEETS[fleet], overload)
    check_nothing_is_left_behind(outcome)
    assert outcome.left > 0 or outcome.returns > 0
    assert outcome.served is not None
    assert (outcome.served.replica == -3).sum() == outcome.left
    assert np.isinf(outcome.served.ttft_s[outcome.served.replica == -3]).all()


@pytest.mark.parametrize("routing", [None, Routing(), Routing(max_tries=3)])
@pytest.mark.parametrize("overload", ["serve", "refuse", "hold"])
def test_clients_with_endless_patience_change_no_bit(routing: Routing | None, overload: Overload) -> None:
    stated, unstated = run(FOREVER, routing, overload=overload), Options(routing=routing, keep_requests=True)
    classes = [replace(PROMISED, overload=overload)]
    before = simulate(
        [engine(replicas=3)], [conversation_lengths(COUNT, BEYOND_PER_S)], classes=classes, options=unstated
    )
    assert result_bytes(stated) == result_bytes(before)
    # A patience that no wait exceeds costs nothing either.
    assert result_bytes(run(1e9, routing, overload=overload)) == result_bytes(before)


def test_nobody_waits_longer_than_its_patience() -> None:
    outcome, patient = run(2.0), run(FOREVER)
    assert outcome.served is not None
    assert patient.served is not None
    ttft_s = outcome.served.ttft_s[np.isfinite(outcome.served.ttft_s)]
    assert outcome.left > 0
    assert ttft_s.max() <= 2.0 < patient.served.ttft_s.max()
    assert outcome.makespan_s < patient.makespan_s  # nobody is served after its client has left


def test_a_request_that_leaves_the_queue_lets_the_next_begin() -> None:
    """64 tokens fill four blocks of five. Two more wait; the first of them leaves, and the second is short enough."""
    sent = requests([0.0, 0.1, 0.2], [(60, 5), (60, 5), (10, 5)])
    fleet = [engine(5)]
    options = Options(keep_requests=True, patience_s=(0.05,))
    served = simulate(fleet, [sent], options=options).served
    alone = simulate(fleet, [requests([0.0], [(60, 5)])], options=options).served
    assert served is not None
    assert alone is not None
    assert served.e2e_s[0] == alone.e2e_s[0]


def test_a_prompt_is_stopped_at_the_end_of_a_step() -> None:
    """A prompt of 8,000 tokens takes eight steps. Its client leaves in the third, and the rest is not computed."""
    fleet = [engine(max_batched_tokens=1000)]
    whole = simulate(fleet, [requests([0.0], [(8000, 2)])], options=Options(keep_requests=True))
    assert whole.served is not None
    patience_s = float(whole.served.ttft_s[0]) * 0.3
    outcome = simulate(fleet, [requests([0.0], [(8000, 2)])], options=Options(patience_s=(patience_s,)))
    assert (outcome.requests, outcome.left) == (0, 1)
    assert outcome.pools[0].prefill_tokens == 3000 < whole.pools[0].prefill_tokens == 8000
    check_nothing_is_left_behind(outcome, 1)


def test_who_has_the_first_token_stays() -> None:
    outcome = simulate([engine()], [requests([0.0], [(100, 500)])], options=Options(patience_s=(1.0,)))
    assert (outcome.requests, outcome.left) == (1, 0)
    assert outcome.makespan_s > 5.0


def test_each_class_has_its_own_patience() -> None:
    sent = conversation_lengths(COUNT, BEYOND_PER_S)
    sent = replace(sent, slo_class=(np.arange(COUNT) % 2).astype(np.uint8))
    classes = [replace(PROMISED, name=name, share_fraction=0.5) for name in ("hasty", "patient")]
    options = Options(routing=Routing(), patience_s=(1.0, FOREVER))
    outcome = simulate([engine(replicas=3)], [sent], classes=classes, options=options)
    hasty, patient = outcome.classes
    assert hasty.left > 0 == patient.left
    assert hasty.asked == patient.asked == patient.requests == COUNT // 2


def test_a_client_that_returns_is_judged_from_its_first_try() -> None:
    """It leaves after 0.1 s behind a long prompt, and its second try has the replica for itself."""
    sent = requests([0.0, 0.01], [(8000, 2), (10, 2)], [0, 1])
    classes = [replace(PROMISED, name=name, share_fraction=0.5) for name in ("patient", "hasty")]
    options = Options(routing=Routing(max_tries=1), patience_s=(FOREVER, 0.1), keep_requests=True)
    outcome = simulate([engine()], [sent], classes=classes, options=options)
    assert outcome.served is not None
    assert (outcome.requests, outcome.left, outcome.returns) == (2, 0, 1)
    # The pause is 0.375 to 0.5 s, and the gateway looks every 0.25 s.
    assert 0.1 + 0.375 < outcome.served.ttft_s[1] < 0.1 + 0.5 + 0.25 + 0.1
    assert outcome.served.arrival_s[1] == 0.01


def test_a_picker_learns_at_once_that_a_client_has_left() -> None:
    """Its counts fall when the client leaves, and the class counts a miss although nothing was answered."""
    counts: dict[float, int] = {}
    kept: list[float] = []

    def first(request: Records, endpoints: Records, _hits: Records, parameters: Records) -> int:
        counts[float(request[0]["now_s"])] = int(endpoints[0]["in_flight"])
        kept.append(float(parameters[0]["class_outcomes"][0]))
        return 0

    # The first answer takes ten seconds and fills the batch of one.
    sent = requests([0.0, 1.0, 1.5, 3.0], [(10, 900), (10, 2), (10, 2), (10, 2)])
    options = Options(routing=Routing(pick=first), patience_s=(1.0,))
    outcome = simulate([engine(max_sequences=1)], [sent], options=options)
    assert outcome.left == 3
    assert counts == {0.0: 0, 1.0: 1, 1.5: 2, 3.0: 1}
    assert kept == [0, 0, 0, 2]


def test_clients_of_a_dead_replica_may_leave_too() -> None:
    routing = Routing(max_tries=2, faults=(Fault(kind="dies", replica=0, at_s=3.0, for_s=4.0),))
    outcome = run(1.5, routing)
    check_nothing_is_left_behind(outcome)
    assert outcome.lost > 0 < outcome.left


@pytest.mark.parametrize("patience_s", [0.3, 1.0])
def test_clients_leave_during_a_kv_transfer_too(patience_s: float) -> None:
    prefill = replace(engine(replicas=2, name="prefill"), role="prefill", transfer=Transfer(token_s=2e-4, start_s=0.05))
    outcome = run(patience_s, None, [prefill, replace(engine(900, name="decode"), role="decode")])
    check_nothing_is_left_behind(outcome)
    assert outcome.left > 0 < outcome.requests


def test_clients_leave_models_that_sleep() -> None:
    models = tuple(SwappedModel(pool=name, awake_bytes=10, wake_s=1.0) for name in ("a", "b"))
    device = SwappingDevice(name="gpu", capacity_bytes=12, models=models)
    owner = iter(np.random.default_rng(3).integers(0, 2, COUNT))
    options = Options(
        devices=(device,),
        patience_s=(1.5,),
        pool_of=lambda block: np.array([next(owner) for _ in range(len(block))], np.int16),
    )
    fleet = [engine(700, name=name) for name in ("a", "b")]
    outcome = simulate(fleet, [conversation_lengths(COUNT, 20.0)], classes=[PROMISED], options=options)
    check_nothing_is_left_behind(outcome)
    assert outcome.left > 0 < outcome.requests


def test_users_of_a_closed_loop_go_on_after_they_leave() -> None:
    outcome = run(0.5, None, [engine(900)], users=60, think_s=0.5)
    check_nothing_is_left_behind(outcome)
    assert outcome.left > 0 < outcome.requests


@settings(max_examples=25, deadline=None)
@given(
    blocks=st.integers(600, 2000),
    patience_s=st.floats(0.05, 5.0),
    batched=st.sampled_from([256, 1000, 8192]),
    tries=st.integers(0, 2),
    seed=st.integers(0, 1000),
    asynchronous=st.booleans(),
    routed=st.booleans(),
)
def test_shared_prefixes_are_kept_and_freed(
    blocks: int, patience_s: float, batched: int, tries: int, seed: int, *, asynchronous: bool, routed: bool
) -> None:
    work = Workload(
        name="shared",
        arrivals=Poisson(),
        lengths=Fixed(input_tokens=200, output_tokens=40),
        sharing=SystemPrompts(prompts=5, tokens=1000),
    )
    fleet = [engine(blocks, replicas=2, asynchronous=asynchronous, max_batched_tokens=batched)]
    options = Options(
        routing=Routing(max_tries=tries) if routed else None, patience_s=(patience_s,), keep_requests=True
    )
    outcome = simulate(fleet, work.blocks(seed=seed, requests=300, rate_per_s=80.0), options=options)
    check_nothing_is_left_behind(outcome, 300)


@pytest.mark.parametrize("routing", [None, Routing(max_tries=2, pickers=2)])
def test_interpreted_and_compiled_runs_are_equal(routing: Routing | None, monkeypatch: pytest.MonkeyPatch) -> None:
    sent, options = (
        conversation_lengths(150, BEYOND_PER_S),
        Options(routing=routing, patience_s=(0.4,), keep_requests=True),
    )

    def once() -> Outcome:
        fleet = [engine(700, max_batched_tokens=512)]
        return simulate(fleet, [sent], classes=[replace(PROMISED, overload="hold")], options=options)

    compiled = once()
    with monkeypatch.context() as patched:
        patched.setattr(interface, "load", lambda: None)
        for function in exported_functions():
            patched.delitem(function.__dict__, "native", raising=False)
        interpreted = once()
        for function in exported_functions():
            function.__dict__.pop("native", None)
    assert compiled.left == interpreted.left > 0
    assert result_bytes(compiled) == result_bytes(interpreted)


@pytest.mark.parametrize("patience_s", [0.0, -1.0, float("nan")])
def test_a_patience_that_is_no_time_is_refused(patience_s: float) -> None:
    with pytest.raises(UsageError, match="patience must be above 0"):
        Options(patience_s=(patience_s,))
