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
    """Maps each class of requests to its metrics. Where pickers differ, the highest value counts.

    `kept` and `missed` are the numbers of requests whose SLO was kept or missed.
    """
    tenants: Mapping[str, Mapping[str, float]]
    """For each tenant: `requests`, `kept`, `missed`, tokens by kind, and `usd` without idle time."""


def read_view(page: str) -> GatewayView:
    """Parse a metrics page written by `metrics_page`."""
    endpoints: dict[tuple[str, str, str], dict[str, float]] = {}
    pickers: dict[str, dict[str, float]] = {}
    totals: dict[str, float] = {}
    classes: dict[str, dict[str, float]] = {}
    tenants: dict[str, dict[str, float]] = {}
    for metric, labels, value in read_samples(page):
        name = metric.removeprefix("penstock_")
        if name == metric:
            continue
        if "endpoint" in labels:
            place = (labels["endpoint"], labels.get("pool", ""), labels.get("model", ""))
            endpoints.setdefault(place, {})[name] = value
        elif "tenant" in labels:
            _add_up(name, labels, value, classes, tenants)
        elif "class" in labels:
            seen = classes.setdefault(labels["class"], {})
            seen[name] = max(value, seen.get(name, 0.0))
        elif "picker" in labels:
            pickers.setdefault(labels["picker"], {})[name] = value
        elif "pool" not in labels:
            totals[name] = value
    return GatewayView(
        endpoints=tuple(
            EndpointView(address=address, pool=pool, model=model, values=values)
            for (address, pool, model), values in endpoints.items()
        ),
        pickers=pickers,
        totals=totals,
        classes=classes,
        tenants=tenants,
    )


def _add_up(
    name: str,
    labels: Mapping[str, str],
    value: float,
    classes: dict[str, dict[str, float]],
    tenants: dict[str, dict[str, float]],
) -> None:
    """Add a sample about the requests of a tenant to those of the tenant, and of the class if it tells the SLO."""
    seen = tenants.setdefault(labels["tenant"], {})
    if name == "tenant_usd_total":
        seen["usd"] = seen.get("usd", 0.0) + value
    elif name == "tokens_total":
        seen[labels["kind"]] = seen.get(labels["kind"], 0.0) + value
    elif name == "slo_requests_total":
        for key in ("requests", labels["slo"]):
            seen[key] = seen.get(key, 0.0) + value
        of_class = classes.setdefault(labels["class"], {})
        of_class[labels["slo"]] = of_class.get(labels["slo"], 0.0) + value
