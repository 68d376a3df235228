"""A vendor without a fleet is explained, and the smallest decrease of demand that saves a node is stated."""

import pytest

from penstock.planning.optimizer.cheapest_mix import cheapest
from penstock.planning.optimizer.problem import Demand, Offer, Problem, ReplicaKind, Tier
from penstock.planning.uncertainty.scenarios import missing_vendors, next_saving

NODE_USD = 100_000.0


def problem_of(rate: float, site_watts: float) -> Problem:
    """One node of each vendor carries 10 requests per second; the AMD node draws more power."""
    offers = tuple(
        Offer(
            accelerator=name,
            vendor=vendor,
            site="main",
            devices=1,
            node_watts=watts,
            tiers=(Tier(min_devices=0, node_usd=(NODE_USD,)),),
        )
        for name, vendor, watts in (("red", "amd", 16_350.0), ("green", "nvidia", 14_000.0))
    )
    kinds = tuple(
        ReplicaKind(id=name, accelerator=name, workload="chat", devices=1, requests_per_s={0: 10.0})
        for name in ("red", "green")
    )
    demand = Demand(key=("chat", 0), requests_per_s=(rate,), tokens=1000)
    return Problem(periods=1, offers=offers, replicas=kinds, demands=(demand,), site_watts={"main": site_watts})


def test_a_vendor_without_a_fleet_is_named_with_the_rule_and_the_excess() -> None:
    # Four AMD nodes draw 65.4 kW, four NVIDIA nodes 56 kW.
    tight = problem_of(40.0, 60_000.0)
    assert missing_vendors(tight, {"nvidia"}) == {
        "amd": ("without the sites' power caps a fleet exists: the cheapest draws 65 kW at main (60 allowed)",)
    }
    assert missing_vendors(tight, {"nvidia", "amd"}) == {}


@pytest.mark.parametrize(("rate", "less"), [(41.0, 0.03), (43.0, 0.07), (49.0, 0.19)])
def test_the_smallest_decrease_of_demand_that_saves_a_node_is_found(rate: float, less: float) -> None:
    problem = problem_of(rate, 1e6)
    mix = cheapest(problem)
    assert mix is not None
    saving = next_saving(problem, mix)
    assert saving is not None
    assert saving.usd == pytest.approx(NODE_USD)
    assert saving.less_fraction == pytest.approx(less)
    assert rate * (1 - saving.less_fraction) <= 40.0 < rate * (1 - saving.less_fraction + 0.01)
