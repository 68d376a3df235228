"""Builds the health routes. `/health` succeeds while the gateway serves; `/ready` succeeds while an endpoint is up."""

from pathlib import Path
from typing import Final

from penstock.gateway.envoy.clusters import Value

READY_FILE: Final = "xds/eds-ready.json"
"""Path of the readiness file in the gateway's folder.

After the readiness file is created, only the scraper writes it.
"""
_READY: Final = "penstock_ready"
_HEALTH_CHECK: Final = "type.googleapis.com/envoy.extensions.filters.http.health_check.v3.HealthCheck"


def health_filters(*, has_readiness: bool) -> list[Value]:
    """Return a filter that answers `/health` and, if `has_readiness` is true, a filter that answers `/ready`.

    `/health` and `/ready` reply 503 after a call of `/healthcheck/fail` on Envoy's admin interface.
    """
    # Any percentage above 0 works, because the cluster has one host, which is healthy while any endpoint is up.
    some_ready: Value = {"cluster_min_healthy_percentages": {_READY: {"value": 1.0}}}
    return [_check("/health", {}), *([_check("/ready", some_ready)] if has_readiness else [])]


def _check(path: str, more: Value) -> Value:
    header = {"name": ":path", "string_match": {"safe_regex": {"regex": f"{path}(\\?.*)?"}}}
    config: Value = {"@type": _HEALTH_CHECK, "pass_through_mode": False, "headers": [header], **more}
    return {"name": f"penstock.{path[1:]}", "typed_config": config}


def ready_cluster(folder: Path) -> Value:
    """Return the readiness cluster. The cluster's one host gets no requests and is healthy while any endpoint is up."""
    path = folder / READY_FILE
    source = {"path": str(path), "watched_directory": {"path": str(path.parent)}}
    return {
        "name": _READY,
        "type": "EDS",
        "eds_cluster_config": {
            "eds_config": {"resource_api_version": "V3", "path_config_source": source},
            "service_name": _READY,
        },
        "connect_timeout": "1s",
    }


def ready_endpoints(*, ready: bool) -> Value:
    """Return the content of the readiness file: the one host of the readiness cluster and its health."""
    host = {
        "endpoint": {"address": {"pipe": {"path": "/nowhere"}}},
        "health_status": "HEALTHY" if ready else "UNHEALTHY",
    }
    assignment = {
        "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
        "cluster_name": _READY,
        "endpoints": [{"lb_endpoints": [host]}],
    }
    return {"version_info": "1", "resources": [assignment]}
