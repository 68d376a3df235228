"""The Kustomize base renders, every object is one Kubernetes accepts, and its parts refer to each other.

No cluster is used: core kinds are held against the schemas of the API, custom kinds against their definitions.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from penstock.fleet.fleet_file import read_fleet

ROOT = Path(__file__).parents[2]
BASE = ROOT / "deploy" / "kubernetes"
CRDS = ("gateway.networking.k8s.io_httproutes.yaml", "inference.networking.k8s.io_inferencepools.yaml")


@pytest.fixture(scope="module")
def objects() -> list[dict[str, Any]]:
    kubectl = shutil.which("kubectl", path=str(Path(sys.executable).parent)) or shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not here; it comes with the development tools")
    done = subprocess.run([kubectl, "kustomize", str(BASE)], check=True, capture_output=True, text=True)
    return list(yaml.safe_load_all(done.stdout))


def kind(objects: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(one for one in objects if one["kind"] == name)


def test_core_kinds_are_what_the_api_accepts(objects: list[dict[str, Any]]) -> None:
    validate = pytest.importorskip("kubernetes_validate")
    core = [one for one in objects if ".k8s.io" not in one["apiVersion"]]
    assert {one["kind"] for one in core} == {"ConfigMap", "Deployment", "PodDisruptionBudget", "Service"}
    for one in core:
        validate.validate(one, "1.34", strict=True)


@pytest.mark.parametrize("name", CRDS)
def test_custom_kinds_are_what_their_definitions_accept(objects: list[dict[str, Any]], name: str, shared: Path) -> None:
    definition = yaml.safe_load((shared / "compat" / "crds" / name).read_text())["spec"]
    versions = {one["name"]: one["schema"]["openAPIV3Schema"] for one in definition["versions"]}
    one = kind(objects, definition["names"]["kind"])
    group, _, version = one["apiVersion"].partition("/")
    assert group == definition["group"]
    jsonschema.Draft202012Validator(_closed(versions[version])).validate(one)


def _closed(schema: Any) -> Any:  # noqa: ANN401 - a JSON schema
    """The same schema, refusing fields it does not name, as the API server does with strict validation."""
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _closed(value) for key, value in schema.items()}
    if "properties" in made and "additionalProperties" not in made and made["properties"].keys() - {"name"}:
        made["additionalProperties"] = False
    return made


def test_its_parts_refer_to_each_other(objects: list[dict[str, Any]]) -> None:
    deployment, pool = kind(objects, "Deployment"), kind(objects, "InferencePool")
    services = {one["metadata"]["name"]: one["spec"] for one in objects if one["kind"] == "Service"}
    picker = pool["spec"]["endpointPickerRef"]
    assert picker["port"]["number"] in {port["port"] for port in services[picker["name"]]["ports"]}
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert services[picker["name"]]["selector"].items() <= labels.items()
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert f"--only-pick=0.0.0.0:{picker['port']['number']}" in arguments
    route = kind(objects, "HTTPRoute")["spec"]["rules"][0]["backendRefs"][0]
    assert (route["kind"], route["name"]) == ("InferencePool", pool["metadata"]["name"])
    for name, service in services.items():
        if name != picker["name"]:
            assert pool["spec"]["selector"]["matchLabels"].items() <= service["selector"].items()


def test_the_fleet_it_brings_is_one_and_its_names_are_services(objects: list[dict[str, Any]]) -> None:
    fleet = read_fleet(kind(objects, "ConfigMap")["data"]["fleet.yaml"], "fleet.yaml")
    services = {one["metadata"]["name"] for one in objects if one["kind"] == "Service"}
    assert {endpoint.partition(":")[0] for pool in fleet.pools for endpoint in pool.endpoints} <= services


def test_the_command_line_it_starts_is_one_penstock_reads(objects: list[dict[str, Any]]) -> None:
    """Every option is one of `penstock route --help`."""
    arguments = kind(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]
    shown = subprocess.run(
        [sys.executable, "-m", "penstock", "route", "--help"], check=True, capture_output=True, text=True
    ).stdout
    assert all(one.partition("=")[0] in shown for one in arguments if one.startswith("--")), json.dumps(arguments)
