"""The Kustomize base renders, every object is one Kubernetes accepts, and its parts refer to each other.

No cluster is used: core kinds are held against the schemas of the API, custom kinds against their definitions.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubernetes_schemas import CRDS, find_kind, validate_core, validate_custom
from penstock.fleet.fleet_file import read_fleet

ROOT = Path(__file__).parents[2]
BASE = ROOT / "deploy" / "kubernetes"


@pytest.fixture(scope="module")
def objects() -> list[dict[str, Any]]:
    kubectl = shutil.which("kubectl", path=str(Path(sys.executable).parent)) or shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not here; it comes with the development tools")
    done = subprocess.run([kubectl, "kustomize", str(BASE)], check=True, capture_output=True, text=True)
    return list(yaml.safe_load_all(done.stdout))


def test_core_kinds_are_what_the_api_accepts(objects: list[dict[str, Any]]) -> None:
    assert validate_core(objects) == {"ConfigMap", "Deployment", "NetworkPolicy", "PodDisruptionBudget", "Service"}


@pytest.mark.parametrize("name", CRDS)
def test_custom_kinds_are_what_their_definitions_accept(objects: list[dict[str, Any]], name: str, shared: Path) -> None:
    validate_custom(objects, shared, name)


def test_its_parts_refer_to_each_other(objects: list[dict[str, Any]]) -> None:
    deployment, pool = find_kind(objects, "Deployment"), find_kind(objects, "InferencePool")
    services = {one["metadata"]["name"]: one["spec"] for one in objects if one["kind"] == "Service"}
    picker = pool["spec"]["endpointPickerRef"]
    assert picker["port"]["number"] in {port["port"] for port in services[picker["name"]]["ports"]}
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert services[picker["name"]]["selector"].items() <= labels.items()
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert f"--only-pick=0.0.0.0:{picker['port']['number']}" in arguments
    route = find_kind(objects, "HTTPRoute")["spec"]["rules"][0]["backendRefs"][0]
    assert (route["kind"], route["name"]) == ("InferencePool", pool["metadata"]["name"])
    for name, service in services.items():
        if not name.startswith(picker["name"]):
            assert pool["spec"]["selector"]["matchLabels"].items() <= service["selector"].items()


def test_metrics_are_apart_from_the_picker(objects: list[dict[str, Any]]) -> None:
    """Attack: a Service of the type LoadBalancer published tenants, dollars and addresses with the API."""
    services = [one["spec"] for one in objects if one["kind"] == "Service"]
    assert [[port["name"] for port in one["ports"]] for one in services if len(one["ports"]) > 1] == []
    rules = find_kind(objects, "NetworkPolicy")["spec"]["ingress"]
    assert [bool(rule.get("from")) for rule in rules for port in rule["ports"] if port["port"] == "metrics"] == [True]


def test_the_fleet_it_brings_is_one_and_its_names_are_services(objects: list[dict[str, Any]]) -> None:
    fleet = read_fleet(find_kind(objects, "ConfigMap")["data"]["fleet.yaml"], "fleet.yaml")
    services = {one["metadata"]["name"] for one in objects if one["kind"] == "Service"}
    assert {endpoint.partition(":")[0] for pool in fleet.pools for endpoint in pool.endpoints} <= services


def test_the_command_line_it_starts_is_one_penstock_reads(objects: list[dict[str, Any]]) -> None:
    """Every option is one of `penstock route --help`."""
    arguments = find_kind(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]
    shown = subprocess.run(
        [sys.executable, "-m", "penstock", "route", "--help"], check=True, capture_output=True, text=True
    ).stdout
    assert all(one.partition("=")[0] in shown for one in arguments if one.startswith("--")), json.dumps(arguments)
