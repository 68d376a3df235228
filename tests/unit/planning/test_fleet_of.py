"""The fleet a plan leaves behind is the one it paid for."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock.checkpoint import open_checkpoint
from penstock.errors import UsageError
from penstock.fleet.engines import NEWEST
from penstock.fleet.fleet_file import read_fleet, write_fleet
from penstock.fleet.pools import Fleet
from penstock.planning.optimizer.problem import DEVICE
from penstock.planning.plan_result import Answer, PlanResult
from penstock.planning.planned_fleet import planned_fleet
from penstock.planning.pool_launches import launched_fleet
from penstock.preflight import load_knowledge
from penstock.preflight.facts.subject import subject_of
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


def test_owned_devices_sit_together_in_a_node(result: PlanResult) -> None:
    """Attack: a tp2 replica on three owned devices had `node_devices: 1`."""
    answer = result.answer
    assert isinstance(answer, Answer)
    mix = answer.winner.mix
    offer = replace(mix.pools[0].offer, unit=DEVICE, devices=1, max_replica_devices=4)
    for kept, group in ((3, (1, 3)), (4, (1, 4)), (9, (3, 4))):
        single = replace(mix.pools[0], offer=offer, kept_nodes=kept, owned_nodes=0, spare_nodes=1)
        few = replace(answer, winner=replace(answer.winner, mix=replace(mix, pools=(single,))))
        (found,) = left_behind(replace(result, answer=few)).nodes
        assert (found.nodes, found.node_devices, found.spare_nodes) == (*group, 0)


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


def test_a_fleet_that_grows_is_described_period_by_period() -> None:
    grows = TWO_PARTS.replace("    lengths:", "    growth_per_year: 100%\n    lengths:", 1)
    result = solved(grows + "step_months: 12\n")
    answer = result.answer
    assert isinstance(answer, Answer)
    fleets = [planned_fleet(result, answer, period) for period in range(result.problem.periods)]
    rates = [sum(route.peak_requests_per_s for route in fleet.routes) for fleet in fleets]
    assert rates == pytest.approx([rates[0] * 2**year for year in range(3)])
    assert [sum(pool.replicas for pool in fleet.pools) for fleet in fleets] == sorted(
        sum(pool.replicas for pool in fleet.pools) for fleet in fleets
    )
    notes = [fleet.note or "" for fleet in fleets]
    assert "period 1 of 3, from 2026-12-01 to 2027-12-01; deploy this one first" in notes[0]
    assert "period 3 of 3, from 2028-12-01, the last" in notes[2]
    assert all("hold with `penstock route`" in note for note in notes)


def test_a_file_says_the_version_image_and_launch_of_every_engine(result: PlanResult) -> None:
    answer = result.answer
    assert isinstance(answer, Answer)
    fleet = launched_fleet(result, answer, 0, lambda name: subject_of(open_checkpoint(name), name), load_knowledge())
    (pool,) = fleet.pools
    assert pool.engine.version == str(NEWEST["vllm"])
    assert pool.engine.image is not None
    assert pool.engine.image.startswith("vllm/vllm-openai")
    assert pool.engine.launch is not None
    assert pool.engine.launch.startswith("vllm serve meta-llama/Llama-3.1-8B-Instruct")
    assert read_fleet(write_fleet(fleet), "fleet.yaml") == fleet
    with pytest.raises(UsageError, match="cannot be printed"):
        replace(pool.engine, launch="vllm serve\x07")
