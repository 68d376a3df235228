"""Builds the files that Envoy reads: the bootstrap, and resource files that Envoy reads again when they change."""

import json
from typing import Final, cast

from penstock.gateway.envoy.authentication import certificates
from penstock.gateway.envoy.clusters import Value, model_endpoints
from penstock.gateway.envoy.envoy_config import EnvoySettings, bootstrap, clusters, listeners, routes
from penstock.gateway.envoy.health_routes import READY_FILE, ready_endpoints
from penstock.gateway.state.access_rules import Access
from penstock.gateway.state.routed_fleet import RoutedFleet

CERTIFICATES: Final = "xds/sds.json"


def envoy_files(fleet: RoutedFleet, settings: EnvoySettings, access: Access | None) -> dict[str, Value]:
    """Return the content of each of Envoy's files, by file name in the gateway's folder.

    Endpoint files come before the files that refer to endpoint files.
    """
    files = {f"xds/eds-{number}.json": model_endpoints(fleet, number) for number in range(len(fleet.names))}
    files[READY_FILE] = ready_endpoints(ready=False)
    files["xds/cds.json"] = clusters(fleet, settings, access)
    files["xds/rds.json"] = routes(fleet, settings, access)
    if settings.certificate is not None:
        files[CERTIFICATES] = certificates(settings.certificate, fleet.generation)
    files["xds/lds.json"] = listeners(fleet, settings, access)
    files["envoy.json"] = bootstrap(settings)
    return files


def static_document(files: dict[str, Value]) -> Value:
    """Return the whole configuration as one bootstrap, because `envoy --mode validate` reads no other file."""
    document = {key: value for key, value in files["envoy.json"].items() if key != "dynamic_resources"}
    resources = json.loads(json.dumps({name: _resources(files, name) for name in ("lds", "cds", "rds", "sds")}))
    for listener in resources["lds"]:
        manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
        del manager["rds"]
        manager["route_config"] = resources["rds"][0]
    names = [name.removeprefix("xds/").removesuffix(".json") for name in files if name.startswith("xds/eds-")]
    ends = {entry["cluster_name"]: entry for name in names for entry in _resources(files, name)}
    for cluster in resources["cds"]:
        if cluster.pop("eds_cluster_config", None) is not None:
            cluster["type"], cluster["load_assignment"] = "STATIC", ends[cluster["name"]]
    return {
        **document,
        "static_resources": {"listeners": resources["lds"], "clusters": resources["cds"], "secrets": resources["sds"]},
    }


def standing_document(files: dict[str, Value]) -> Value:
    """Return the configuration for an external Envoy as one document.

    The document refers to no files or sockets of a gateway.
    """
    document = json.loads(json.dumps({key: value for key, value in static_document(files).items() if key != "admin"}))
    for listener in document["static_resources"]["listeners"]:
        socket = listener["filter_chains"][0].get("transport_socket")
        if socket is not None:
            del socket["typed_config"]["common_tls_context"]["tls_certificate_sds_secret_configs"][0]["sds_config"]
    return cast("Value", document)


def _resources(files: dict[str, Value], name: str) -> list[Value]:
    """Return the resources in a file without the field `@type`, which the bootstrap does not need."""
    resources = cast("list[Value]", files.get(f"xds/{name}.json", {"resources": []})["resources"])
    return [{key: value for key, value in entry.items() if key != "@type"} for entry in resources]
