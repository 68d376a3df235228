"""Prometheus's own parser and ours read the same values from the pages, whatever a pool or model is called."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from gateway_fakes import fleet, state
from penstock.emulator.metrics_page import EngineState, sglang_page, vllm_page
from penstock.gateway.metrics_view import read_view
from penstock.gateway.state.shared_tables import COUNTS, PICKER_STATE, REPORT
from penstock.gateway.telemetry.autoscaling import DesiredReplicas
from penstock.gateway.telemetry.gateway_metrics import metrics_page
from penstock.prometheus_text import read_samples

NAMES = ['a"b', "a\\b", "a\nb", "a\\nb", 'a\\"b', "a}b,pool=c", "a{b} 1", "a\\", "plain", "ünï"]


def parsed(page: str) -> list[Sample]:
    return [sample for family in text_string_to_metric_families(page) for sample in family.samples]


@pytest.mark.parametrize("name", NAMES)
def test_a_pool_may_have_any_name(name: str) -> None:
    routed = replace(fleet(2), pools=(name, "other"))
    counts = np.zeros((1, 2), COUNTS)
    counts["picked"][0, 0] = 7
    states, envoy = np.zeros(1, PICKER_STATE), {"penstock_requests_total": 1.0}
    page = metrics_page(routed, np.zeros(2, REPORT), counts, states, envoy, DesiredReplicas(routed)).decode()
    samples = parsed(page)
    picks = {sample.labels["pool"]: sample.value for sample in samples if sample.name == "penstock_picks_total"}
    assert picks == {name: 7.0, "other": 0.0}
    assert [tuple(sample) for sample in read_samples(page)] == [tuple(sample[:3]) for sample in samples]
    assert [one.pool for one in read_view(page).endpoints] == [name, "other"]
    assert read_view(page).endpoints[0].values["picks_total"] == 7.0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("write", [vllm_page, sglang_page])
def test_an_emulated_model_may_have_any_name(name: str, write: Callable[[EngineState], bytes]) -> None:
    samples = parsed(write(replace(state(), model=name)).decode())
    assert {sample.labels["model_name"] for sample in samples if "model_name" in sample.labels} == {name}
    assert len(samples) > 60
