"""Writes the Prometheus metrics page of the gateway from the tables in shared memory."""

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from penstock.gateway.state.routed_fleet import RoutedFleet
from penstock.gateway.telemetry.autoscaling import DesiredReplicas
from penstock.prometheus_text import metric_lines, write_labels, write_page
from penstock.routing.records import CLASSES, Records

_ALIVE_S: Final = 3.0
_SECONDS_PER_HOUR: Final = 3600.0
_Metrics = Mapping[str, tuple[str, str]]
"""Table field with the values, and help text, of each metric by its name."""
_COUNTS: Final[_Metrics] = {
    "penstock_picks_total": ("picked", "Requests for which this endpoint was the first choice."),
    "penstock_answers_total": ("ended", "Picks whose response has ended."),
    "penstock_failed_answers_total": (
        "failed",
        "Ended picks that failed: 5xx, 3xx, 401, 403, 429, a connection that the endpoint broke, or 404 for its model.",
    ),
    "penstock_moved_answers_total": ("moved", "Ended picks that another endpoint answered."),
    "penstock_struck_tries_total": (
        "struck",
        "Tries that the endpoint failed, refused or left silent, and that another endpoint answered.",
    ),
    "penstock_in_flight_requests": ("in_flight", "Requests in flight at the endpoint."),
    "penstock_prompt_bytes_total": ("prompt_bytes", "Request body bytes sent to the endpoint."),
    "penstock_predicted_ttft_seconds_total": ("predicted_ttft_s", "Sum of the predicted times to first token."),
    "penstock_first_tokens_total": ("first_tokens", "Streams whose first piece was seen, with --protocol module."),
    "penstock_ttft_seconds_total": ("ttft_sum_s", "Sum of the seconds to the first piece of these streams."),
    "penstock_decoded_tokens_total": ("decoded_tokens", "Tokens of these streams after the first one."),
    "penstock_decode_seconds_total": ("decode_sum_s", "Sum of the seconds from the first piece to the end."),
}
_REPORTS: Final[_Metrics] = {
    "penstock_endpoint_up": ("healthy", "1 if the endpoint answered its last scrape and serves its model."),
    "penstock_endpoint_other_model": (
        "other_model",
        "1 if the endpoint serves another model than the fleet file says. It gets requests only if no other is up.",
    ),
    "penstock_endpoint_running_requests": ("running", "Running requests, as the endpoint reports."),
    "penstock_endpoint_waiting_requests": ("waiting", "Waiting requests, as the endpoint reports."),
    "penstock_endpoint_kv_used_tokens": ("kv_used_tokens", "KV cache tokens in use, as the endpoint reports."),
    "penstock_endpoint_kv_tokens": ("kv_tokens", "KV cache size in tokens; 0 if the endpoint does not report it."),
    "penstock_endpoint_asleep": ("asleep", "1 if the endpoint's model sleeps on a shared device."),
    "penstock_wakes_total": ("wakes", "Times that the gateway woke the endpoint's model."),
    "penstock_wake_seconds_total": ("wake_s", "Time that these wakes took."),
    "penstock_scrapes_total": ("scrapes", "Scrapes of the endpoint."),
    "penstock_failed_scrapes_total": ("failures", "Scrapes that failed or timed out."),
}
_PICKERS: Final[_Metrics] = {
    "penstock_decisions_total": ("decisions", "Routing decisions."),
    "penstock_decision_seconds_total": ("decide_s", "Time spent on routing decisions."),
    "penstock_refused_requests_total": (
        "refused",
        "Requests refused with 429: they would miss their SLO, or harm others too much.",
    ),
    "penstock_held_requests_total": ("held", "Requests held at the gateway because of overload."),
    "penstock_invalid_requests_total": (
        "invalid",
        "Requests answered with 400 or 404 (body, model), or 429 because of limits of their own or too many bytes.",
    ),
    "penstock_lost_decisions_total": ("dropped_flights", "Picks dropped because Envoy has no matching open request."),
}

_PICKER_UP: Final = "1 if the picker passed its last self-check, or if Envoy answers where it runs the policy itself."
_ENVOY: Final = {
    "penstock_requests_total": "Requests received, as counted by Envoy.",
    "penstock_active_requests": "Requests in flight, as counted by Envoy.",
    "penstock_requests_2xx_total": "Responses with a status from 200 to 299.",
    "penstock_requests_4xx_total": "Responses with a status from 400 to 499.",
    "penstock_requests_5xx_total": "Responses with a status from 500 to 599.",
    "penstock_fallback_requests_total": "Requests routed by weight because no picker answered; only with pickers.",
}
_CLASSES: Final[_Metrics] = {
    "penstock_class_price": ("class_price", "Factor by which a missed SLO of the class counts more; 1 in normal load."),
    "penstock_class_kept_fraction": ("class_kept", "Decayed share of requests of the class that met their SLO."),
}


def metrics_page(
    fleet: RoutedFleet,
    reports: Records,
    counts: Records,
    states: Records,
    envoy: Mapping[str, float],
    desired: DesiredReplicas,
    usage: Iterable[str] = (),
) -> bytes:
    """Return the metrics page of the gateway.

    `envoy` maps metric names of this page to values of Envoy's counters. `usage` has the lines about ended requests.
    """
    now_s, lines = time.monotonic(), list[str]()

    def add(name: str, help_text: str, labels: Iterable[str], values: Iterable[float]) -> None:
        lines.extend(metric_lines(name, zip(labels, values, strict=True), help_text))

    endpoints = [
        write_labels({"endpoint": address, "pool": pool, "model": model})
        for address, pool, model in zip(fleet.addresses, fleet.pools, fleet.served, strict=True)
    ]
    for name, (field, text) in _COUNTS.items():
        add(name, text, endpoints, counts[field].sum(axis=0))
    for name, (field, text) in _REPORTS.items():
        add(name, text, endpoints, reports[field])
    ages_s = [min(now_s - float(at), 1e9) for at in reports["reported_s"]]
    add("penstock_endpoint_report_age_seconds", "Age of the last scraped report, in seconds.", endpoints, ages_s)
    prices = fleet.endpoints["usd_per_s"] * _SECONDS_PER_HOUR
    add("penstock_endpoint_usd_per_hour", "Price of the endpoint; 0 if the fleet file has none.", endpoints, prices)
    pickers = [write_labels({"picker": str(number)}) for number in range(len(states))]
    for name, (field, text) in _PICKERS.items():
        add(name, text, pickers, states[field])
    add("penstock_picker_up", _PICKER_UP, pickers, pickers_up(states, now_s))
    for name, (field, text) in _CLASSES.items():
        lines.extend(metric_lines(name, _by_class(fleet, states[field]), text))
    pools = [write_labels({"pool": kind.name, "model": kind.model}) for kind in desired.kinds]
    for name, (text, values) in desired.metrics(reports).items():
        add(name, text, pools, values)
    for name, value in envoy.items():
        add(name, _ENVOY[name], [""], [value])
    lines.extend(usage)
    return write_page(lines)


def lost_lines(lost: int) -> list[str]:
    """Return the lines about ended requests that are missing in the receipts."""
    text = (
        "Ended requests that receipts and the bill do not have: they were not read in time, or could not be written, "
        "as on a full disk."
    )
    return metric_lines("penstock_lost_outcomes_total", [("", float(lost))], text)


def _by_class(fleet: RoutedFleet, values: Records) -> Iterator[tuple[str, float]]:
    """Yield the labels and the value of each picker and class. Classes beyond the last place share its value."""
    for picker, own in enumerate(values):
        for place, item in enumerate(fleet.classes):
            labels = {"picker": str(picker), "class": item.name, "model": item.model}
            yield write_labels(labels), float(own[min(place, CLASSES - 1)])


def pickers_up(states: Records, now_s: float) -> list[bool]:
    """Return, for each picker, whether its last heartbeat is recent."""
    return [now_s - float(at) < _ALIVE_S for at in states["alive_s"]]
