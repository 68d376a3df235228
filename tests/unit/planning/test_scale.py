"""Ten models on twenty accelerators and a thousand nodes: it solves, and says how good the answer is."""

import random
from dataclasses import replace

from penstock.planning.optimizer.cheapest_mix import cheapest
from penstock.planning.optimizer.problem import Demand, Offer, Problem, ReplicaKind, Tier


def large_problem(models: int, parts: int, buckets: int, requests_per_s: float) -> Problem:
    """Parts of two vendors with volume discounts and rent; each model in three splits on each of them."""
    drawn = random.Random(1)
    offers = tuple(
        Offer(
            accelerator=f"part{number}",
            vendor="amd" if number % 2 else "nvidia",
            site="site",
            devices=8,
            node_watts=10_000,
            tiers=(
                Tier(min_devices=0, node_usd=(drawn.uniform(2e5, 5e5),)),
                Tier(min_devices=200, node_usd=(drawn.uniform(1.8e5, 4e5),)),
            ),
            rent_usd=(drawn.uniform(4e5, 8e5),),
        )
        for number in range(parts)
    )
    replicas = []
    for number in range(parts):
        for model in range(models):
            speed = drawn.uniform(0.5, 2)
            for power in range(3):
                rates = {b: speed * 2**power * drawn.uniform(0.8, 1.1) / (b + 1) * 5 for b in range(buckets)}
                replicas.append(
                    ReplicaKind(
                        id=f"part{number} model{model} tp{2**power}",
                        accelerator=f"part{number}",
                        workload=f"model{model}",
                        devices=2**power,
                        requests_per_s=rates,
                    )
                )
    demands = tuple(
        Demand(
            key=(f"model{model}", bucket),
            requests_per_s=(requests_per_s / models / buckets * drawn.uniform(0.5, 1.5) / (bucket + 1),),
            tokens=1000 * (bucket + 1),
        )
        for model in range(models)
        for bucket in range(buckets)
    )
    return Problem(
        periods=1,
        offers=offers,
        replicas=tuple(replicas),
        demands=demands,
        vendor_usd={"amd": (1.5e6,)},
        spare_nodes=1,
        utilisation_fraction=0.9,
    )


def test_ten_models_on_twenty_parts_and_a_thousand_nodes_solve_within_half_a_percent() -> None:
    found = cheapest(large_problem(10, 20, 4, 68_000), gap_fraction=5e-3, search_nodes=20_000)
    assert found is not None
    assert 900 < sum(pool.nodes for pool in found.pools) < 1200
    assert found.gap_fraction <= 5e-3


def test_effort_is_counted_in_nodes_so_that_a_busy_machine_answers_the_same() -> None:
    problem = large_problem(3, 6, 2, 5_000)
    first, again, more = (cheapest(problem, gap_fraction=0.0, search_nodes=nodes) for nodes in (2, 2, 400))
    assert first is not None
    assert again is not None
    assert more is not None
    assert first.gap_fraction > 0
    assert replace(first, seconds=0) == replace(again, seconds=0)
    assert more.gap_fraction < first.gap_fraction
