"""Builds Envoy's clusters. Envoy has one cluster per model, one for the pickers, and one per external server."""

from collections.abc import Sequence
from typing import Final

from penstock.gateway.state.addresses import split_address
from penstock.gateway.state.headers import DESTINATION
from penstock.gateway.state.routed_fleet import RoutedFleet

PICKERS: Final = "penstock_pickers"
_HTTP: Final = "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_POLICIES: Final = "type.googleapis.com/envoy.extensions.load_balancing_policies"
_MANY: Final = 1_000_000
BUFFER_BYTES: Final = 8 * 2**20
"""Buffer limit of a request in bytes, enough for about two million tokens.

Envoy's default of 1 MB would reject long prompts.
"""
_IDLE: Final = "4s"
"""Idle timeout of a connection to an endpoint. The idle timeout is shorter than the 5 seconds of vLLM's server."""

Value = dict[str, object]
_NO_LIMITS: Final[Value] = {
    # Requests queue in the engines. Envoy's default limits, 1,024 of each, would reject requests that engines can take.
    # A request that lasts longer than the minimum silence counts as a retry until it ends; each request has its own
    # retry limit.
    "thresholds": [
        {"max_connections": _MANY, "max_pending_requests": _MANY, "max_requests": _MANY, "max_retries": _MANY}
    ]
}


def cluster_name(model_number: int) -> str:
    """Return the name of a model's cluster."""
    return f"model_{model_number}"


def model_cluster(number: int, eds_path: str, watched: str) -> Value:
    """Return a model's cluster. Envoy uses the endpoint that a picker chose, or else chooses by capacity weights."""
    fallback = {"name": "by_weight", "typed_config": {"@type": f"{_POLICIES}.round_robin.v3.RoundRobin"}}
    chosen = {
        "@type": f"{_POLICIES}.override_host.v3.OverrideHost",
        # The metadata hold the same list. With both sources Envoy would go through the list twice.
        "override_host_sources": [{"header": DESTINATION}],
        "fallback_policy": {"policies": [{"typed_extension_config": fallback}]},
    }
    source = {"path": eds_path, "watched_directory": {"path": watched}}
    return {
        "name": cluster_name(number),
        "type": "EDS",
        "eds_cluster_config": {
            "eds_config": {"resource_api_version": "V3", "path_config_source": source},
            "service_name": cluster_name(number),
        },
        "connect_timeout": "1s",
        "per_connection_buffer_limit_bytes": BUFFER_BYTES,
        "load_balancing_policy": {
            "policies": [{"typed_extension_config": {"name": "as_picked", "typed_config": chosen}}]
        },
        # If all endpoints are marked down, Envoy tries any of them, because the health state may be old.
        "common_lb_config": {"healthy_panic_threshold": {"value": 1}},
        "circuit_breakers": _NO_LIMITS,
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": _HTTP,
                "common_http_protocol_options": {"idle_timeout": _IDLE},
                "explicit_http_config": {"http_protocol_options": {}},
            }
        },
        "upstream_connection_options": {
            "tcp_keepalive": {"keepalive_probes": 3, "keepalive_time": 10, "keepalive_interval": 5}
        },
    }


def model_endpoints(fleet: RoutedFleet, number: int, healthy: Sequence[bool] | None = None) -> Value:
    """Return the health and weight of each endpoint of a model, which Envoy uses when no picker answers."""
    weights, lines = fleet.weights(), list[Value]()
    for index in fleet.having(fleet.names[number]):
        up = healthy is None or healthy[index]
        lines.append(
            {
                "endpoint": {"address": envoy_address(fleet.addresses[index])},
                "health_status": "HEALTHY" if up else "UNHEALTHY",
                "load_balancing_weight": weights[index],
            }
        )
    return {
        "version_info": "1",
        "resources": [
            {
                "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
                "cluster_name": cluster_name(number),
                "endpoints": [{"lb_endpoints": lines}],
            }
        ],
    }


def picker_cluster(places: Sequence[str]) -> Value:
    """Return the cluster of the pickers. Envoy ejects pickers that fail.

    `places` has one socket path per picker, or one address that all pickers share. A socket path starts with a slash,
    and an address is host:port.
    """
    return {
        "name": PICKERS,
        "type": "STATIC" if all(place.startswith("/") for place in places) else "STRICT_DNS",
        "connect_timeout": "0.1s",
        "lb_policy": "LEAST_REQUEST",
        "per_connection_buffer_limit_bytes": BUFFER_BYTES,
        "load_assignment": {
            "cluster_name": PICKERS,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": envoy_address(place)}} for place in places]}],
        },
        "common_lb_config": {"healthy_panic_threshold": {"value": 1}},
        "outlier_detection": {
            "consecutive_5xx": 3,
            "interval": "0.5s",
            "base_ejection_time": "1s",
            "max_ejection_time": "5s",
            "max_ejection_percent": 100,
        },
        "circuit_breakers": _NO_LIMITS,
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": _HTTP,
                "explicit_http_config": {"http2_protocol_options": {}},
            }
        },
    }


def envoy_address(place: str) -> Value:
    """Return an address in Envoy's form. `place` is host:port, or a socket path, which starts with a slash."""
    if place.startswith("/"):
        return {"pipe": {"path": place}}
    host, port = split_address(place)
    return {"socket_address": {"address": host, "port_value": port}}


def named_cluster(name: str, host: str, port: int) -> Value:
    """Return the cluster of an external server whose host name Envoy resolves by DNS."""
    address = {"socket_address": {"address": host, "port_value": port}}
    return {
        "name": name,
        "type": "LOGICAL_DNS",
        "dns_lookup_family": "ALL",  # IPv6 or IPv4, whichever connects
        "connect_timeout": "2s",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
    }
