"""The Helm chart renders as a gateway and as an endpoint picker, and Kubernetes accepts every object."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

import penstock
from kubernetes_schemas import CRDS, find_kind, validate_core, validate_custom
from penstock.cli.root import app
from penstock.fleet.fleet_file import read_fleet

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "penstock"
FLEET = ROOT / "deploy" / "kubernetes" / "fleet.yaml"
MODES = ("gateway", "picker")


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("helm")
    if program is None:
        pytest.skip("helm is not here; runners of CI have it")
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)


def rendered(mode: str, *options: str) -> list[dict[str, Any]]:
    values = ("--values", str(CHART / "ci" / f"{mode}-values.yaml"), "--set-file", f"fleet={FLEET}")
    done = helm("template", "serving", str(CHART), *values, *options)
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def arguments_of(objects: list[dict[str, Any]]) -> list[str]:
    container = find_kind(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    return [str(argument) for argument in container["args"]]


@pytest.mark.parametrize("mode", MODES)
def test_the_api_accepts_every_object(mode: str) -> None:
    assert validate_core(rendered(mode)) == {
        "ConfigMap",
        "Deployment",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "Service",
    }


@pytest.mark.parametrize("name", CRDS)
def test_definitions_accept_pool_and_route(name: str, shared: Path) -> None:
    validate_custom(rendered("picker"), shared, name)


@pytest.mark.parametrize("mode", MODES)
def test_route_has_every_option_and_reads_the_fleet(mode: str) -> None:
    objects = rendered(mode)
    route = app.get_command(click.Context(app), "route")
    assert route is not None
    known = {name for parameter in route.params for name in parameter.opts}
    asked = {argument.partition("=")[0] for argument in arguments_of(objects) if argument.startswith("--")}
    assert asked
    assert asked <= known
    text = find_kind(objects, "ConfigMap")["data"]["fleet.yaml"]
    assert read_fleet(text, "fleet.yaml") == read_fleet(FLEET.read_text(), "fleet.yaml")


def test_parts_of_the_picker_refer_to_each_other() -> None:
    objects = rendered("picker")
    picker = find_kind(objects, "InferencePool")["spec"]["endpointPickerRef"]
    service = next(one for one in objects if one["kind"] == "Service" and one["metadata"]["name"] == picker["name"])
    assert picker["port"]["number"] in {port["port"] for port in service["spec"]["ports"]}
    labels = find_kind(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert f"--only-pick=0.0.0.0:{picker['port']['number']}" in arguments_of(objects)


@pytest.mark.parametrize("mode", MODES)
def test_metrics_are_apart_from_the_api(mode: str) -> None:
    objects = rendered(mode, "--set", "service.type=LoadBalancer")
    services = [one["spec"] for one in objects if one["kind"] == "Service"]
    (metrics,) = [one for one in services if {port["name"] for port in one["ports"]} & {"metrics"}]
    assert (metrics["type"], len(metrics["ports"])) == ("ClusterIP", 1)
    rules = find_kind(objects, "NetworkPolicy")["spec"]["ingress"]
    assert [rule["from"] for rule in rules if rule["ports"] == [{"port": "metrics"}]] == [[{"podSelector": {}}]]


def test_memory_follows_the_fleet() -> None:
    def room(*options: str) -> str:
        volumes = find_kind(rendered("gateway", *options), "Deployment")["spec"]["template"]["spec"]["volumes"]
        return next(str(one["emptyDir"]["sizeLimit"]) for one in volumes if one["name"] == "memory")

    assert room() == f"{32 + 16 // 4 + 2 * 2 + 16 * 2 // 256}Mi"
    assert room("--set", "workers=64") == f"{32 + 16 // 4 + 2 * 64 + 16 * 64 // 256}Mi"


def test_pods_have_time_to_drain() -> None:
    objects = rendered("gateway", "--set", "drainSeconds=90,drainGraceSeconds=10")
    assert find_kind(objects, "Deployment")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 105
    assert {"--drain=90", "--drain-grace=10"} <= set(arguments_of(objects))


@pytest.mark.parametrize("mode", MODES)
def test_a_first_start_has_minutes_before_it_is_restarted(mode: str) -> None:
    container = find_kind(rendered(mode), "Deployment")["spec"]["template"]["spec"]["containers"][0]
    probe, alive = container["startupProbe"], container["livenessProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == 300
    assert {key: probe[key] for key in ("httpGet", "grpc") if key in probe} == {
        key: alive[key] for key in ("httpGet", "grpc") if key in alive
    }


def test_a_chart_without_a_fleet_and_an_unknown_mode_are_refused() -> None:
    assert "fleet" in helm("template", "serving", str(CHART)).stderr
    done = helm("template", "serving", str(CHART), "--set-file", f"fleet={FLEET}", "--set", "mode=other")
    assert done.returncode != 0
    assert "mode" in done.stderr


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert (chart["version"], chart["appVersion"]) == (penstock.__version__, penstock.__version__)
