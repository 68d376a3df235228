"""Parses the gateway's own metrics page into values."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.gateway.state.metric_labels import LABELS, read_labels

_LINE: Final = re.compile(rf"^(penstock_\w+)(?:\{{({LABELS})\}})? (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointView:
    """State of one endpoint at one moment."""

    address: str
    pool: str
    model: str
    values: Mapping[str, float]
    """Values by metric name, without the prefix `penstock_`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayView:
    """State of a gateway at one moment."""

    endpoints: tuple[EndpointView, ...]
    pickers: Mapping[str, Mapping[str, float]]
    totals: Mapping[str, float]


def read_view(page: str) -> GatewayView:
    """Parse the page that `metrics_page` writes."""
    endpoints: dict[tuple[str, str, str], dict[str, float]] = {}
    pickers: dict[str, dict[str, float]] = {}
    totals: dict[str, float] = {}
    for metric, labels, value in _LINE.findall(page):
        name, values_by_label = metric.removeprefix("penstock_"), read_labels(labels)
        if "endpoint" in values_by_label:
            place = (values_by_label["endpoint"], values_by_label.get("pool", ""), values_by_label.get("model", ""))
            endpoints.setdefault(place, {})[name] = float(value)
        elif "picker" in values_by_label:
            pickers.setdefault(values_by_label["picker"], {})[name] = float(value)
        else:
            totals[name] = float(value)
    return GatewayView(
        endpoints=tuple(
            EndpointView(address=address, pool=pool, model=model, values=values)
            for (address, pool, model), values in endpoints.items()
        ),
        pickers=pickers,
        totals=totals,
    )
