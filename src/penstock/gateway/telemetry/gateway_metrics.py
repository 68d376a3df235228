"""Writes the gateway's own Prometheus metrics page from the shared tables."""

import time
from collections.abc import Iterable, Mapping
from typing import Final

from penstock.gateway.state.metric_labels import write_labels
from penstock.gateway.state.routed_fleet import RoutedFleet
from penstock.gateway.telemetry.autoscaling import DesiredReplicas
from penstock.routing.records import Records

_ALIVE_S: Final = 3.0
_SECONDS_PER_HOUR: Final = 3600.0
_BY_ENDPOINT: Final[Mapping[str, tuple[str, str]]] = {
    "picked": ("penstock_picks_total", "Requests for which this endpoint was the first choice."),
    "ended": ("penstock_answers_total", "Picks whose response has ended."),
    "failed": (
        "penstock_failed_answers_total",
        "Ended picks that failed: 5xx, a connection broken by the endpoint, or 404 for its model.",
    ),
    "moved": ("penstock_moved_answers_total", "Ended picks that another endpoint answered."),
    "in_flight": ("penstock_in_flight_requests", "Requests in flight at the endpoint."),
    "prompt_bytes": ("penstock_prompt_bytes_total", "Request body bytes sent to the endpoint."),
    "predicted_ttft_s": ("penstock_predicted_ttft_seconds_total", "Sum of the predicted times to first token."),
}
_BY_PICKER: Final[Mapping[str, tuple[str, str]]] = {
    "decisions": ("penstock_decisions_total", "Routing decisions."),
    "decide_s": ("penstock_decision_seconds_total", "Time spent on routing decisions."),
    "rejected": ("penstock_shed_requests_total", "Requests shed with 429, because no endpoint could meet their SLO."),
    "refused": (
        "penstock_refused_requests_total",
        "Requests rejected because the body is invalid or too long, or the model is unknown.",
    ),
    "dropped_flights": ("penstock_lost_decisions_total", "Picks dropped because Envoy has no matching open request."),
}


def metrics_page(
    fleet: RoutedFleet,
    reports: Records,
    counts: Records,
    states: Records,
    envoy: Mapping[str, float],
    desired: DesiredReplicas,
) -> bytes:
    """Return the metrics page. `envoy` holds Envoy's counters by their names on this page."""
    now_s, lines = time.monotonic(), list[str]()
    labels = [
        write_labels({"endpoint": address, "pool": pool, "model": model})
        for address, pool, model in zip(fleet.addresses, fleet.pools, fleet.served, strict=True)
    ]
    for name, (metric, text) in _BY_ENDPOINT.items():
        lines += _metric(metric, text, zip(labels, counts[name].sum(axis=0), strict=True))
    gauges: dict[str, tuple[str, Iterable[float]]] = {
        "penstock_endpoint_up": (
            "1 if the endpoint answered its last scrape and serves its model.",
            reports["healthy"],
        ),
        "penstock_endpoint_other_model": (
            "1 if the endpoint serves another model than the fleet file says. It gets no requests.",
            reports["other_model"],
        ),
        "penstock_endpoint_report_age_seconds": (
            "Age of the last scraped report, in seconds.",
            [min(now_s - float(at), 1e9) for at in reports["reported_s"]],
        ),
        "penstock_endpoint_running_requests": ("Running requests, as the endpoint reports.", reports["running"]),
        "penstock_endpoint_waiting_requests": ("Waiting requests, as the endpoint reports.", reports["waiting"]),
        "penstock_endpoint_kv_used_tokens": (
            "KV cache tokens in use, as the endpoint reports.",
            reports["kv_used_tokens"],
        ),
        "penstock_endpoint_kv_tokens": (
            "KV cache size in tokens; 0 if the endpoint does not report it.",
            reports["kv_tokens"],
        ),
        "penstock_endpoint_usd_per_hour": (
            "Price of the endpoint; 0 if the fleet file has none.",
            fleet.endpoints["usd_per_s"] * _SECONDS_PER_HOUR,
        ),
        "penstock_scrapes_total": ("Scrapes of the endpoint.", reports["scrapes"]),
        "penstock_failed_scrapes_total": ("Scrapes that failed or timed out.", reports["failures"]),
    }
    for metric, (text, values) in gauges.items():
        lines += _metric(metric, text, zip(labels, values, strict=True))
    pickers = [f'picker="{number}"' for number in range(len(states))]
    for name, (metric, text) in _BY_PICKER.items():
        lines += _metric(metric, text, zip(pickers, states[name], strict=True))
    alive = pickers_up(states, now_s)
    lines += _metric(
        "penstock_picker_up", "1 if the picker passed its last self-check.", zip(pickers, alive, strict=True)
    )
    kinds = [write_labels({"pool": kind.name, "model": kind.model}) for kind in desired.kinds]
    for name, (text, values) in desired.metrics(reports).items():
        lines += _metric(name, text, zip(kinds, values, strict=True))
    for metric, value in envoy.items():
        lines += _metric(metric, "As counted by Envoy.", [("", value)])
    return ("\n".join(lines) + "\n").encode()


def pickers_up(states: Records, now_s: float) -> list[bool]:
    """Return for each picker whether its last heartbeat is recent."""
    return [now_s - float(at) < _ALIVE_S for at in states["alive_s"]]


def _metric(name: str, text: str, values: Iterable[tuple[str, float]]) -> list[str]:
    kind = "counter" if name.endswith("_total") else "gauge"
    shown = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    for labels, value in values:
        shown.append(f"{name}{{{labels}}} {float(value)!r}" if labels else f"{name} {float(value)!r}")
    return shown
