"""The fleet a plan leaves behind is the one it paid for."""

from collections.abc import Callable

import pytest

from penstock.fleet.fleet_file import read_fleet, write_fleet
from penstock.fleet.pools import Fleet
from penstock.planning.plan_result import Answer, PlanResult
from penstock.planning.planned_fleet import planned_fleet
from small_plans import TWO_PARTS, solved

HOURS = 8760.0


def left_behind(result: PlanResult) -> Fleet:
    assert isinstance(result.answer, Answer)
    return planned_fleet(result, result.answer)


@pytest.fixture(scope="module")
def result() -> PlanResult:
    return solved(TWO_PARTS)


def test_every_length_is_sent_to_pools_that_exist_on_nodes_that_hold_them(result: PlanResult) -> None:
    fleet = left_behind(result)
    assert [(route.input_tokens, route.output_tokens) for route in fleet.routes] == [(1024, 256), (8192, 512)]
    assert [route.peak_requests_per_s for route in fleet.routes] == pytest.approx([40 * 0.6, 40 * 0.4])
    for route in fleet.routes:
        assert sum(route.weights.values()) == pytest.approx(1, abs=1e-6)
    (group,) = fleet.nodes
    assert sum(pool.replicas * pool.devices for pool in fleet.pools) <= (group.nodes - group.spare_nodes) * 8
    assert {pool.role for pool in fleet.pools} == {"both"}


def test_the_replicas_and_the_nodes_left_over_cost_the_bill_without_the_people(result: PlanResult) -> None:
    answer = result.answer
    assert isinstance(answer, Answer)
    (pool,) = left_behind(result).pools
    (group,) = left_behind(result).nodes
    hours = result.terms.finance.paid_years(0.0, 3.0) * HOURS
    assert pool.usd_per_hour is not None
    nodes_usd = pool.usd_per_hour * 8 * group.nodes * hours
    people_usd = sum(line.usd for line in answer.winner.cost.lines if line.label == "nvidia stack")
    assert nodes_usd + people_usd == pytest.approx(answer.winner.cost.total_usd, rel=1e-6)


def test_a_rented_replica_costs_its_devices_by_the_hour() -> None:
    rented = TWO_PARTS.replace("acquire: [buy]", "acquire: [rent]").replace(
        "buy_usd: {value: 15000, low: 12000, high: 18000}", "rent_usd_per_hour: 2"
    )
    rented = rented.replace("buy_usd: {value: 32000, low: 24000, high: 36000}", "rent_usd_per_hour: 9")
    (pool,) = left_behind(solved(rented)).pools
    assert pool.accelerator == "mi300x"
    assert pool.usd_per_hour == pytest.approx(pool.devices * 2)


def test_the_file(result: PlanResult, golden: Callable[[str, str], None]) -> None:
    fleet = left_behind(result)
    golden("fleet_two_parts.yaml", write_fleet(fleet))
    assert read_fleet(write_fleet(fleet), "fleet.yaml") == fleet
