"""A fleet's bill by hand: what was bought, rented and hired, who was busy, and what a token costs."""

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from penstock.economics.bill_line import Item, total_usd
from penstock.planning.optimizer.fleet_bill import FleetCost, bill
from penstock.planning.optimizer.node_costs import terms_of
from penstock.planning.optimizer.problem import NODE, Mix, PoolPeriod
from penstock.planning.plan_result import PlanResult
from small_plans import PLAIN, solved

YEARS, HOURS = 3, 8760
SECONDS = HOURS * 3600
MI300X, H200 = "chat mi300x tp1 bf16", "chat h200_sxm tp1 bf16"
RATES = {"mi300x": 4.0 * 1000 / 1280, "h200_sxm": 6.0 * 1000 / 1280}
"""Requests a second of one device, as `small_plans.capacities` has them for 1,280 tokens."""


@dataclass(frozen=True)
class Pool:
    """Nodes of one accelerator, by hand."""

    accelerator: str
    owned: int = 0
    rented: int = 0
    spare: int = 0
    share: float = 1.0


@pytest.fixture(scope="module")
def result() -> PlanResult:
    return solved(PLAIN)


def fleet(result: PlanResult, *pools: Pool, level: int = 0) -> Mix:
    offers = {offer.accelerator: offer for offer in result.problem.offers if offer.unit == NODE}
    replicas = {"mi300x": MI300X, "h200_sxm": H200}
    return Mix(
        cost_usd=0.0,
        gap_fraction=0.0,
        seconds=0.0,
        pools=tuple(
            PoolPeriod(
                offer=offers[pool.accelerator],
                period=0,
                owned_nodes=pool.owned,
                rented_nodes=pool.rented,
                spare_nodes=pool.spare,
                replicas={replicas[pool.accelerator]: 8 * (pool.owned + pool.rented - pool.spare)}
                if pool.share
                else {},
                load={(replicas[pool.accelerator], ("chat", 0)): pool.share} if pool.share else {},
            )
            for pool in pools
        ),
        purchases={(pool.accelerator, "main", NODE, level, 0): pool.owned for pool in pools if pool.owned},
    )


def billed(result: PlanResult, *pools: Pool, level: int = 0) -> FleetCost:
    return bill(fleet(result, *pools, level=level), terms_of(result.resolved), result.candidates)


def node_usd(result: PlanResult, accelerator: str, level: int = 0) -> float:
    offer = next(entry for entry in result.problem.offers if entry.accelerator == accelerator)
    return offer.tiers[level].node_usd[0]


def by_item(cost: FleetCost) -> Mapping[Item, float]:
    found: dict[Item, float] = {}
    for line in cost.lines:
        found[line.item] = found.get(line.item, 0.0) + line.usd
    return found


def test_owned_nodes_the_spare_and_the_people_line_by_line(result: PlanResult) -> None:
    cost = billed(result, Pool("mi300x", owned=3, spare=1))
    lost, average_kw = 3 / 4, 10 * (0.4 + 0.6 * 0.5 * 0.8)
    power = 2 * average_kw * HOURS * 0.1 * YEARS
    assert by_item(cost) == {
        Item.SILICON: pytest.approx(2 * 8 * 15_000 * lost),
        Item.HOST: pytest.approx(2 * 70_000 * lost),
        Item.NETWORK: pytest.approx(2 * 8 * 2_000 * lost),
        Item.POWER: pytest.approx(power),
        Item.COOLING: pytest.approx(power * 0.2),
        Item.HOSTING: pytest.approx(2 * 10 * 200 * 12 * YEARS),
        Item.SUPPORT: pytest.approx(2 * 8 * 100 * YEARS),
        Item.FAILURES: pytest.approx(2 * 8 * 0.05 * 15_000 * YEARS),
        Item.SPARES: pytest.approx(node_usd(result, "mi300x")),
        Item.SOFTWARE: pytest.approx((2 * 8 / 1000 + 2) * 300_000 * YEARS),
    }
    assert cost.total_usd == pytest.approx(total_usd(cost.lines))
    assert cost.total_usd == pytest.approx(3 * node_usd(result, "mi300x") + 2 * 300_000 * YEARS)


def test_nodes_at_a_discount_are_billed_at_it(result: PlanResult) -> None:
    cost = billed(result, Pool("mi300x", owned=9, spare=1), level=1)
    assert cost.total_usd == pytest.approx(9 * node_usd(result, "mi300x", level=1) + 2 * 300_000 * YEARS)


def test_rented_nodes_are_their_hours_and_the_one_that_stands_by_is_a_spare(result: PlanResult) -> None:
    hours = 8 * 3 * HOURS * YEARS
    assert by_item(billed(result, Pool("h200_sxm", rented=3, spare=1))) == {
        Item.RENT: pytest.approx(2 * hours),
        Item.SPARES: pytest.approx(hours),
        Item.SOFTWARE: 0,
    }


def test_an_owned_node_stands_by_before_a_rented_one(result: PlanResult) -> None:
    items = by_item(billed(result, Pool("h200_sxm", owned=1, rented=2, spare=1)))
    assert items[Item.SPARES] == pytest.approx(node_usd(result, "h200_sxm"))
    assert items[Item.RENT] == pytest.approx(2 * 8 * 3 * HOURS * YEARS)


def test_people_are_paid_where_their_vendor_serves_and_only_there(result: PlanResult) -> None:
    both = billed(result, Pool("mi300x", owned=2, share=0.5), Pool("h200_sxm", owned=2, share=0.5))
    idle = billed(result, Pool("mi300x", owned=2, share=0.0), Pool("h200_sxm", owned=2))
    assert both.total_usd - idle.total_usd == pytest.approx(2 * 300_000 * YEARS)


def test_busy_is_the_mean_rate_over_what_a_device_carries_and_idle_pays_for_the_rest(result: PlanResult) -> None:
    cost = billed(result, Pool("mi300x", owned=3, spare=1))
    busy = 40 * 0.5 / RATES["mi300x"] / (3 * 8)
    assert cost.busy_fraction == pytest.approx(busy)
    assert cost.idle_usd == pytest.approx(cost.total_usd * (1 - busy))


def test_a_token_pays_its_share_of_everything(result: PlanResult) -> None:
    cost = billed(result, Pool("mi300x", owned=3, spare=1))
    requests = 40 * 0.5 * SECONDS * YEARS
    (chat,) = cost.workloads
    assert (chat.input_tokens, chat.output_tokens) == pytest.approx((requests * 1024, requests * 256))
    assert chat.usd == pytest.approx(cost.total_usd)
    assert chat.price.blended_usd_per_mtok == pytest.approx(cost.total_usd / (requests * 1280) * 1e6)
    assert chat.price.input_usd_per_mtok == pytest.approx(0.25 * cost.total_usd / (requests * 1024) * 1e6)
    assert chat.price.output_usd_per_mtok == pytest.approx(0.75 * cost.total_usd / (requests * 256) * 1e6)


def test_a_rule_that_does_not_know_prefill_prices_no_side_alone(result: PlanResult) -> None:
    mix = fleet(result, Pool("mi300x", owned=3))
    (chat,) = bill(mix, terms_of(result.resolved), result.candidates, rule=lambda *_: None).workloads
    assert chat.price.input_usd_per_mtok is None
    assert chat.price.blended_usd_per_mtok > 0
