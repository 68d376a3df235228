"""What holds of any two plans holds of fleets as simulation sizes them: between node steps, where pools carry more."""

from pathlib import Path

import pytest

from penstock.api.plan import sources_of
from penstock.planning.make_plan import make_plan
from penstock.planning.plan_result import Answer
from penstock.planning.spec.plan_file import parse_plan
from small_plans import TODAY

ONE = """
name: one workload
start: 2026-12-01
workloads:
  - {name: chat, model: llama-3.1-70b, weights: [fp8], slo: "ttft=2s,tpot=60ms,attain=95%", requests_per_s: 57,
     lengths: [{input: 2k, output: 512}]}
accelerators:
  - {id: mi300x, buy_usd: 15000}
  - {id: mi325x, buy_usd: 20000}
  - {id: h200, buy_usd: 35600}
acquire: [buy]
stacks: {amd: {engineers: 0.3}, nvidia: {engineers: 0}}
draws: 100
"""
TWO = """
name: two workloads
start: 2026-12-01
workloads:
  - {name: chat, model: llama-3.1-70b, weights: [fp8], slo: "ttft=2s,tpot=60ms,attain=95%", requests_per_s: CHAT,
     lengths: [{input: 2k, output: 512}]}
  - {name: fast, model: llama-3.1-8b, slo: "ttft=1s,tpot=25ms,attain=95%", requests_per_s: FAST,
     lengths: [{input: 1k, output: 256}]}
accelerators:
  - {id: mi300x, contracts: [{years: 3, usd_per_hour: 1.25}]}
  - {id: h200, contracts: [{years: 3, usd_per_hour: 2.05}]}
acquire: [contract]
stacks: {amd: {engineers: 0.3}, nvidia: {engineers: 0}}
draws: 100
"""


def winner_usd(text: str) -> float:
    plan = parse_plan(text, "plan.yaml", today=TODAY)
    answer = make_plan(plan, sources_of(plan, Path())).answer
    assert isinstance(answer, Answer)
    return answer.winner.cost.total_usd


def test_an_added_part_does_not_hide_a_fleet_of_another() -> None:
    """Six MI325X nodes are enough by the first eight replicas; seven of MI300X only by what 48 carry together."""
    assert winner_usd(ONE) <= winner_usd(ONE.replace("  - {id: mi325x, buy_usd: 20000}\n", "")) * (1 + 1e-6)


@pytest.mark.parametrize("factor", [1.11])
def test_cost_does_not_fall_as_demand_rises(factor: float) -> None:
    """Several fillings of the same nodes look alike before they are simulated; the purer one holds."""
    usd = [
        winner_usd(TWO.replace("CHAT", f"{26 * times:.3f}").replace("FAST", f"{60 * times:.3f}"))
        for times in (factor, factor + 0.01)
    ]
    assert usd[0] <= usd[1] * (1 + 1e-6)
