"""Publishes the dollars of tenants, idle time and models, by the rules of the bill, while the gateway runs."""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import fsum
from typing import Final

import numpy as np

from penstock.billing.live_charges import CHARGED_REQUEST, LiveCharges, LivePool, SettledWork
from penstock.billing.step_seconds import StepCoefficients
from penstock.gateway.state.routed_fleet import RoutedFleet
from penstock.gateway.telemetry.request_metrics import TenantNames
from penstock.prometheus_text import metric_lines, write_labels
from penstock.routing.records import Records

SETTLE_EVERY_S: Final = 30.0
_WINDOW_S: Final = 300.0
"""Time over which rates and prices per token are taken."""
_HOUR_S: Final = 3600.0
_MTOK: Final = 1e6
_BAD: Final = 400


class CostMetrics:
    """Dollars since the scraper's start, and prices of the last five minutes."""

    def __init__(self, names: TenantNames, now_s: float, epoch_unix_s: Callable[[], float] = lambda: 0.0) -> None:
        """Begin at a time of a clock that never jumps. `epoch_unix_s` returns the Unix time of that clock's zero."""
        self._names, self._charges, self._epoch_unix_s = names, LiveCharges(now_s), epoch_unix_s
        self._settled_s = now_s
        self._recent: deque[tuple[float, list[SettledWork]]] = deque()

    def use(self, fleet: RoutedFleet) -> None:
        """Charge for the endpoints of a fleet from now on."""
        self._charges.use([_live_pool(fleet, name) for name in dict.fromkeys(fleet.pools)])

    def add(self, outcomes: Records) -> None:
        """Note requests that have ended. Refused and failed requests pay nothing."""
        outcomes = outcomes[(outcomes["pool"] != "") & (outcomes["status"] < _BAD) & ~outcomes["failed"]]
        charged = np.zeros(len(outcomes), CHARGED_REQUEST)
        for name in ("pool", "endpoint", "input_tokens", "output_tokens"):
            charged[name] = outcomes[name]
        charged["tenant"] = self._names.labels(outcomes["tenant"].tolist())
        charged["cached_tokens"] = np.minimum(outcomes["cached_tokens"], outcomes["input_tokens"])
        charged["ended_s"] = outcomes["ended_unix_s"] - self._epoch_unix_s()
        charged["sent_s"] = charged["ended_s"] - outcomes["duration_s"]
        charged["first_s"] = charged["sent_s"] + outcomes["ttft_s"]
        self._charges.add(charged)

    def look(self, now_s: float, in_flight: Mapping[str, int]) -> None:
        """Count the time since the last look, and settle what has ended every 30 seconds."""
        self._charges.look(now_s, in_flight)
        if now_s - self._settled_s >= SETTLE_EVERY_S:
            self._recent.append((now_s - self._settled_s, self._charges.settle()))
            self._settled_s = now_s
            while fsum(seconds for seconds, _ in self._recent) > _WINDOW_S:
                self._recent.popleft()

    def lines(self) -> Iterator[str]:
        """Yield the lines of the metrics page."""
        books = self._charges.books
        labels = {name: {"pool": name, "model": one.pool.model} for name, one in books.items()}
        yield from metric_lines(
            "penstock_tenant_usd_total",
            (
                (write_labels({"tenant": tenant, **labels[name]}), usd)
                for name, one in books.items()
                for tenant, usd in one.tenants_usd.items()
            ),
            "Estimated dollars of rented time that a tenant's requests caused; no idle time. "
            "`penstock bill` is more exact.",
        )
        totals = {
            "penstock_idle_usd_total": ("Dollars of rented time without a request in flight.", "idle_usd"),
            "penstock_rent_usd_total": ("Dollars of all rented time: tenants, idle and uncharged.", "rent_usd"),
        }
        for name, (text, field) in totals.items():
            samples = ((write_labels(labels[pool]), float(getattr(one, field))) for pool, one in books.items())
            yield from metric_lines(name, samples, text)
        yield from metric_lines(
            "penstock_uncharged_usd",
            ((write_labels(labels[pool]), self._charges.waiting_usd(pool)) for pool in books),
            "Dollars of the last seconds, and of busy time that requests in flight will pay.",
        )
        yield from self._model_lines()

    def _model_lines(self) -> Iterator[str]:
        """Yield the cost metrics of OpenCost for models: the same names, labels and meaning."""
        seconds = fsum(passed for passed, _ in self._recent)
        works = defaultdict[str, list[SettledWork]](list)
        for _, settled in self._recent:
            for one in settled:
                works[one.model].append(one)
        hourly, prices, saved = list[tuple[str, float]](), list[tuple[str, float]](), list[tuple[str, float]]()
        for model, mine in works.items():
            inputs, cached = (sum(getattr(one, field) for one in mine) for field in ("input_tokens", "cached_tokens"))
            if inputs:
                saved.append((write_labels({"model_name": model}), cached / inputs))
            for basis in ("allocation", "usage"):
                usd = fsum(one.rent_usd if basis == "allocation" else one.charged_usd for one in mine)
                hourly.append((write_labels({"model_name": model, "cost_basis": basis}), usd / seconds * _HOUR_S))
                prices += _prices(model, basis, usd, mine)
        text = "Dollars per hour of a model, of the last five minutes: all rent (allocation) or charged (usage)."
        yield from metric_lines("llm_total_hourly_cost", hourly, text)
        text = "Dollars per million tokens, of the last five minutes; with a phase, of prompt or generated tokens."
        yield from metric_lines("llm_cost_per_million_tokens", prices, text)
        text = "Part of the prompt tokens that came from the KV cache, of the last five minutes."
        yield from metric_lines("llm_cache_savings_fraction", saved, text)


def _prices(model: str, basis: str, usd: float, works: Sequence[SettledWork]) -> Iterator[tuple[str, float]]:
    """Yield the price of a model's tokens, blended and by phase. Phases share dollars by their own seconds."""
    inputs, outputs = sum(one.input_tokens for one in works), sum(one.output_tokens for one in works)
    own_s, prefill_s = fsum(one.own_s for one in works), fsum(one.prefill_s for one in works)
    labels = {"model_name": model, "cost_basis": basis}
    if inputs + outputs:
        yield write_labels(labels), usd / (inputs + outputs) * _MTOK
    if not (inputs and outputs and own_s > 0):
        return
    for phase, part, tokens in (("prompt", prefill_s / own_s, inputs), ("generation", 1 - prefill_s / own_s, outputs)):
        text = write_labels({**labels, "phase": phase, "allocation_method": "compute_time"})
        yield text, usd * part / tokens * _MTOK


def _live_pool(fleet: RoutedFleet, name: str) -> LivePool:
    places = [index for index, pool in enumerate(fleet.pools) if pool == name]
    record = fleet.endpoints[places[0]]
    return LivePool(
        name=name,
        model=fleet.served[places[0]],
        coefficients=StepCoefficients.of(record),
        usd_per_s=float(record["usd_per_s"]),
        endpoints=tuple(fleet.addresses[index] for index in places),
    )
