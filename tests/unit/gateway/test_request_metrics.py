"""Latencies, promises, tokens and dollars of ended requests on the metrics page, and in `penstock top`."""

from collections.abc import Iterable
from math import fsum
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from gateway_fakes import Clock, body_fields, fleet, outcome, outcomes_in, picker_of, usage_of_one
from penstock.gateway.metrics_view import read_view
from penstock.gateway.picker.outcome_receipts import ObservedAnswer, OutcomeBook
from penstock.gateway.picker.picker import EndpointChoice, Picker
from penstock.gateway.picker.request_body import RequestHints
from penstock.gateway.state.outcome_socket import OutcomeInbox, OutcomeOutbox
from penstock.gateway.state.request_outcome import RequestOutcome, outcome_rows
from penstock.gateway.telemetry.cost_metrics import SETTLE_EVERY_S
from penstock.gateway.telemetry.request_metrics import MAX_TENANTS, RequestMetrics, TenantNames
from penstock.gateway.telemetry.usage_metrics import UsageMetrics
from penstock.report.top import render_top


def samples(lines: Iterable[str]) -> dict[tuple[str, ...], float]:
    """Values by metric name and labels, as Prometheus reads them."""
    page = "\n".join(lines) + "\n"
    return {
        (one.name, *(f"{key}={value}" for key, value in sorted(one.labels.items()))): one.value
        for family in text_string_to_metric_families(page)
        for one in family.samples
    }


def page_of(*outcomes: RequestOutcome) -> dict[tuple[str, ...], float]:
    metrics = RequestMetrics(TenantNames())
    metrics.add(outcome_rows(outcomes))
    return samples(metrics.lines())


LABELS = ("class=chat", "model=a", "pool=p", "tenant=search")


def test_a_stream_is_counted_in_every_histogram() -> None:
    page = page_of(outcome(waited_s=0.5), outcome(ttft_s=None, streamed=False))
    assert page["penstock_request_ttft_seconds_count", *LABELS] == 1
    assert page["penstock_request_ttft_seconds_sum", *LABELS] == pytest.approx(0.75)  # the wait counts
    assert page["penstock_request_tpot_seconds_sum", *LABELS] == pytest.approx(0.75 / 50)
    assert page["penstock_request_seconds_count", *LABELS] == 2
    assert page["penstock_request_seconds_sum", *LABELS] == pytest.approx(2.5)
    bucket = ("penstock_request_ttft_seconds_bucket", "class=chat", "le=0.75", "model=a", "pool=p", "tenant=search")
    assert page[bucket] == 1
    tokens = {
        kind: page["penstock_tokens_total", "class=chat", f"kind={kind}", *LABELS[1:]]
        for kind in ("input", "cached", "output")
    }
    assert tokens == {"input": 200, "cached": 80, "output": 102}


@pytest.mark.parametrize(
    ("fields", "slo"),
    [
        ({}, "kept"),
        ({"kept": False}, "missed"),
        ({"kept": None}, "unknown"),
        ({"kept": False, "pool": "", "endpoint": "", "status": 429, "ttft_s": None}, "missed"),
        ({"kept": False, "status": 503, "ttft_s": None}, "missed"),
    ],
)
def test_promises_are_counted_also_of_refused_and_failed_requests(fields: dict[str, object], slo: str) -> None:
    page = page_of(outcome(**fields))
    counted = {key: value for key, value in page.items() if key[0] == "penstock_slo_requests_total"}
    ((key, value),) = counted.items()
    assert f"slo={slo}" in key
    assert value == 1
    served = fields.get("status", 200) == 200
    assert any(key[0] == "penstock_request_seconds_count" for key in page) == served


def test_tenants_beyond_the_limit_share_one_label() -> None:
    page = page_of(*(outcome(tenant=f"t{number}") for number in range(5 * MAX_TENANTS)), outcome(tenant=""))
    tenants = {label for key in page for label in key if label.startswith("tenant=")}
    assert len(tenants) == MAX_TENANTS + 1
    assert "tenant=other" in tenants
    assert fsum(value for key, value in page.items() if key[0] == "penstock_slo_requests_total") == 5 * MAX_TENANTS + 1


def test_dollars_of_tenants_idle_and_uncharged_time_are_the_rent() -> None:
    routed = fleet()
    routed.endpoints["usd_per_s"] = 0.001
    page = samples(usage_of_one(routed).lines())
    sums = {
        name: fsum(value for key, value in page.items() if key[0] == f"penstock_{name}")
        for name in ("tenant_usd_total", "idle_usd_total", "uncharged_usd", "rent_usd_total")
    }
    assert sums["rent_usd_total"] == pytest.approx(4 * 0.001 * SETTLE_EVERY_S, rel=1e-9)
    assert sums["tenant_usd_total"] == pytest.approx(0.001, rel=1e-9)  # a second of one endpoint
    assert sums["tenant_usd_total"] + sums["idle_usd_total"] + sums["uncharged_usd"] == pytest.approx(
        sums["rent_usd_total"], rel=1e-9
    )


def test_names_and_labels_of_opencost_are_published() -> None:
    routed = fleet()
    routed.endpoints["usd_per_s"] = 0.001
    page = samples(usage_of_one(routed).lines())
    hour = {
        basis: page["llm_total_hourly_cost", f"cost_basis={basis}", "model_name=a"] for basis in ("allocation", "usage")
    }
    assert hour["allocation"] == pytest.approx(4 * 3.6)
    assert hour["usage"] == pytest.approx(3.6 / SETTLE_EVERY_S)
    blended = page["llm_cost_per_million_tokens", "cost_basis=usage", "model_name=a"]
    assert blended == pytest.approx(0.001 / 151 * 1e6)
    phases = [
        page[
            "llm_cost_per_million_tokens",
            "allocation_method=compute_time",
            "cost_basis=usage",
            "model_name=a",
            f"phase={phase}",
        ]
        * tokens
        for phase, tokens in (("prompt", 100), ("generation", 51))
    ]
    assert fsum(phases) == pytest.approx(0.001 * 1e6)
    assert page["llm_cache_savings_fraction", "model_name=a"] == pytest.approx(0.4)


def test_top_shows_promises_and_dollars() -> None:
    routed = fleet()
    routed.endpoints["usd_per_s"] = 1.0
    usage = usage_of_one(routed)
    usage.add(outcome_rows([outcome(kept=False)]))
    view = read_view("\n".join(usage.lines()))
    assert view.classes["chat"]["kept"] == view.classes["chat"]["missed"] == 1
    assert view.tenants["search"]["usd"] == pytest.approx(1.0)
    console = Console(width=200, record=True)
    console.print(render_top(view, None, 1.0))
    shown = console.export_text()
    assert "chat 1.0 (50.0% kept)" in shown
    assert "search" in shown


def test_records_travel_from_a_picker_to_the_scraper(tmp_path: Path) -> None:
    received: list[RequestOutcome] = []

    outbox, clock, routed = OutcomeOutbox(tmp_path), Clock(), fleet()
    outbox.add(outcome_rows([outcome(tenant="early")]))
    outbox.flush()  # nobody listens yet: the record waits
    _, tables = picker_of(routed, clock)
    picker = Picker(routed, tables, 0, clock, outcomes=OutcomeBook(publish=outbox.add))
    sent = picker.decide(body_fields("a"), b"", RequestHints(tenant="search"))
    assert isinstance(sent, EndpointChoice)
    clock.now_s += 0.5
    picker.state.end(sent.ticket, "", 200, "-", 1, answer=ObservedAnswer(50 * 221, True, True))  # noqa: FBT003
    picker.state.tick()
    inbox = OutcomeInbox(tmp_path, lambda rows: received.extend(outcomes_in(rows)))
    outbox.close()
    inbox.read()
    inbox.close()
    early, one = received
    assert early == outcome(tenant="early")
    assert (one.tenant, one.model, one.pool, one.slo_class, one.kept) == ("search", "a", "p", "chat", True)
    assert one.duration_s == pytest.approx(0.5)


def test_requests_in_flight_are_not_paid_for_by_those_that_end() -> None:
    """One long answer, and a short one of another tenant that ends in each settlement."""
    routed, usage = fleet(), UsageMetrics(now_s=0.0)
    routed.endpoints["usd_per_s"] = 0.001
    usage.use(routed)
    address, now_s = routed.addresses[0], 0.0
    for _ in range(3000):
        now_s += 0.1
        if round(now_s % 30, 1) == 29.0:
            usage.add(outcome_rows([outcome(tenant="short", ended_unix_s=now_s, duration_s=0.1)]))
        usage.look(now_s, {address: 1})
    usage.add(outcome_rows([outcome(tenant="long", ended_unix_s=now_s, duration_s=now_s, output_tokens=15_000)]))
    usage.look(now_s + SETTLE_EVERY_S, {})
    paid = {
        tenant: samples(usage.lines())["penstock_tenant_usd_total", "model=a", "pool=p", f"tenant={tenant}"]
        for tenant in ("short", "long")
    }
    assert sum(paid.values()) == pytest.approx(0.3, rel=0.01)
    assert paid["short"] < 0.02 * paid["long"]  # half of it, if requests in flight paid nothing


def test_broken_off_responses_pay_nothing() -> None:
    routed = fleet()
    routed.endpoints["usd_per_s"] = 0.001
    page = samples(usage_of_one(routed, failed=True, kept=False).lines())
    assert not [key for key in page if key[0] == "penstock_tenant_usd_total"]


def test_a_reload_keeps_what_was_counted() -> None:
    usage, routed = UsageMetrics(now_s=0.0), fleet()
    usage.use(routed)
    usage.add(outcome_rows([outcome(ended_unix_s=5.0)]))
    usage.look(SETTLE_EVERY_S, {})
    usage.use(fleet(2))
    assert samples(usage.lines())["penstock_tenant_usd_total", "model=a", "pool=p", "tenant=search"] == 0.0
