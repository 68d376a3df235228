"""A picker decides as `routing.pick` on its own state, and keeps that state current."""

import math
from dataclasses import replace

import numpy as np
import pytest

from gateway_fakes import MODELS, Clock, body_fields, fleet, picker_of, report
from penstock.errors import UsageError
from penstock.gateway.picker.decayed_sum import DecayedMean
from penstock.gateway.picker.fleet_state import RUN_TIME_FIELDS, SharedTables
from penstock.gateway.picker.in_flight_reconciliation import COMPARISONS, LeakedPicks
from penstock.gateway.picker.picker import EndpointChoice, Picker, Rejection
from penstock.gateway.picker.predicted_latency import predict_latency
from penstock.gateway.picker.prefix_index import BLOCK_BYTES, PrefixIndex
from penstock.gateway.picker.request_body import RequestBody, RequestHints
from penstock.gateway.state.access_rules import Access, SloFloor, TenantKey
from penstock.gateway.state.shared_tables import COUNTS, PICKER_STATE, REPORT
from penstock.routing.harm import pick
from penstock.routing.records import ENDPOINT, EVERYBODYS, OWN

LONG = body_fields(body_bytes=400_000)
"""100,000 tokens."""


def test_a_decision_is_the_pick_of_routing_on_the_same_records() -> None:
    clock = Clock()
    picker, tables = picker_of(fleet(), clock)
    for turn in range(200):
        clock.now_s += 0.01
        report(tables, turn % 4, clock, running=turn % 7, waiting=turn % 3, kv_used_tokens=1000 * (turn % 50))
        picker.state.tick()
        before = picker.state.endpoints.copy()
        named = picker.decide(body_fields(MODELS[turn % 2]), b"x" * 400, RequestHints())
        assert isinstance(named, EndpointChoice)
        assert named.order[0] == pick(picker._arrays.request, before, picker._arrays.hits, picker.state.parameters)  # noqa: SLF001
        if turn % 3:
            picker.state.end(named.ticket, "", 200, "-", 1)


def test_a_model_is_only_sent_to_endpoints_that_serve_it() -> None:
    routed = fleet()
    picker, _ = picker_of(routed, Clock())
    for model in MODELS:
        named = picker.decide(body_fields(model), b"", RequestHints())
        assert isinstance(named, EndpointChoice)
        assert all(routed.served[index] == model for index in named.order)


@pytest.mark.parametrize("model", ["", None])
def test_a_missing_model_is_the_only_one_or_an_error_with_the_names(model: str | None) -> None:
    picker, _ = picker_of(fleet(), Clock())
    refused = picker.decide(body_fields(model), b"", RequestHints())
    assert isinstance(refused, Rejection)
    assert (refused.status, refused.message) == (400, "`model` is missing; use one of a, b")
    one = replace(fleet(), models=("a",), served=("a",) * 4, adapters=(("sql",),) * 4, classes=())
    one.endpoints["serves"] = 3
    picker, tables = picker_of(one, clock := Clock())
    for index in range(4):
        report(tables, index, clock)
    named = picker.decide(body_fields(model), b"", RequestHints())
    assert isinstance(named, EndpointChoice)
    assert named.model == "a"


@pytest.mark.parametrize("model", ["c", "a " * 100])
def test_an_unknown_model_is_rejected(model: str) -> None:
    picker, _ = picker_of(fleet(), Clock())
    refused = picker.decide(body_fields(model), b"", RequestHints())
    assert isinstance(refused, Rejection)
    assert refused.status == 404


def test_an_output_limit_above_every_context_is_rejected() -> None:
    picker, _ = picker_of(fleet(), Clock())
    too_long = RequestBody(model="a", limit_tokens=100_000, stream=True, body_bytes=400, prefix_from=0)
    refused = picker.decide(too_long, b"", RequestHints())
    assert isinstance(refused, Rejection)
    assert refused.status == 400


@pytest.mark.parametrize("limit", [None, 500])
def test_a_prompt_is_not_rejected_by_its_bytes(limit: int | None) -> None:
    """Four megabytes may be an image of 2,000 tokens: the engine with the longest context counts them."""
    routed = fleet()
    routed.endpoints["max_context_tokens"][0] = 50_000
    picker, _ = picker_of(routed, Clock())
    image = RequestBody(model="a", limit_tokens=limit, stream=True, body_bytes=4_000_000, prefix_from=0)
    named = picker.decide(image, b"x" * 4096, RequestHints())
    assert isinstance(named, EndpointChoice)
    assert named.order == (2,)


def test_a_long_expected_output_does_not_exclude_a_prompt() -> None:
    picker, _ = picker_of(fleet(), Clock())
    picker.state.learned.output_tokens["a"] = 90_000.0
    named = picker.decide(body_fields(body_bytes=4 * 20_000), b"x" * 4096, RequestHints())
    assert isinstance(named, EndpointChoice)
    assert named.order


def test_in_flight_is_what_was_sent_and_has_not_ended() -> None:
    picker, tables = picker_of(fleet(), Clock())
    tickets = [
        named.ticket
        for _ in range(20)
        if isinstance(named := picker.decide(body_fields(), b"", RequestHints()), EndpointChoice)
    ]
    picker.state.tick()
    assert picker.state.endpoints["in_flight"].sum() == 20
    assert tables.counts["in_flight"].sum() == 20
    for ticket in tickets:
        picker.state.end(ticket, "", 200, "-", 1)
        picker.state.end(ticket, "", 200, "-", 1)  # a line that comes twice counts once
    picker.state.tick()
    assert picker.state.endpoints["in_flight"].sum() == 0
    assert picker.state.endpoints["resident_tokens"].sum() == 0
    assert tables.counts["in_flight"].sum() == 0
    assert tables.states["unknown_tickets"][0] == 20


def test_thousands_in_flight_stay_distinct() -> None:
    """Places are used again and there come to be more of them; what each says stays its own."""
    clock = Clock()
    picker, _ = picker_of(fleet(), clock)
    sent: dict[int, tuple[int, int]] = {}
    for turn in range(3000):
        clock.now_s += 0.001
        model, length = MODELS[turn % 2], 4 * (100 + turn % 50)
        named = picker.decide(body_fields(model, length), b"", RequestHints())
        assert isinstance(named, EndpointChoice)
        sent[named.ticket] = (named.order[0], length // 4)
        if turn % 3 == 0:
            ticket = next(iter(sent))
            del sent[ticket]
            picker.state.end(ticket, "", 200, "-", 1)
    known = {ticket: (flight.endpoint, flight.input_tokens) for ticket, flight in picker.state.flights.all()}
    assert known == sent
    assert len(sent) == 2000
    for ticket in list(sent):
        picker.state.end(ticket, "", 200, "-", 1)
    for name in ("in_flight", "prefilling", "resident_tokens", "resident_output_tokens", "outstanding_prompt_tokens"):
        assert not picker.state.endpoints[name].any(), name


def test_the_minimum_silence_follows_the_prediction() -> None:
    picker, _ = picker_of(fleet(), Clock())
    picker.state.learned.output_tokens["a"] = 3000.0

    def silence_s(limit: int | None, *, stream: bool) -> float:
        named = picker.decide(
            RequestBody(model="a", limit_tokens=limit, stream=stream, body_bytes=400, prefix_from=0),
            b"",
            RequestHints(),
        )
        assert isinstance(named, EndpointChoice)
        assert named.streamed == stream
        return named.silence_s

    assert silence_s(None, stream=True) == 10.0  # the first token is its first byte
    assert silence_s(4, stream=False) == 10.0
    assert silence_s(2000, stream=False) == pytest.approx(4 * 2000 * 0.01, rel=0.1)  # a step is 10 ms
    assert silence_s(None, stream=False) == pytest.approx(4 * 3000 * 0.01, rel=0.1)


def test_suspicion_doubles_and_ends() -> None:
    clock = Clock()
    picker, tables = picker_of(fleet(2), clock)
    for wait_s in (1.0, 2.0, 4.0):
        named = picker.decide(body_fields(), b"", RequestHints())
        assert isinstance(named, EndpointChoice)
        assert named.order == (0,)
        picker.state.end(named.ticket, picker.fleet.addresses[1], 200, "-", 2)
        clock.now_s += wait_s - 0.1
        report(tables, 0, clock)
        passed = picker.decide(body_fields(), b"", RequestHints())
        assert isinstance(passed, EndpointChoice)
        assert passed.order == ()  # nobody else serves it: Envoy goes by its weights
        clock.now_s += 0.2
        picker.state.tick()


def test_unhealthy_endpoints_are_not_chosen() -> None:
    clock = Clock()
    picker, tables = picker_of(fleet(4), clock)
    report(tables, 0, clock)
    tables.reports["healthy"][0] = 0
    clock.now_s += 1
    named = picker.decide(body_fields(), b"", RequestHints())
    assert isinstance(named, EndpointChoice)
    assert named.order == (2,)


def test_shed_requests_get_retry_after() -> None:
    clock = Clock()
    picker, _ = picker_of(fleet(2), clock)
    for _ in range(3000):
        picker.decide(body_fields(body_bytes=40_000), b"", RequestHints())
    shed = picker.decide(body_fields(body_bytes=40_000), b"", RequestHints(objective="batch"))
    assert isinstance(shed, Rejection)
    assert shed.status == 429
    assert shed.retry_s is not None
    assert shed.retry_s >= 1


def test_a_subset_limits_the_choice_and_an_empty_one_leaves_none() -> None:
    picker, _ = picker_of(fleet(4), Clock())
    named = picker.decide(body_fields(), b"", RequestHints(), frozenset({2}))
    assert isinstance(named, EndpointChoice)
    assert named.order == (2,)
    none = picker.decide(body_fields(), b"", RequestHints(), frozenset())
    assert isinstance(none, EndpointChoice)
    assert none.order == ()


def test_a_reload_keeps_requests_in_flight() -> None:
    clock = Clock()
    before, _ = picker_of(fleet(4), clock)
    sent = [before.decide(body_fields(), b"", RequestHints()) for _ in range(6)]
    smaller = fleet(3)
    after, _ = picker_of(smaller, clock)
    after.adopt(before)
    kept = before.state.endpoints["in_flight"][:3].sum()
    assert after.state.endpoints["in_flight"].sum() == kept
    for named in sent:
        assert isinstance(named, EndpointChoice)
        after.state.end(named.ticket, "", 200, "-", 1)
    assert after.state.endpoints["in_flight"].sum() == 0


def test_the_longest_cached_prefix_counts_per_endpoint() -> None:
    index, hits = PrefixIndex(), np.zeros(20, np.int64)
    shared, own = b"s" * 4 * BLOCK_BYTES, b"o" * 2 * BLOCK_BYTES
    for endpoint in range(12):
        index.add(index.keys(shared, 0), endpoint, 0.0)
    index.add(index.keys(shared + own, 0), 3, 0.0)
    index.fill_hits(index.keys(shared + own, 0), hits, 256, 1.0)
    assert list(hits) == [*(4 * 256 if number != 3 else 6 * 256 for number in range(12)), *[0] * 8]
    index.fill_hits(index.keys(b"x" * 4 * BLOCK_BYTES, 0), hits, 256, 1.0)
    assert not hits.any()
    index.fill_hits(index.keys(shared, 0), hits, 256, 10_000.0)
    assert not hits.any()  # too long ago


def test_only_a_lasting_surplus_counts_as_leaked() -> None:
    leaks = LeakedPicks()
    in_flight = np.array([6, 3])
    for look in range(COMPARISONS - 1):
        assert leaks.surplus(1.0 + look, 6, in_flight, 0) == 0
    assert leaks.surplus(1.0 + COMPARISONS, 6, in_flight, 0) == math.ceil(3 * 6 / 9)
    for look in range(COMPARISONS):
        assert leaks.surplus(10.0 + look, 9 if look == 2 else 0, in_flight, 0) == 0


@pytest.mark.parametrize(("open_requests", "dropped"), [(4, 0), (3, 1)])
def test_a_request_that_its_client_still_has_open_is_not_dropped(open_requests: int, dropped: int) -> None:
    """Found by an attack: requests that Envoy had tried elsewhere, or that waited for a wake, had no receipt."""
    picker, tables = picker_of(fleet(2), clock := Clock())
    for _ in range(4):
        assert isinstance(picker.decide(body_fields("a"), b"", RequestHints()), EndpointChoice)
    for _ in range(2 * COMPARISONS - 1):
        clock.now_s += 1.0
        report(tables, 0, clock, running=0)  # Envoy has none of them open at the endpoint
        tables.clients["open"], tables.clients["counted_s"] = open_requests, clock.now_s
        picker.state.tick()
    assert picker.state.counters.dropped_flights == dropped
    assert picker.state.endpoints["in_flight"].sum() == 4 - dropped


def test_an_adapter_goes_to_its_endpoints_and_shares_no_prefix_with_its_model() -> None:
    """Engines hash an adapter's name into its blocks: what the model has cached of a prompt, the adapter has not."""
    routed = replace(fleet(), adapters=((), (), ("sql",), ()))
    routed.endpoints["serves"][2] |= 1 << routed.names.index("sql")
    picker, tables = picker_of(routed, clock := Clock())
    for index in range(4):
        report(tables, index, clock)
    assert routed.names == ("a", "b", "sql")
    assert (routed.model_of["sql"], routed.having("sql"), routed.having("a")) == ("a", (2,), (0, 2))
    for _ in range(5):
        answer = picker.decide(body_fields("sql"), b"x" * 4096, RequestHints())
        assert isinstance(answer, EndpointChoice)
        assert (answer.model, answer.order) == ("sql", (2,))
    body = b"y" * 4096
    keys = [PrefixIndex().keys(body, 0, name) for name in ("a", "sql")]
    assert not set(keys[0]) & set(keys[1])


def test_pickers_prefer_their_own_endpoints_while_all_are_up() -> None:
    routed, clock = fleet(8), Clock()
    tables = SharedTables(
        reports=np.zeros(8, REPORT), counts=np.zeros((2, 8), COUNTS), states=np.zeros(2, PICKER_STATE)
    )
    pickers = [Picker(routed, tables, number, clock) for number in range(2)]
    shares = [set(np.flatnonzero(picker.state.endpoints["whose"] == OWN).tolist()) for picker in pickers]
    assert shares[0] | shares[1] == set(range(8))
    assert not shares[0] & shares[1]
    report(tables, 3, clock, healthy=0)
    clock.now_s += 1.0
    for picker in pickers:
        assert isinstance(picker.decide(body_fields(), b"{}", RequestHints()), EndpointChoice)
        assert set(picker.state.endpoints["whose"].tolist()) == {EVERYBODYS}


def with_adapter() -> tuple[Picker, Clock]:
    """Two endpoints of each model; both of `a` are said to have `sql`."""
    routed = replace(fleet(), adapters=(("sql",), (), ("sql",), ()))
    routed.endpoints["serves"][[0, 2]] |= 1 << 2
    clock = Clock()
    return picker_of(routed, clock)[0], clock


def first_of(picker: Picker, model: str) -> EndpointChoice:
    named = picker.decide(body_fields(model), b"", RequestHints())
    assert isinstance(named, EndpointChoice)
    return named


def test_a_404_for_an_adapter_excludes_only_that_name() -> None:
    picker, clock = with_adapter()
    named = first_of(picker, "sql")
    gone, other = named.order
    picker.state.model_not_found(named.ticket, picker.fleet.addresses[gone], "sql")
    picker.state.end(named.ticket, picker.fleet.addresses[other], 200, "-", 2)
    assert {first_of(picker, "sql").order for _ in range(8)} == {(other,)}
    assert set(first_of(picker, "a").order) == {gone, other}
    clock.now_s += 1.1
    assert set(first_of(picker, "sql").order) == {gone, other}


def test_an_adapter_unknown_everywhere_goes_by_weight() -> None:
    picker, _ = with_adapter()
    named = first_of(picker, "sql")
    for index in named.order:
        picker.state.model_not_found(named.ticket, picker.fleet.addresses[index], "sql")
    picker.state.end(named.ticket, picker.fleet.addresses[named.order[1]], 404, "-", 4)
    assert first_of(picker, "sql").order == ()
    assert len(first_of(picker, "a").order) == 2


def test_exclusion_of_an_unknown_name_doubles() -> None:
    picker, clock = with_adapter()
    begun_s, tried = clock.now_s, 0
    while clock.now_s < begun_s + 60:
        named = first_of(picker, "sql")
        if named.order[0] == 0:
            picker.state.model_not_found(named.ticket, picker.fleet.addresses[0], "sql")
            tried += 1
        picker.state.end(named.ticket, picker.fleet.addresses[2], 200, "-", 1)
        clock.now_s += 0.05
    assert 4 <= tried <= 7


def test_a_404_for_its_model_excludes_the_endpoint() -> None:
    picker, _ = with_adapter()
    named = first_of(picker, "a")
    gone, other = named.order
    picker.state.model_not_found(named.ticket, picker.fleet.addresses[gone], "a")
    picker.state.end(named.ticket, picker.fleet.addresses[other], 200, "-", 2)
    assert first_of(picker, "a").order == first_of(picker, "sql").order == (other,)


def weight_of(picker: Picker, tenant: str, choices: int = 1, objective: str = "") -> float:
    picker.decide(body_fields()._replace(choices=choices), b"", RequestHints(tenant=tenant, objective=objective))
    return float(picker._arrays.request["weight"][0])  # noqa: SLF001 - what it was decided by


def test_every_choice_counts_for_a_tenants_share() -> None:
    picker, _ = picker_of(fleet(), Clock())
    for _ in range(10):
        weight_of(picker, "one")
        weight_of(picker, "four", choices=4)
    assert weight_of(picker, "one") == 1.0
    assert weight_of(picker, "four", choices=4) < 0.75


def test_shed_requests_do_not_count_as_served() -> None:
    routed = fleet()
    routed.endpoints["step_s"] = 10.0  # nobody keeps a promise here
    picker, _ = picker_of(routed, Clock())
    for _ in range(20):
        picker.decide(body_fields(), b"", RequestHints(tenant="served"))
    assert picker.state.endpoints["in_flight"][[0, 2]].all(), "an idle one takes what may be shed"
    for _ in range(10):
        shed = picker.decide(body_fields(), b"", RequestHints(tenant="shed", objective="batch"))
        assert isinstance(shed, Rejection)
        assert shed.status == 429
    weight_of(picker, "other")
    assert weight_of(picker, "shed") == 1.0


def test_a_tenant_beyond_its_share_is_shed_first() -> None:
    routed = fleet()
    routed.endpoints["step_s"] = 0.049  # of 0.05 that are promised: as likely kept as not
    picker, _ = picker_of(routed, Clock())
    for _ in range(9):
        weight_of(picker, "heavy")
    weight_of(picker, "light")
    for tenant, kind in (("heavy", Rejection), ("light", EndpointChoice)):
        picker.decide(body_fields(), b"", RequestHints(tenant=tenant))
        answer = picker.decide(body_fields(), b"", RequestHints(tenant=tenant, objective="batch"))
        assert isinstance(answer, kind), tenant
    assert isinstance(picker.decide(body_fields(), b"", RequestHints(tenant="heavy")), EndpointChoice)


@pytest.mark.parametrize(("step_s", "kind"), [(0.045, EndpointChoice), (0.052, Rejection)])
def test_sheddable_requests_are_shed_if_they_likely_miss(step_s: float, kind: type) -> None:
    routed = fleet()
    routed.endpoints["step_s"] = step_s
    picker, _ = picker_of(routed, Clock())
    for _ in range(len(routed.endpoints)):
        picker.decide(body_fields(), b"", RequestHints())
    assert isinstance(picker.decide(body_fields(), b"", RequestHints(objective="batch")), kind)
    assert isinstance(picker.decide(body_fields(), b"", RequestHints()), EndpointChoice)


def test_an_idle_endpoint_takes_a_late_request() -> None:
    """Neither keeps its promise, and the slower one is idle: it takes one that may be shed, and no more beside it."""
    routed = fleet()
    routed.endpoints["step_s"][[0, 2]] = 0.055, 0.15
    picker, _ = picker_of(routed, Clock())
    picker.decide(body_fields(), b"", RequestHints())
    assert picker.state.endpoints["in_flight"][[0, 2]].tolist() == [1, 0]
    first, second = (picker.decide(body_fields(), b"", RequestHints(objective="batch")) for _ in range(2))
    assert isinstance(first, EndpointChoice)
    assert first.order == (2,)
    assert isinstance(second, Rejection)


def test_a_request_that_is_late_even_alone_is_not_shed_by_an_idle_fleet() -> None:
    """90,000 tokens at 20 us each take longer than the promised second anywhere, today and whenever they come again."""
    routed, clock = fleet(2), Clock()
    routed.endpoints["prompt_token_s"] = 2e-5
    picker, _ = picker_of(routed, clock)
    long = body_fields(body_bytes=360_000)
    assert isinstance(picker.decide(long, b"", RequestHints(objective="batch")), EndpointChoice)
    for _ in range(20):
        picker.decide(long, b"", RequestHints())
    assert isinstance(picker.decide(long, b"", RequestHints(objective="batch")), Rejection), "others wait there already"


def test_varying_steps_do_not_bias_the_latency_mean() -> None:
    """Every fourth step carries a prompt and takes seven times as long; a report comes after each."""
    clock = Clock()
    picker, tables = picker_of(fleet(1), clock)
    steps, seconds, under_way = 0, 0.0, list[int]()
    for turn in range(4000):
        step_s = 0.07 if turn % 4 == 0 else 0.01
        clock.now_s += step_s
        steps, seconds = steps + 1, seconds + step_s
        report(tables, 0, clock, itl_count=100.0 * steps, itl_sum_s=100.0 * seconds, running=1)
        picker.state.tick()
        if turn % 10 == 0:
            named = picker.decide(body_fields(), b"", RequestHints())
            assert isinstance(named, EndpointChoice)
            under_way.append(named.ticket)
            if turn:
                picker.state.end(under_way.pop(0), "", 200, "-", 1)
    assert picker.state.endpoints["tpot_now_s"][0] == pytest.approx(0.025, rel=0.2)


def test_old_latency_samples_decay_with_requests_elsewhere() -> None:
    mean = DecayedMean(10.0)
    for halves in range(5):
        mean.add(30.0, 10.0, float(halves))
    assert mean.add(1.0, 1.0, 4.1) > 2.0, "one answer more of twenty"
    assert mean.add(1.0, 1.0, 14.0) < 1.1, "after a hundred that went elsewhere"


@pytest.mark.parametrize(("step_s", "before", "kind"), [(0.1, body_fields(), EndpointChoice), (0.01, LONG, Rejection)])
def test_the_steps_of_a_prompt_count_for_whether_it_is_late_even_alone(
    step_s: float, before: RequestBody, kind: type
) -> None:
    """100,000 tokens are 13 steps. With 0.1 s each, no endpoint meets a TTFT of 1 s even when idle."""
    routed = fleet(2)
    routed.endpoints["step_s"], routed.endpoints["prompt_token_s"] = step_s, 1e-6
    routed.endpoints["max_context_tokens"] = routed.endpoints["kv_tokens"] = 10_000_000
    picker, _ = picker_of(routed, Clock())
    for _ in range(12):
        picker.decide(before, b"", RequestHints(tpot_s=1.0))
    assert isinstance(picker.decide(LONG, b"", RequestHints(objective="batch", tpot_s=1.0)), kind)


def test_an_idle_endpoint_predicts_what_a_new_picker_predicts() -> None:
    routed = fleet()
    busy, _ = picker_of(routed, Clock())
    for _ in range(40):
        busy.decide(body_fields(body_bytes=40_000), b"", RequestHints())
    busy.state.endpoints["prefill_correction"][0] = 1.5
    new, _ = picker_of(routed, Clock())
    new.state.endpoints["prefill_correction"][0] = 1.5
    new.state.policy.refresh(0, 0.0)
    request, hits = busy._arrays.request, np.zeros(4, np.int64)  # noqa: SLF001
    alone = busy._idle.predict_latency(request, busy.state.endpoints, hits)  # noqa: SLF001
    assert alone.ttft_s.tolist() == predict_latency(request, new.state.endpoints, hits).ttft_s.tolist()
    assert (alone.ttft_s < predict_latency(request, busy.state.endpoints, hits).ttft_s)[::2].all()


def test_every_field_of_an_endpoint_is_either_fixed_or_kept_by_a_reload() -> None:
    fixed = (
        *("pool", "vendor", "block_tokens", "max_running", "usd_per_s", "step_s", "prompt_step_s", "expert_s"),
        *("expert_miss", "whose", "saved_usd_per_s", "first_token_ratio", "request_s", "step_tokens", "accepts"),
        *("serves", "decodes", "max_context_tokens", "kv_tokens", "sequence_s", "context_token_s"),
        *("prompt_token_s", "prompt_pair_s", "relative_capacity"),
    )
    assert sorted((*fixed, *RUN_TIME_FIELDS)) == sorted(ENDPOINT.names or ())


def test_a_picker_keeps_floors_and_critical_tenants() -> None:
    access = Access(
        keys=(TenantKey(tenant="a", key="k" * 16, critical=True), TenantKey(tenant="b", key="l" * 16)),
        slo_floors={"chat": SloFloor(ttft_s=0.2)},
    )
    picker, _ = picker_of(fleet().with_access(access), Clock())
    for tenant, weight in (("a", 4.0), ("b", 1.0)):
        picker.decide(body_fields(), b"", RequestHints(tenant=tenant, ttft_s=0.05, objective="critical"))
        assert picker._arrays.request["weight"][0] == weight  # noqa: SLF001 - what the policy gets
        assert picker._promised == (1.0, 0.05)  # noqa: SLF001 - the class's own
        assert picker._own_limits  # noqa: SLF001
    with pytest.raises(UsageError, match="no class 'chta'"):
        fleet().with_access(replace(access, slo_floors={"chta": SloFloor()}))
