"""Alerts and dashboard use metrics that exist, and alerts fire and resolve in a real Prometheus."""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from ports import free_ports

pytest.importorskip("httptools", reason='the gateway is an extra: pip install "penstock[gateway]"')

from gateway_stack import chat, running
from penstock.gateway.telemetry.cost_metrics import SETTLE_EVERY_S

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
ALERTS = DEPLOY / "alerts.yaml"
WITH_PICKERS = {"penstock_fallback_requests_total"}
"""What only a gateway with pickers counts. The module inside Envoy sees first tokens, which other panels need."""
_SAMPLE = re.compile(r"^((?:penstock|llm)_\w+)(?:\{([^}]*)\})? \S+$", re.MULTILINE)


def program() -> str:
    found = os.environ.get("PENSTOCK_PROMETHEUS") or shutil.which("prometheus")
    if found is None:
        pytest.skip("Prometheus is not here")
    return found


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[str]:
    port = free_ports(1)[0]
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(ALERTS)],
        "scrape_configs": [{"job_name": "penstock", "static_configs": [{"targets": [target]}]}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    command = [program(), f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"])
    try:
        yield f"127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def firing(base: str) -> set[str]:
    try:
        with urllib.request.urlopen(f"http://{base}/api/v1/alerts", timeout=5) as answer:
            alerts = json.loads(answer.read())["data"]["alerts"]
    except OSError:
        return set()
    return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}


def await_alerts(base: str, wanted: set[str], seconds: float) -> set[str]:
    begun = time.monotonic()
    while (seen := firing(base)) != wanted and time.monotonic() - begun < seconds:
        time.sleep(0.5)
    return seen


def test_alerts_fire_when_an_endpoint_dies_and_resolve_when_it_is_back(tmp_path: Path) -> None:
    program()
    place = f"127.0.0.1:{free_ports(1)[0]}"
    with running(tmp_path, endpoints=2, metrics=place) as stack, prometheus(tmp_path, place) as base:
        time.sleep(5)
        assert firing(base) == set()
        stack.fault("die", 1)
        # The endpoint's pool has no other.
        dead = {"PenstockEndpointDown", "PenstockPoolDown"}
        assert await_alerts(base, dead, 60) == dead
        stack.fault("none", 1)
        assert await_alerts(base, set(), 30) == set()


def asked() -> list[tuple[str, str]]:
    """What alerts, dashboard and KEDA ask for, each with the legend it is shown by."""
    rules = yaml.safe_load(ALERTS.read_text())["groups"]
    panels = json.loads((DEPLOY / "dashboard.json").read_text())["panels"]
    scaled = yaml.safe_load((DEPLOY / "keda.yaml").read_text())["spec"]["triggers"]
    return [
        *((rule["expr"], "") for group in rules for rule in group["rules"]),
        *((target["expr"], target.get("legendFormat", "")) for panel in panels for target in panel["targets"]),
        *((trigger["metadata"]["query"], "") for trigger in scaled),
    ]


def test_every_metric_and_label_in_use_is_on_a_live_page(tmp_path: Path) -> None:
    place = f"127.0.0.1:{free_ports(1)[0]}"
    with running(tmp_path, endpoints=2, metrics=place, protocol="module") as stack:
        assert asyncio.run(stack.load(10, 2, chat(stream=True))).failed == 0
        time.sleep(2.5)  # Envoy's own counts are asked for once a second
        begun, page = time.monotonic(), ""
        while "\nllm_total_hourly_cost{" not in page and time.monotonic() - begun < SETTLE_EVERY_S + 20:
            page = urllib.request.urlopen(f"http://{place}/metrics", timeout=5).read().decode()
            time.sleep(0.5)
    labels: dict[str, set[str]] = {}
    for name, written in _SAMPLE.findall(page):
        labels.setdefault(name, set()).update(re.findall(r"(\w+)=", written))
    for expression, legend in asked():
        if "penstock:" in expression:  # rules that other rules record
            continue
        names = set(re.findall(r"(?:penstock|llm)_\w+", expression)) - WITH_PICKERS
        assert names <= labels.keys(), expression
        grouped = {name for found in re.findall(r"by \(([^)]*)\)", expression) for name in re.split(r",\s*", found)}
        wanted = grouped | set(re.findall(r"(\w+)=", expression)) | set(re.findall(r"\{\{(\w+)\}\}", legend))
        # Metrics that are joined have labels of their own.
        sets = (
            [set().union(*(labels[name] for name in names))]
            if "group_left" in expression
            else [labels[name] for name in names]
        )
        assert all(wanted <= some for some in sets), (expression, legend)
