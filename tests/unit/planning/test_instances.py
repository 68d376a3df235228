"""Rents come in the sizes that are sold, a spare is one of them, and owned devices count singly."""

from dataclasses import replace
from math import ceil

import pytest

from penstock.catalog import load_accelerator, load_prices
from penstock.planning.optimizer.problem import DEVICE, NODE
from penstock.planning.plan_result import Answer
from penstock.planning.spec.resolve_plan import resolve
from penstock.planning.tender_lots import LotSizes, nodes_to_request
from penstock.report.plan.buyer_summary import acquisition_plan
from penstock.report.plan.scenario_sentences import api_sentences, small_fleet
from small_plans import PLAIN, plan_of, solved

HOURS = 8766
RENT = """
name: rented
start: 2027-01-01
horizon_years: 1
workloads:
  - name: chat
    model: llama-3.1-8b
    slo: ttft=1s,tpot=50ms
    requests_per_s: RATE
    lengths: [{input: 1k, output: 256}]
accelerators: [{id: h200, rent_usd_per_hour: 3, tp: [1], instances: SIZES}]
acquire: [rent]
finance: {discount_rate: 0}
constraints: {utilisation: 100%, spare_nodes: 1}
"""
PER_DEVICE = 6.0 * 1000 / 1280
"""Requests per second that the made-up H200 carries: 6 of a thousand tokens each."""


def answer_of(text: str) -> Answer:
    answer = solved(text, spread=0.0).answer
    assert isinstance(answer, Answer)
    return answer


def rented(rate: float, sizes: str) -> Answer:
    return answer_of(RENT.replace("RATE", str(rate)).replace("SIZES", sizes))


@pytest.mark.parametrize("rate", [0.5, 2.0, 9.0, 40.0])
def test_a_small_load_costs_what_its_instances_cost_by_hand_with_one_spare(rate: float) -> None:
    devices = ceil(rate / PER_DEVICE) + 1
    found = rented(rate, "[1, 2, 4]").winner.mix
    assert found.cost_usd == pytest.approx(devices * 3 * HOURS, rel=1e-3)
    assert [pool.offer.unit for pool in found.pools] == ["x1"]
    assert found.pools[0].spare_nodes == 1


def test_more_sizes_never_cost_more_and_a_replica_takes_the_smallest_that_holds_it() -> None:
    whole, four, single = (rented(9.0, sizes).winner.mix for sizes in ("[]", "[4]", "[4, 1]"))
    assert whole.cost_usd > four.cost_usd > single.cost_usd
    assert (four.pools[0].offer.unit, four.pools[0].nodes) == ("x4", 2)
    assert whole.pools[0].offer.unit == NODE


def test_a_large_pool_is_planned_in_whole_nodes() -> None:
    assert {pool.offer.unit for pool in rented(15 * PER_DEVICE, "[1]").winner.mix.pools} == {"x1"}
    large = rented(40 * PER_DEVICE, "[1]").winner.mix
    assert sum(pool.nodes for pool in large.pools if pool.offer.unit == "x1") <= 16
    assert any(pool.offer.unit == NODE for pool in large.pools)


def test_the_order_names_instances() -> None:
    result = solved(RENT.replace("RATE", "9.0").replace("SIZES", "[1]"), spread=0.0)
    assert isinstance(result.answer, Answer)
    assert acquisition_plan(result.answer.winner.mix, result.resolved) == (
        "Rent 3 single-device instances of NVIDIA H200 SXM by the hour"
    )
    assert "instances" not in small_fleet(result, result.answer)


def test_a_request_for_proposals_counts_instances_in_their_own_size() -> None:
    """Three single devices were asked for as one server of eight."""
    result = solved(RENT.replace("RATE", "9.0").replace("SIZES", "[1]"), spread=0.0)
    assert isinstance(result.answer, Answer)
    assert nodes_to_request(result, result.answer) == {
        "h200_sxm": LotSizes(whole_nodes=3, shared_nodes=None, devices=1)
    }


def test_four_owned_devices_serve_with_one_as_a_spare() -> None:
    owned = PLAIN.replace("requests_per_s: 40", "requests_per_s: 8") + "owned: [{id: 4xh200, resale_usd: 3000}]\n"
    result = solved(owned)
    assert isinstance(result.answer, Answer)
    mix = result.answer.winner.mix
    assert [(pool.offer.unit, pool.spare_nodes) for pool in mix.pools] == [(DEVICE, 1)]
    kept = mix.pools[0].kept_nodes
    assert kept == ceil(8 / 0.8 / PER_DEVICE) + 1
    assert acquisition_plan(mix, result.resolved).endswith(f"keep {kept} x NVIDIA H200 SXM") or kept == 4
    bills = [line.usd for line in result.answer.winner.cost.lines]
    assert sum(bills) == pytest.approx(mix.cost_usd)


def test_a_stated_contract_is_signed_in_the_sizes_that_are_rented_by_the_hour() -> None:
    """A cheaper contract of the plan file was offered in whole servers only, and the fleet was rented by the hour."""
    entry = "{id: h200, rent_usd_per_hour: 3.2, contracts: [{years: 1, usd_per_hour: 2.7}]}"
    plan = plan_of(
        RENT.replace("RATE", "2.0").replace("{id: h200, rent_usd_per_hour: 3, tp: [1], instances: SIZES}", entry)
    )
    plan = replace(plan, acquire=("rent", "contract"))
    found = resolve(plan, (load_accelerator("h200"),), load_prices, named=True)
    (priced,) = found.plan.accelerators
    assert priced.instances is not None
    assert 1 in priced.instances
    assert [contract.sizes for contract in priced.contracts] == [priced.instances]


def test_an_api_is_compared_at_the_price_of_the_plan_only() -> None:
    text = RENT.replace("RATE", "2.0").replace("SIZES", "[1]")
    silent = solved(text)
    assert isinstance(silent.answer, Answer)
    assert not list(api_sentences(silent, silent.answer))
    priced = text.replace("    lengths:", "    api: {input_usd_per_mtok: 1, output_usd_per_mtok: 2}\n    lengths:")
    result = solved(priced)
    assert isinstance(result.answer, Answer)
    (sentence,) = api_sentences(result, result.answer)
    year_tokens = 2.0 * 0.5 * HOURS * 3600 / 1e6
    usd = year_tokens * (1024 * 1 + 256 * 2)
    assert f"cost ${usd / 1000:,.0f}k in today's money on an API" in sentence
