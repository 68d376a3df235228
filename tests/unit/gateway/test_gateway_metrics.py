"""The gateway's own metrics page is one Prometheus reads, whatever a pool is called."""

import re
from dataclasses import replace

import numpy as np
import pytest

from gateway_fakes import fleet
from penstock.gateway.metrics_view import read_view
from penstock.gateway.state.shared_tables import COUNTS, PICKER_STATE, REPORT
from penstock.gateway.telemetry.autoscaling import DesiredReplicas
from penstock.gateway.telemetry.gateway_metrics import metrics_page

NAMES = ['a"b', "a\\b", "a\nb", "a\\nb", 'a\\"b', "a}b,pool=c", "a{b} 1", "a\\", "plain", "ünï"]
ESCAPES = {"\\": "\\", '"': '"', "n": "\n"}


def parsed(line: str) -> tuple[str, dict[str, str], float]:
    """Read a sample by the grammar of the text format, character by character: a reader of its own."""
    name, rest = re.fullmatch(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(.*)", line, re.DOTALL).groups()  # type: ignore[union-attr]
    labels: dict[str, str] = {}
    if rest.startswith("{"):
        rest = rest[1:]
        while not rest.startswith("}"):
            label, rest = rest.split('="', 1)
            value = ""
            while rest[0] != '"':
                if rest[0] == "\\":
                    value, rest = value + ESCAPES[rest[1]], rest[2:]
                else:
                    value, rest = value + rest[0], rest[1:]
            labels[label], rest = value, rest[1:].removeprefix(",")
        rest = rest[1:]
    assert rest.startswith(" ")
    return name, labels, float(rest)


@pytest.mark.parametrize("name", NAMES)
def test_a_pool_may_have_any_name(name: str) -> None:
    routed = replace(fleet(2), pools=(name, "other"))
    counts = np.zeros((1, 2), COUNTS)
    counts["picked"][0, 0] = 7
    states, envoy = np.zeros(1, PICKER_STATE), {"penstock_requests_total": 1.0}
    page = metrics_page(routed, np.zeros(2, REPORT), counts, states, envoy, DesiredReplicas(routed)).decode()
    samples = [parsed(line) for line in page.splitlines() if not line.startswith("#")]
    picks = {labels["pool"]: value for metric, labels, value in samples if metric == "penstock_picks_total"}
    assert picks == {name: 7.0, "other": 0.0}
    assert [one.pool for one in read_view(page).endpoints] == [name, "other"]
    assert read_view(page).endpoints[0].values["picks_total"] == 7.0
