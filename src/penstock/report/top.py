"""Renders the state of a running gateway, with totals and one line per endpoint."""

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.gateway.metrics_view import EndpointView, GatewayView


def render_top(view: GatewayView, before: GatewayView | None, seconds: float) -> RenderableType:
    """Draw the state of a gateway. Rates are per second since the previous view."""
    earlier = {} if before is None else {one.address: one for one in before.endpoints}
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("endpoint", "pool", "model"):
        table.add_column(name)
    for name in ("picks/s", "in flight", "running", "waiting", "KV", "report", "moved", "failed", "struck", "$/h"):
        table.add_column(name, justify="right")
    for one in view.endpoints:
        table.add_row(*map(Text, _cells(one, earlier.get(one.address), seconds)))  # names are no markup
    heads = [_pickers(view, before, seconds)]
    if "requests_total" in view.totals:
        heads.insert(0, _envoy(view, before, seconds))
    if view.classes:
        heads.append(_classes(view, before, seconds))
    return Group(*heads, table, *([_tenants(view, before, seconds)] if view.tenants else []))


def _classes(view: GatewayView, before: GatewayView | None, seconds: float) -> Text:
    """Draw price and kept promises of each class since the gateway's start, and rates of held and refused requests."""
    rates = []
    for name, word in (("held_requests_total", "held/s"), ("refused_requests_total", "refused/s")):
        now, then = (sum(values.get(name, 0.0) for values in one.pickers.values()) for one in (view, before or view))
        rates.append("- " + word if before is None else f"{(now - then) / seconds:,.1f} {word}")
    prices = [
        f"{name or 'no class'} {values.get('class_price', 1.0):.1f}{_promise_text(values, ' (', ' kept)')}"
        for name, values in view.classes.items()
    ]
    return Text("Price of a miss:  " + "  ".join((*prices, *rates)))


def _promise_text(values: Mapping[str, float], before: str = "", after: str = "") -> str:
    """Return the share of kept promises as text, or nothing if none was kept or missed."""
    kept, missed = values.get("kept", 0.0), values.get("missed", 0.0)
    return f"{before}{kept / (kept + missed):.1%}{after}" if kept + missed else ""


def _tenants(view: GatewayView, before: GatewayView | None, seconds: float) -> Table:
    """Draw the requests, promises, tokens and dollars of each tenant, most dollars first."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("tenant")
    for name in ("requests/s", "requests", "kept", "missed", "tokens in", "cached", "out", "$ without idle"):
        table.add_column(name, justify="right")
    earlier = {} if before is None else before.tenants
    for name, values in sorted(view.tenants.items(), key=lambda one: (-one[1].get("usd", 0.0), one[0])):
        requests = values.get("requests", 0.0)
        rate = (requests - earlier.get(name, {}).get("requests", 0.0)) / seconds
        cells = (
            name,
            "-" if before is None else f"{rate:,.1f}",
            f"{requests:,.0f}",
            _promise_text(values) or "?",
            *(f"{values.get(key, 0.0):,.0f}" for key in ("missed", "input", "cached", "output")),
            f"{values.get('usd', 0.0):,.4f}",
        )
        table.add_row(*map(Text, cells))
    return table


def _envoy(view: GatewayView, before: GatewayView | None, seconds: float) -> Text:
    """Draw Envoy's counters. Envoy's counters are scraped once a second, so they may be older than the other values."""

    def rate(name: str) -> str:
        if before is None:
            return "-"
        return f"{(view.totals.get(name, 0.0) - before.totals.get(name, 0.0)) / seconds:,.0f}"

    pieces = [
        f"{rate('requests_total')} requests/s",
        f"{view.totals.get('active_requests', 0.0):,.0f} active",
        f"{rate('requests_5xx_total')} 5xx/s",
        f"{view.totals.get('fallback_requests_total', 0.0):,.0f} by weight",
    ]
    return Text("Envoy, up to 1 s ago:  " + "  ".join(pieces), style="bold")


def _pickers(view: GatewayView, before: GatewayView | None, seconds: float) -> Text:
    """Draw the counters of the pickers. The pickers' counters are read at the same time as the table of endpoints."""
    up = sum(values.get("picker_up", 0.0) for values in view.pickers.values())
    decisions = sum(values.get("decisions_total", 0.0) for values in view.pickers.values())
    spent_s = sum(values.get("decision_seconds_total", 0.0) for values in view.pickers.values())
    usd = sum(one.values.get("endpoint_usd_per_hour", 0.0) for one in view.endpoints)
    picks = "-" if before is None else f"{(_total_picks(view) - _total_picks(before)) / seconds:,.1f}"
    pieces = [
        f"{picks} picks/s",
        f"{up:.0f} of {len(view.pickers)} pickers",
        f"{1e6 * spent_s / decisions:.0f} us per decision" if decisions else "no decision yet",
        f"${usd:,.2f} per hour",
    ]
    return Text("Now:  " + "  ".join(pieces), style="bold")


def _total_picks(view: GatewayView) -> float:
    return sum(one.values.get("picks_total", 0.0) for one in view.endpoints)


def _cells(one: EndpointView, before: EndpointView | None, seconds: float) -> list[str]:
    values = one.values
    picks = "-"
    if before is not None:
        picks = f"{(values.get('picks_total', 0) - before.values.get('picks_total', 0)) / seconds:,.1f}"
    holds = values.get("endpoint_kv_tokens", 0.0)
    age_s = values.get("endpoint_report_age_seconds", 1e9)
    usd = values.get("endpoint_usd_per_hour", 0.0)
    return [
        one.address if values.get("endpoint_up", 0.0) else f"{one.address} DOWN",
        one.pool,
        one.model,
        picks,
        f"{values.get('in_flight_requests', 0):,.0f}",
        f"{values.get('endpoint_running_requests', 0):,.0f}",
        f"{values.get('endpoint_waiting_requests', 0):,.0f}",
        f"{values.get('endpoint_kv_used_tokens', 0) / holds:.0%}" if holds else "?",
        f"{age_s:.1f}s" if age_s < 1e6 else "never",  # never reported
        f"{values.get('moved_answers_total', 0):,.0f}",
        f"{values.get('failed_answers_total', 0):,.0f}",
        f"{values.get('struck_tries_total', 0):,.0f}",
        f"{usd:,.2f}" if usd else "?",
    ]
