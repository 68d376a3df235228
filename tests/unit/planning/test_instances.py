"""Rents come in the sizes that are sold, a spare is one of them, and owned devices count singly."""

import re
from dataclasses import replace
from math import ceil

import pytest

from penstock.catalog import load_accelerator, load_prices
from penstock.planning.optimizer.problem import DEVICE, NODE
from penstock.planning.plan_result import Answer
from penstock.planning.spec.catalog_prices import api_price
from penstock.planning.spec.plan_types import ContractPlan
from penstock.planning.spec.resolve_plan import resolve
from penstock.planning.tender_lots import LotSizes, nodes_to_request
from penstock.report.plan.acquisition_plan import acquisitions
from penstock.report.plan.confidence_sentences import enough_sentence
from penstock.report.plan.page import plan_html
from penstock.report.plan.price_sentences import price_sentences
from penstock.report.plan.scenario_sentences import api_sentences, small_fleet
from penstock.report.plan.sentences import headline
from small_plans import PLAIN, plan_of, problem_of, solved

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


DEVICE_USD = 3.0 * HOURS
"""Cost of one device and year."""
UNSTATED = RENT.replace(", instances: SIZES", "")


@pytest.mark.parametrize("devices", [14, 15, 16, 17, 40])
def test_cost_never_jumps_by_more_than_a_unit(devices: int) -> None:
    """Beyond 16 single devices whole servers with a server as spare were planned: 7% more demand cost 50% more."""
    result = solved(UNSTATED.replace("RATE", str(devices * PER_DEVICE)), spread=0.0, prices_of=load_prices)
    assert isinstance(result.answer, Answer)
    mix = result.answer.winner.mix
    assert [(pool.offer.unit, pool.nodes, pool.spare_nodes) for pool in mix.pools] == [("x1", devices + 1, 1)]
    assert mix.cost_usd == pytest.approx((devices + 1) * DEVICE_USD, rel=1e-3)


def test_every_unit_gets_the_cheapest_contract() -> None:
    """Sixteen of 17 devices were signed for 36 months, and one for 12 at a higher price."""
    terms = "contracts: [{years: 1, usd_per_hour: 2.2}, {years: 3, usd_per_hour: 1.9}]"
    text = UNSTATED.replace("rent_usd_per_hour: 3", f"rent_usd_per_hour: 2.6, {terms}").replace("[rent]", "[contract]")
    text = text.replace("RATE", str(16 * PER_DEVICE)).replace("horizon_years: 1", "horizon_years: 3")
    result = solved(text, spread=0.0, prices_of=load_prices)
    assert isinstance(result.answer, Answer)
    assert result.answer.winner.mix.contracts == {("h200_sxm", "site", "x1", 1, 0): 17}


def test_the_order_names_instances_and_charts_have_the_unit_of_its_dollars() -> None:
    result = solved(RENT.replace("RATE", "9.0").replace("SIZES", "[1]"), spread=0.0)
    assert isinstance(result.answer, Answer)
    assert acquisitions(result.answer.winner.mix, result.resolved) == (
        "rent 3 single-device instances of NVIDIA H200 SXM by the hour",
        "",
    )
    assert "instances" not in small_fleet(result, result.answer)
    page = plan_html(result)
    assert "thousand dollars in today" in page
    assert "million dollars" not in page


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
    assert acquisitions(mix, result.resolved)[0].endswith(f"keep {kept} x NVIDIA H200 SXM") or kept == 4
    bills = [line.usd for line in result.answer.winner.cost.lines]
    assert sum(bills) == pytest.approx(mix.cost_usd)


OWNED = PLAIN.replace("requests_per_s: 40", "requests_per_s: 9.5") + "owned: [{id: 4xh200, resale_usd: 3000}]\n"
"""Four owned devices, of which three serve and one is a spare: too few in the slowest draws."""


def spread_answer_of(text: str) -> Answer:
    """Return the answer of a plan whose speeds are uncertain."""
    answer = solved(text).answer
    assert isinstance(answer, Answer)
    return answer


def test_owned_devices_that_are_too_few_are_joined_by_rented_ones() -> None:
    """AMD was called cheapest in the slow draws, at $2.3M more, because owned devices could not be added to."""
    answer = spread_answer_of(OWNED.replace("rent_usd_per_hour: 3,", "rent_usd_per_hour: 3, instances: [1],"))
    (pool,) = answer.winner.mix.pools
    assert (pool.offer.unit, pool.kept_nodes, pool.rented_nodes) == (DEVICE, 4, 0)
    confidence = answer.confidence
    assert 0.8 <= confidence.enough_fraction < 0.9
    assert confidence.served_fraction == confidence.probability["nvidia"] == 1.0
    rent = 3 * 3 * HOURS
    assert confidence.fleet_usd.high == pytest.approx(answer.winner.mix.cost_usd + rent, rel=0.02)
    larger = next(level for level in answer.levels if level.confidence == 0.9)
    assert (larger.nodes, larger.instead) == (5, ())
    assert larger.usd == pytest.approx(answer.winner.mix.cost_usd + rent, rel=0.01)


def test_the_cost_of_cases_that_a_fleet_cannot_serve_is_not_left_out_silently() -> None:
    """P10-P90 was said to be over all cases, and 90% to be possible with no number of nodes."""
    one_node = OWNED.replace("rent_usd_per_hour: 3,", "rent_usd_per_hour: 3, max_nodes: 1,")
    answer = spread_answer_of(one_node)
    share = answer.confidence.served_fraction
    assert share == answer.confidence.enough_fraction < 0.9
    assert answer.confidence.probability["nvidia"] == share
    served = f"the {share:.0%} of cases that this fleet, enlarged if needed, can serve"
    assert f"in {served})" in headline(answer)


def test_a_fleet_that_cannot_grow_is_joined_by_another_of_its_label() -> None:
    """AMD was called cheapest in the slow draws, because whole servers were not rented beside owned devices."""
    answer = spread_answer_of(OWNED)
    confidence, planned = answer.confidence, answer.winner.mix.cost_usd
    assert confidence.enough_fraction < 0.9
    assert confidence.served_fraction == confidence.probability["nvidia"] == 1.0
    servers = 2 * 8 * 3 * 3 * HOURS
    assert confidence.fleet_usd.median == pytest.approx(planned)
    assert planned + servers / 2 < confidence.fleet_usd.high <= planned + servers * 1.1
    larger = next(level for level in answer.levels if level.confidence == 0.9)
    assert larger.instead == ("h200_sxm",)
    assert larger.usd is not None
    assert larger.usd > answer.winner.mix.cost_usd
    assert re.search(r"90% costs at most \$\S+ more \(h200_sxm\)", enough_sentence(answer))


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
    assert list(api_sentences(silent, silent.answer)) == [
        "chat: no API price of llama-3.1-8b is recorded; state `api:` to compare."
    ]
    priced = text.replace("    lengths:", "    api: {input_usd_per_mtok: 1, output_usd_per_mtok: 2}\n    lengths:")
    result = solved(priced)
    assert isinstance(result.answer, Answer)
    (sentence,) = api_sentences(result, result.answer)
    year_tokens = 2.0 * 0.5 * HOURS * 3600 / 1e6
    usd = year_tokens * (1024 * 1 + 256 * 2)
    assert f"cost ${usd / 1000:,.0f}k in today's money on an API" in sentence


def test_an_api_that_costs_less_is_the_verdict() -> None:
    """A fleet 30 times as dear as an API "won in 100% of draws", and the API stood on line 17."""
    cheap, _ = rented_with_api(0.01 * PER_DEVICE, 0.8 * FULL_USD_PER_MTOK)
    assert cheap.verdict.outcome == "an API is cheaper"
    assert cheap.verdict.of_fleets == "only choice"
    assert headline(cheap).startswith("An API is cheaper: these tokens cost $")
    dear, _ = rented_with_api(20 * PER_DEVICE, 4 * FULL_USD_PER_MTOK)
    assert dear.verdict.outcome == dear.verdict.of_fleets
    assert "API" not in headline(dear)


def test_the_catalog_knows_what_apis_ask() -> None:
    found = api_price("meta-llama/Llama-3.3-70B-Instruct")
    assert found is not None
    assert (found.input_usd_per_mtok, found.output_usd_per_mtok) == (0.447, 0.68)
    assert found.source is not None
    assert "20 sellers" in found.source
    assert "2026-11-19" in found.source
    assert "cached input $0.26" in str(api_price("glm-5.3"))
    assert api_price("llama-3.1-8b") is None
    text = RENT.replace("llama-3.1-8b", "llama-3.3-70b").replace("RATE", "0.2").replace("SIZES", "[8]")
    (silent,) = problem_of(text, {"h200_sxm": 1.0}, load_prices)[0].plan.workloads
    assert silent.api == found
    own = text.replace("    lengths:", "    api: {input_usd_per_mtok: 1, output_usd_per_mtok: 2}\n    lengths:")
    (spoken,) = problem_of(own, {"h200_sxm": 1.0}, load_prices)[0].plan.workloads
    assert spoken.api is not None
    assert spoken.api.output_usd_per_mtok == 2


def test_a_rent_that_no_fleet_pays_is_not_called_the_compared_one() -> None:
    """The summary shows the contract rent that the fleet signs, and not only the rent by the hour."""
    result = solved(RENT.replace("RATE", "2.0").replace("SIZES", "[1]"))
    assert isinstance(result.answer, Answer)
    (hourly,) = result.plan.accelerators
    assert hourly.rent is not None
    rent = replace(hourly.rent, given=False, sellers=4, seller_class="specialised cloud")
    term = replace(rent, value=2.0, low=2.0, sellers=1, seller_class="hyperscaler")
    contract = ContractPlan(months=12, rent=term, sizes=(1,))

    def said(nodes: tuple[int, ...], rented: int) -> str:
        priced = replace(hourly, rent=rent, contracts=(contract,))
        plan = replace(result.plan, accelerators=(priced,))
        mix = answer.winner.mix
        pools = tuple(replace(pool, rented_nodes=rented, contract_nodes=nodes) for pool in mix.pools)
        winner = replace(answer.winner, mix=replace(mix, pools=pools))
        changed = replace(result, resolved=replace(result.resolved, plan=plan))
        return next(price_sentences(changed, replace(answer, winner=winner, by_label={})))

    answer = result.answer
    assert said((), 2) == "Catalog rents per device-hour: h200_sxm $3.00 by the hour (4 specialised clouds)."
    assert said((2,), 0) == "Catalog rents per device-hour: h200_sxm $2.00 for 12 months (1 hyperscaler)."
    assert said((1,), 1).endswith(
        "h200_sxm $3.00 by the hour (4 specialised clouds); h200_sxm $2.00 for 12 months (1 hyperscaler). "
        "These are different classes of sellers: ask both for a quote."
    )


def rented_with_api(rate: float, usd_per_mtok: float) -> tuple[Answer, str]:
    """Return the answer of a rented fleet and the sentence that compares it with an API."""
    api = f"    api: {{input_usd_per_mtok: {usd_per_mtok}, output_usd_per_mtok: {usd_per_mtok}}}\n    lengths:"
    result = solved(RENT.replace("RATE", str(rate)).replace("SIZES", "[1]").replace("    lengths:", api), spread=0.0)
    assert isinstance(result.answer, Answer)
    (sentence,) = api_sentences(result, result.answer)
    return result.answer, sentence


FULL_USD_PER_MTOK = DEVICE_USD / (PER_DEVICE * 0.5 * HOURS * 3600 * 1280 / 1e6)
"""Cost per million tokens of one device that carries its whole rate at the peak, half of it on average."""


def test_an_api_that_costs_less_than_full_devices_is_never_overtaken() -> None:
    """A load of 1% of one device was said to cost the same on an API at 250 times the load; more devices cost more."""
    answer, sentence = rented_with_api(0.01 * PER_DEVICE, 0.8 * FULL_USD_PER_MTOK)
    even = answer.api_break_even
    assert even is not None
    assert even.load_factor == even.compared_factor == pytest.approx(100)
    assert sentence.endswith("the API costs less up to 100 times this load, the largest compared.")


@pytest.mark.parametrize("dearer", [1.5, 2.0, 4.0])
def test_the_load_up_to_which_an_api_costs_less_is_counted_in_whole_devices(dearer: float) -> None:
    answer, sentence = rented_with_api(0.2 * PER_DEVICE, dearer * FULL_USD_PER_MTOK)
    loads = [0.2 * number / 1000 for number in range(1, 100_000)]
    last = max(load for load in loads if dearer * load < ceil(load) + 1)
    assert answer.api_break_even is not None
    assert answer.api_break_even.load_factor * 0.2 == pytest.approx(last, rel=0.021)
    assert sentence.endswith("times this load, and a resized fleet costs less above.")
