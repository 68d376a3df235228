"""The first screen does not call another confidence free because the compared fleets cost the same."""

from dataclasses import replace
from pathlib import Path

import pytest

import penstock
from penstock.planning.plan_result import Answer
from penstock.planning.uncertainty.confidence_levels import ConfidenceLevel
from penstock.report.plan.confidence_sentences import compare_level


def test_a_smaller_confidence_that_saves_nothing_here_is_not_called_the_same_cost() -> None:
    planned = ConfidenceLevel(confidence=0.8, usd=100.0, nodes=2.0, planned=True)
    told = {at: compare_level(replace(planned, confidence=at, planned=False), planned, "node") for at in (0.5, 0.9)}
    assert told == {0.5: "50% may cost less with a fleet that was not compared", 0.9: "90% costs the same"}
    cheaper = replace(planned, confidence=0.5, usd=40.0, planned=False, instead=("mi325x",))
    assert compare_level(cheaper, planned, "node") == "50% saves at least $60 (mi325x)"


CODE = """
start: 2026-12-01
horizon_years: 1
workloads:
  - name: code
    model: qwen3-32b
    weights: [fp8]
    engine: vllm
    kv: bf16
    slo: ttft=2s,tpot=40ms,attain=95%
    requests_per_s: {rate}
    lengths: [{{input: 1500, output: 300}}]
accelerators: [{{id: h200, rent_usd_per_hour: 2.95, instances: [1, 2, 4, 8], tp: [1]}}]
acquire: [rent]
draws: 100
constraints: {{confidence: {confidence}, spare_nodes: 0}}
"""


@pytest.mark.parametrize("rate", [11, 20])
def test_a_plan_with_a_smaller_confidence_saves_what_the_first_screen_says(rate: float, tmp_path: Path) -> None:
    """A smaller pool balances its load worse, so each of its replicas carries less than in the planned pool."""

    def planned(confidence: str) -> Answer:
        (tmp_path / "plan.yaml").write_text(CODE.format(rate=rate, confidence=confidence))
        answer = penstock.plan(tmp_path / "plan.yaml").result.answer
        assert isinstance(answer, Answer)
        return answer

    levels = {level.confidence: level.usd for level in planned("80%").levels}
    half = planned("50%").winner.mix.cost_usd
    assert levels[0.5] is not None
    assert half <= levels[0.5] * 1.001
