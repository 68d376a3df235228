"""Alerts and dashboard speak of metrics that exist, in a language Prometheus reads."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import click
import numpy as np
import pytest
import yaml

from gateway_fakes import usage_of_one
from penstock.cli.root import app
from penstock.gateway.metrics_view import read_view
from penstock.gateway.state.routed_fleet import RoutedFleet, RoutedPool
from penstock.gateway.state.shared_tables import COUNTS, PICKER_STATE, REPORT
from penstock.gateway.telemetry.autoscaling import DesiredReplicas
from penstock.gateway.telemetry.gateway_metrics import lost_lines, metrics_page
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
    tables = np.zeros(2, REPORT), counts, np.zeros(3, PICKER_STATE)
    usage = usage_of_one(fleet, model="m", pool="p", endpoint="10.0.0.1:8000")
    return metrics_page(fleet, *tables, envoy, DesiredReplicas(fleet), [*usage.lines(), *lost_lines(0)]).decode()


def expressions() -> list[str]:
    rules = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())["groups"]
    alerts = [rule["expr"] for group in rules for rule in group["rules"]]
    panels = json.loads((DEPLOY / "dashboard.json").read_text())["panels"]
    keda = yaml.safe_load((DEPLOY / "keda.yaml").read_text())["spec"]["triggers"]
    scaled = [trigger["metadata"]["query"] for trigger in keda]
    return alerts + scaled + [target["expr"] for panel in panels for target in panel["targets"]]


def test_what_is_asked_for_is_published() -> None:
    page, rules = published(), yaml.safe_load((DEPLOY / "alerts.yaml").read_text())["groups"]
    names = set(re.findall(r"^(?:# TYPE )?([a-z]\w+)(?:\{| )", page, re.MULTILINE))
    names |= {rule["record"] for group in rules for rule in group["rules"] if "record" in rule}
    asked = {name for expression in expressions() for name in re.findall(r"(?:penstock|llm)[_:][\w:]+", expression)}
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


def test_prometheus_reads_rules_and_page_and_alerts_fire_as_they_say(tmp_path: Path) -> None:
    tool = promtool()
    rules = subprocess.run(
        [tool, "check", "rules", DEPLOY / "alerts.yaml"], capture_output=True, text=True, check=False
    )
    assert rules.returncode == 0, rules.stderr
    burns = shutil.copy(Path(__file__).with_name("burn_rates.yaml"), tmp_path)
    shutil.copy(DEPLOY / "alerts.yaml", tmp_path)
    tested = subprocess.run([tool, "test", "rules", burns], capture_output=True, text=True, check=False)
    assert tested.returncode == 0, tested.stdout + tested.stderr
    page = subprocess.run([tool, "check", "metrics"], input=published(), capture_output=True, text=True, check=False)
    assert page.returncode == 0, page.stderr


def test_systemd_accepts_the_unit_and_it_has_time_to_drain(tmp_path: Path) -> None:
    unit = DEPLOY / "systemd" / "penstock@.service"
    (command,) = re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)
    (seconds,) = re.findall(r"^TimeoutStopSec=(\d+)$", unit.read_text(), re.MULTILINE)
    times = dict(re.findall(r"(--drain(?:-grace)?) (\d+)", command))
    assert int(seconds) >= int(times["--drain"]) + int(times["--drain-grace"]) + 5
    route = app.get_command(click.Context(app), "route")
    assert route is not None
    assert set(re.findall(r"(--[a-z-]+)", command)) <= {name for one in route.params for name in one.opts}
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("systemd is not here")
    copy = tmp_path / "penstock@blue.service"
    copy.write_text(unit.read_text().replace("/opt/penstock/bin/penstock", "/bin/true"))
    done = subprocess.run([tool, "verify", copy], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
