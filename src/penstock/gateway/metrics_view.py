"""Parses the metrics page that the gateway publishes."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.prometheus_text import read_samples


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointView:
    """State of one endpoint at one moment."""

    address: str
    pool: str
    model: str
    values: Mapping[str, float]
    """Value of each metric. Metric names have no prefix `penstock_` here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayView:
    """State of a gateway at one moment."""

    endpoints: tuple[EndpointView, ...]
    pickers: Mapping[str, Mapping[str, float]]
    totals: Mapping[str, float]
    classes: Mapping[str, Mapping[str, float]]
    """Highest value of any picker for each metric of a class of requests, by the name of the class."""


def read_view(page: str) -> GatewayView:
    """Parse a metrics page written by `metrics_page`."""
    endpoints: dict[tuple[str, str, str], dict[str, float]] = {}
    pickers: dict[str, dict[str, float]] = {}
    totals: dict[str, float] = {}
    classes: dict[str, dict[str, float]] = {}
    for metric, labels, value in read_samples(page):
        name = metric.removeprefix("penstock_")
        if name == metric:
            continue
        if "endpoint" in labels:
            place = (labels["endpoint"], labels.get("pool", ""), labels.get("model", ""))
            endpoints.setdefault(place, {})[name] = value
        elif "class" in labels:
            seen = classes.setdefault(labels["class"], {})
            seen[name] = max(value, seen.get(name, 0.0))
        elif "picker" in labels:
            pickers.setdefault(labels["picker"], {})[name] = value
        else:
            totals[name] = value
    return GatewayView(
        endpoints=tuple(
            EndpointView(address=address, pool=pool, model=model, values=values)
            for (address, pool, model), values in endpoints.items()
        ),
        pickers=pickers,
        totals=totals,
        classes=classes,
    )
