"""Configures tracing. Envoy creates a span per request and a span per picker call, and exports the spans by OTLP."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from penstock.errors import UsageError
from penstock.gateway.envoy.clusters import Value, named_cluster
from penstock.gateway.state.headers import DESTINATION, MODEL, PICKER, TENANT, TICKET

_COLLECTOR: Final = "penstock_traces"
_OTEL: Final = "type.googleapis.com/envoy.config.trace.v3.OpenTelemetryConfig"
_MODEL: Final = "gen_ai.request.model"
_TAGS: Final = {
    # Names follow OpenTelemetry's conventions for generative AI where these conventions define a name.
    _MODEL: MODEL,
    "penstock.endpoints": DESTINATION,
    "penstock.ticket": TICKET,
    "penstock.picker": PICKER,
    "penstock.tenant": TENANT[0],
}

_NO_QUERY: Final[Value] = {"tag": "http.url", "value": "%PATH(NQ)%"}
"""Span tag that replaces Envoy's own URL tag, because a client's query may contain a secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """Settings of tracing: an OTLP/HTTP collector, and the fraction of requests that are traced."""

    address: str
    fraction: float = 0.01

    def __post_init__(self) -> None:
        parts = urlsplit(self.address)
        if parts.scheme != "http" or not parts.hostname:
            raise UsageError(
                f"'{self.address}' is not an OTLP/HTTP collector; use an address such as http://127.0.0.1:4318/v1/traces"
            )
        if not 0 < self.fraction <= 1:
            raise UsageError(f"--trace-fraction is {self.fraction:g}; use a number above 0 and at most 1, such as 0.01")

    @property
    def server(self) -> tuple[str, int]:
        """Host and port of the collector."""
        parts = urlsplit(self.address)
        return parts.hostname or "", parts.port or 4318


def tracing_settings(traces: Traces, only_model: str) -> Value:
    """Return the tracing settings of the connection manager.

    The gateway traces a sample of the requests that the client does not already trace. Engines continue the trace.
    `only_model` is the model of a fleet of one model, in which no header names it; empty for other fleets.
    """
    exporter = {"http_uri": {"uri": traces.address, "cluster": _COLLECTOR, "timeout": "1s"}}
    tags: list[Value] = [
        {"tag": tag, "request_header": {"name": header}}
        for tag, header in _TAGS.items()
        if not only_model or tag != _MODEL
    ]
    tags.append(_NO_QUERY)
    if only_model:
        tags.append({"tag": _MODEL, "literal": {"value": only_model}})
    return {
        "tracing": {
            "random_sampling": {"value": 100 * traces.fraction},
            "custom_tags": tags,
            "spawn_upstream_span": True,
            "provider": {
                "name": "envoy.tracers.opentelemetry",
                "typed_config": {"@type": _OTEL, "service_name": "penstock-gateway", "http_service": exporter},
            },
        }
    }


def collector_cluster(traces: Traces) -> Value:
    """Return the collector's cluster."""
    return named_cluster(_COLLECTOR, *traces.server)
