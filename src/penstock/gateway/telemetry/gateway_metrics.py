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
    "picked": ("penstock_picks_total", "Requests whose first choice was this endpoint."),
    "ended": ("penstock_answers_total", "Of the picks, answers that have ended."),
    "failed": (
        "penstock_failed_answers_total",
        "Of the answers, those that ended with 5xx, were cut by the endpoint, or were 404 for its model.",
    ),
    "moved": ("penstock_moved_answers_total", "Of the answers, those another endpoint gave."),
    "in_flight": ("penstock_in_flight_requests", "Requests sent there and not ended."),
    "prompt_bytes": ("penstock_prompt_bytes_total", "Bytes of bodies sent there."),
    "predicted_ttft_s": ("penstock_predicted_ttft_seconds_total", "Predicted times to first token, added up."),
}
_BY_PICKER: Final[Mapping[str, tuple[str, str]]] = {
    "decisions": ("penstock_decisions_total", "Decisions of a picker."),
    "decide_s": ("penstock_decision_seconds_total", "Seconds those took."),
    "rejected": ("penstock_shed_requests_total", "Requests answered 429: nobody could serve them in time."),
    "refused": ("penstock_refused_requests_total", "Requests no endpoint could serve: bad, too long, unknown model."),
    "dropped_flights": ("penstock_lost_decisions_total", "Decisions that led nowhere, found by Envoy's own count."),
}


def metrics_page(
    fleet: RoutedFleet,
    reports: Records,
    counts: Records,
    states: Records,
    envoy: Mapping[str, float],
    wish: DesiredReplicas,
) -> bytes:
    """Return the metrics page. `envoy` holds Envoy's counters by their names on this page."""
    now_s, lines = time.monotonic(), list[str]()
    labels = [
        write_labels({"endpoint": address, "pool": pool, "model": model})
        for address, pool, model in zip(fleet.addresses, fleet.pools, fleet.served, strict=True)
    ]
    for name, (metric, said) in _BY_ENDPOINT.items():
        lines += _metric(metric, said, zip(labels, counts[name].sum(axis=0), strict=True))
    gauges: dict[str, tuple[str, Iterable[float]]] = {
        "penstock_endpoint_up": (
            "Whether the endpoint answered when it was last asked, with the right model.",
            reports["healthy"],
        ),
        "penstock_endpoint_other_model": (
            "Whether it serves another model than the fleet file says, and therefore gets nothing.",
            reports["other_model"],
        ),
        "penstock_endpoint_report_age_seconds": (
            "How old what it said of itself is.",
            [min(now_s - float(at), 1e9) for at in reports["reported_s"]],
        ),
        "penstock_endpoint_running_requests": ("As the endpoint said.", reports["running"]),
        "penstock_endpoint_waiting_requests": ("As the endpoint said.", reports["waiting"]),
        "penstock_endpoint_kv_used_tokens": ("As the endpoint said.", reports["kv_used_tokens"]),
        "penstock_endpoint_kv_tokens": ("What its KV cache holds; 0: it did not say.", reports["kv_tokens"]),
        "penstock_endpoint_usd_per_hour": (
            "What the endpoint costs; 0: nobody said.",
            fleet.endpoints["usd_per_s"] * _SECONDS_PER_HOUR,
        ),
        "penstock_scrapes_total": ("Times it was asked.", reports["scrapes"]),
        "penstock_failed_scrapes_total": ("Times it did not answer well.", reports["failures"]),
    }
    for metric, (said, values) in gauges.items():
        lines += _metric(metric, said, zip(labels, values, strict=True))
    pickers = [f'picker="{number}"' for number in range(len(states))]
    for name, (metric, said) in _BY_PICKER.items():
        lines += _metric(metric, said, zip(pickers, states[name], strict=True))
    alive = pickers_up(states, now_s)
    lines += _metric(
        "penstock_picker_up", "Whether a picker answers at its own door.", zip(pickers, alive, strict=True)
    )
    kinds = [write_labels({"pool": kind.name, "model": kind.model}) for kind in wish.kinds]
    for name, (said, values) in wish.shown(reports).items():
        lines += _metric(name, said, zip(kinds, values, strict=True))
    for metric, value in envoy.items():
        lines += _metric(metric, "As Envoy counts.", [("", value)])
    return ("\n".join(lines) + "\n").encode()


def pickers_up(states: Records, now_s: float) -> list[bool]:
    """Return for each picker whether its last heartbeat is recent."""
    return [now_s - float(at) < _ALIVE_S for at in states["alive_s"]]


def _metric(name: str, said: str, values: Iterable[tuple[str, float]]) -> list[str]:
    kind = "counter" if name.endswith("_total") else "gauge"
    shown = [f"# HELP {name} {said}", f"# TYPE {name} {kind}"]
    for labels, value in values:
        shown.append(f"{name}{{{labels}}} {float(value)!r}" if labels else f"{name} {float(value)!r}")
    return shown
