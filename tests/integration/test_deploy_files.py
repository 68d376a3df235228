"""Alerts and dashboard speak of metrics that exist, in a language Prometheus reads."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import yaml

from penstock.gateway.metrics_view import read_view
from penstock.gateway.state.routed_fleet import RoutedFleet, RoutedPool
from penstock.gateway.state.shared_tables import COUNTS, PICKER_STATE, REPORT
from penstock.gateway.telemetry.autoscaling import DesiredReplicas
from penstock.gateway.telemetry.gateway_metrics import metrics_page
from penstock.routing.records import new_endpoints

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
FROM_ENVOY = {"requests_total", "requests_5xx_total", "requests_4xx_total", "fallback_requests_total"}


def published() -> str:
    fleet = RoutedFleet(
        name="test",
        addresses=("10.0.0.1:8000", "10.0.0.2:8000"),
        pools=("p", "q"),
        engines=("vllm", "vllm"),
        models=("m",),
        served=("m", "m"),
        classes=(),
        endpoints=new_endpoints(2),
        kinds=(RoutedPool(name="p", model="m", most=3), RoutedPool(name="q", model="m", most=2)),
        kind_records=new_endpoints(2),
    )
    counts = np.zeros((3, 2), COUNTS)
    counts["picked"] = [[1, 2], [3, 4], [5, 6]]
    envoy = dict.fromkeys((f"penstock_{name}" for name in FROM_ENVOY), 7.0)
    return metrics_page(
        fleet, np.zeros(2, REPORT), counts, np.zeros(3, PICKER_STATE), envoy, DesiredReplicas(fleet)
    ).decode()


def expressions() -> list[str]:
    rules = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())["groups"]
    alerts = [rule["expr"] for group in rules for rule in group["rules"]]
    panels = json.loads((DEPLOY / "dashboard.json").read_text())["panels"]
    keda = yaml.safe_load((DEPLOY / "keda.yaml").read_text())["spec"]["triggers"]
    scaled = [trigger["metadata"]["query"] for trigger in keda]
    return alerts + scaled + [target["expr"] for panel in panels for target in panel["targets"]]


def test_what_is_asked_for_is_published() -> None:
    names = set(re.findall(r"^# TYPE (\S+)", published(), re.MULTILINE))
    asked = {name for expression in expressions() for name in re.findall(r"penstock_\w+", expression)}
    assert len(asked) > 15
    assert asked <= names


def test_a_page_is_read_back_as_it_was_meant() -> None:
    view = read_view(published())
    assert [one.values["picks_total"] for one in view.endpoints] == [1 + 3 + 5, 2 + 4 + 6]
    assert len(view.pickers) == 3
    assert view.totals["requests_total"] == 7.0


def promtool() -> str:
    found = os.environ.get("PENSTOCK_PROMTOOL") or shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not here; it comes with Prometheus")
    return found


def test_prometheus_reads_rules_and_page() -> None:
    tool = promtool()
    rules = subprocess.run(
        [tool, "check", "rules", DEPLOY / "alerts.yaml"], capture_output=True, text=True, check=False
    )
    assert rules.returncode == 0, rules.stderr
    page = subprocess.run([tool, "check", "metrics"], input=published(), capture_output=True, text=True, check=False)
    assert page.returncode == 0, page.stderr
