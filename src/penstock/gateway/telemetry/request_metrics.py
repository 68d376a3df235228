"""Counts ended requests for the metrics page: latencies, promises and tokens by model, pool, class and tenant."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import count
from math import nan
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.prometheus_text import Histogram, histogram_lines, metric_lines, write_labels
from penstock.routing.records import Records

MAX_TENANTS: Final = 30
"""Tenants with labels of their own. Tenants that come later are counted together, so the page stays small."""
OTHER_TENANTS: Final = "other"
ANONYMOUS: Final = "anonymous"
_BAD: Final = 400
_TTFT_S: Final = (0.01, 0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 40.0, 80.0)
_TPOT_S: Final = (0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.15, 0.2, 0.5, 1.0)
_WHOLE_S: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0)
_WHOLE: Final = "penstock_request_seconds"
_HISTOGRAMS: Final = {
    "penstock_request_ttft_seconds": (
        _TTFT_S,
        "Seconds from arrival at the gateway to the first piece of a stream.",
    ),
    "penstock_request_tpot_seconds": (_TPOT_S, "Seconds per output token after the first one, of streams."),
    _WHOLE: (_WHOLE_S, "Seconds from arrival at the gateway to the end of a good response."),
}
_LABELS: Final = ("model", "pool", "class", "tenant")
_PROMISES: Final = ("missed", "kept", "unknown")
"""In the order of `kept` in an outcome, whose last value is -1."""
_TOKENS: Final = ("input", "cached", "output")
_COUNTED: Final = np.dtype(
    [
        ("promises", "i8", (len(_PROMISES),)),
        ("tokens", "i8", (len(_TOKENS),)),
        *((name, [("counts", "i8", (len(bounds) + 1,)), ("total", "f8")]) for name, (bounds, _) in _HISTOGRAMS.items()),
    ]
)
"""What is counted of the requests of one kind."""
_MIN_KINDS: Final = 64


class TenantNames:
    """Labels of tenants: of the first ones their names, of all others one label."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def label(self, tenant: str) -> str:
        """Return the label of a tenant."""
        name = tenant or ANONYMOUS
        if name not in self._names:
            if len(self._names) >= MAX_TENANTS:
                return OTHER_TENANTS
            self._names.add(name)
        return name

    def labels(self, tenants: list[str]) -> list[str]:
        """Return the labels of the tenants of requests."""
        found = {tenant: self.label(tenant) for tenant in dict.fromkeys(tenants)}
        return [found[tenant] for tenant in tenants]


class RequestMetrics:
    """Counters of ended requests since the scraper's start."""

    def __init__(self, names: TenantNames) -> None:
        self._names = names
        self._places = defaultdict[tuple[str, ...], int](count().__next__)
        """Index in `_counted` of each kind of requests, by the values of `_LABELS`."""
        self._counted: Records = np.zeros(_MIN_KINDS, _COUNTED)

    def add(self, outcomes: Records) -> None:
        """Count requests that have ended, or that were refused because of overload."""
        kinds = self._kinds(outcomes)
        counted, promises = self._counted, self._counted["promises"]
        cells = kinds * len(_PROMISES) + outcomes["kept"] % len(_PROMISES)
        promises += np.bincount(cells, minlength=promises.size).reshape(promises.shape)
        good = (outcomes["pool"] != "") & (outcomes["status"] > 0) & (outcomes["status"] < _BAD)
        kinds, outcomes = kinds[good], outcomes[good]
        for name, column in zip(_TOKENS, counted["tokens"].T, strict=True):
            np.add.at(column, kinds, outcomes[f"{name}_tokens"])
        waited_s, duration_s, ttft_s = (outcomes[name] for name in ("waited_s", "duration_s", "ttft_s"))
        more = outcomes["output_tokens"] - 1
        tpot_s = np.where(more > 0, np.maximum(0.0, duration_s - ttft_s) / np.maximum(1, more), nan)
        for name, values in zip(_HISTOGRAMS, (waited_s + ttft_s, tpot_s, waited_s + duration_s), strict=True):
            _add_to_histograms(counted[name], kinds, values, _HISTOGRAMS[name][0])

    def _kinds(self, outcomes: Records) -> NDArray[np.int64]:
        """Return the kind of each request, as an index in `_counted`."""
        labels = (outcomes[name].tolist() for name in ("model", "pool", "slo_class"))
        keys = zip(*labels, self._names.labels(outcomes["tenant"].tolist()), strict=True)
        kinds = np.array([self._places[key] for key in keys], np.int64)
        while len(self._places) > len(self._counted):
            self._counted = np.concatenate([self._counted, np.zeros_like(self._counted)])
        return kinds

    def lines(self) -> Iterator[str]:
        """Yield the lines of the metrics page."""
        rows = list(zip(self._places, self._counted, strict=False))
        for name, (bounds, text) in _HISTOGRAMS.items():
            found = ((_label_text(kind), row[name]) for kind, row in rows if row[name]["counts"].any())
            samples = (
                (labels, Histogram(bounds, one["counts"].tolist(), float(one["total"]))) for labels, one in found
            )
            yield from histogram_lines(name, samples, text)
        yield from metric_lines(
            "penstock_slo_requests_total",
            (
                (_label_text(kind, slo=word), float(number))
                for kind, row in rows
                for word, number in zip(_PROMISES, row["promises"], strict=True)
                if number
            ),
            "Requests whose SLO was kept, missed (also: refused, failed), or is unknown (none, not seen, client left).",
        )
        yield from metric_lines(
            "penstock_tokens_total",
            (
                (_label_text(kind, kind=word), float(number))
                for kind, row in rows
                if row[_WHOLE]["counts"].any()
                for word, number in zip(_TOKENS, row["tokens"], strict=True)
            ),
            "Tokens of requests that were served. Cached tokens are part of the input tokens.",
        )


def _label_text(kind: tuple[str, ...], /, **more: str) -> str:
    return write_labels({**dict(zip(_LABELS, kind, strict=True)), **more})


def _add_to_histograms(
    histograms: Records, kinds: NDArray[np.int64], values: NDArray[np.float64], bounds: tuple[float, ...]
) -> None:
    """Count values in the histograms of their kinds. Values that were not seen are NaN."""
    seen = ~np.isnan(values)
    kinds, values = kinds[seen], values[seen]
    counts = histograms["counts"]
    cells = kinds * counts.shape[1] + np.searchsorted(bounds, values)
    counts += np.bincount(cells, minlength=counts.size).reshape(counts.shape)
    np.add.at(histograms["total"], kinds, values)
