"""Scenarios and flips are what a plan of those inputs says, with candidates of its own."""

import pytest

from examples import model
from penstock.catalog import load_accelerator
from penstock.performance.prediction.predict_deployment import Range
from penstock.planning.candidates.replica_capacity import Capacity, Option, RateCurve
from penstock.planning.make_plan import make_plan
from penstock.planning.optimizer.cheapest_mix import cheapest
from penstock.planning.plan_result import Answer
from penstock.planning.plan_sources import Sources
from penstock.planning.spec.plan_types import WorkloadPlan
from penstock.report.plan.flips import flip_sentence
from small_plans import plan_of, problem_of, solved, whole_node_prices

SMALL_SHARE = """
start: 2027-01-01
horizon_years: 1
workloads:
  - name: chat
    model: llama-3.1-8b
    slo: ttft=1s,tpot=50ms
    requests_per_s: RATE
    lengths: [{input: 1k, output: 256}]
accelerators:
  - {id: h200, tp: [1], rent_usd_per_hour: {value: 3, low: 2.7, high: 3.3}, instances: [1]}
  - {id: mi300x, tp: [1], rent_usd_per_hour: {value: 1.2, low: 1, high: 1.4}, instances: [1]}
acquire: [rent]
stacks: {amd: {engineers_per_1000_devices: 0}}
constraints: {utilisation: 100%, spare_nodes: 0, confidence: 50%}
draws: 200
"""
RATES = {"h200_sxm": 6.0, "mi300x": 0.9}
LOAD = 10 * 6 * 1000 / 1280 + 0.4
"""Ten H200 and a little, for which one MI300X is enough: AMD carries far less than a tenth of the load."""


def test_beyond_a_solved_flip_another_fleet_wins() -> None:
    """A mix with a small share of one vendor was left at flips, marked as solved, beyond which it still won."""
    answer = solved(SMALL_SHARE.replace("RATE", f"{LOAD}"), RATES, spread=0.05).answer
    assert isinstance(answer, Answer)
    assert answer.verdict.winner == "mix"
    checked = 0
    for flip in answer.flips:
        beyond = flip.at * (1.012 if flip.side == "above" else 0.988)
        text = SMALL_SHARE.replace("RATE", f"{LOAD * beyond if flip.kind == 'demand' else LOAD}")
        if flip.kind == "rent":
            was = {"h200_sxm": "value: 3, low: 2.7, high: 3.3", "mi300x": "value: 1.2, low: 1, high: 1.4"}[flip.subject]
            text = text.replace(was, f"value: {beyond}")
        if flip.kind in {"demand", "rent"}:
            mix = cheapest(problem_of(text, RATES, whole_node_prices)[1])
            assert mix is not None
            assert answer.family.label(mix) != "mix", flip
            checked += 1
    assert checked >= 4


def test_a_flip_out_of_range_says_so() -> None:
    answer = solved(SMALL_SHARE.replace("RATE", f"{LOAD}"), RATES, spread=0.05).answer
    assert isinstance(answer, Answer)
    far = next(flip for flip in answer.flips if flip.kind == "rent" and not flip.within_range)
    assert "outside its range" in flip_sentence(far)


def by_demand(option: Option, workload: WorkloadPlan) -> tuple[Capacity, ...]:
    """Pairs of devices carry more than single ones only in large pools, as pools of many replicas share bursts."""
    rate = 5.0 * option.deployment.parallelism.devices
    if option.deployment.parallelism.devices > 1:
        rate *= 1.6 if workload.peak_requests_per_s > 50 else 0.5
    curve = RateCurve.through(Range(value=rate, low=rate * 0.9, high=rate * 1.1))
    return (Capacity(curve=curve, tier="calibrated", grounds="made up", prefill_fraction=0.25),)


@pytest.mark.parametrize(("end", "rate"), [("low", 10), ("high", 80)])
def test_a_scenario_is_the_plan_of_its_demand(end: str, rate: int) -> None:
    """Scenarios kept the candidates of the stated demand: the wrong vendor, and $89k too dear."""
    text = SMALL_SHARE.replace("tp: [1]", "tp: [1, 2]").replace("instances: [1]", "instances: [1, 2]")
    text = text.replace("{id: mi300x, tp: [1, 2]", "{id: mi300x, tp: [1]").replace(
        "value: 1.2, low: 1, high: 1.4", "value: 2.2"
    )

    def answer_of(demand: str) -> Answer:
        plan = plan_of(text.replace("RATE", demand))
        sources = Sources(
            accelerators=tuple(load_accelerator(part.id) for part in plan.accelerators),
            prices_of=whole_node_prices,
            model_of=model,
            capacity_of=by_demand,
            capacity_note="made-up capacities",
        )
        answer = make_plan(plan, sources).answer
        assert isinstance(answer, Answer)
        return answer

    scenario = next(one for one in answer_of("{value: 40, low: 10, high: 80}").scenarios if one.name == end)
    alone = answer_of(str(rate))
    assert scenario.label == alone.verdict.winner
    assert scenario.usd == pytest.approx(alone.winner.mix.cost_usd, rel=1e-3)
