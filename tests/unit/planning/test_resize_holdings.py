"""A fleet in its own world costs what its bill says, however its nodes are had."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.planning.optimizer.acquire_nodes import acquire_nodes
from penstock.planning.optimizer.problem import DEVICE, Kept, Offer, PoolPeriod
from penstock.planning.optimizer.resize_fleet import one_world, resized_usd
from penstock.planning.plan_result import Answer
from small_plans import PLAIN, solved

GROWING = PLAIN.replace("mean_load: 50%", "mean_load: 50%\n    growth_per_year: 60%")
OWNED = "\nowned: [{id: h200, nodes: 4, age_years: 1, resale_usd: 120000}]\n"
TERMS = "contracts: [{months: 12, usd_per_hour: 2.0}, {months: 36, usd_per_hour: 1.6}], node_kw: 10, tp"


@pytest.mark.parametrize("text", [PLAIN, GROWING, GROWING + OWNED, GROWING.replace("node_kw: 10, tp", TERMS) + OWNED])
def test_resized_in_its_own_world_a_fleet_costs_its_bill_or_a_spare_more(text: str) -> None:
    result = solved(text)
    assert isinstance(result.answer, Answer)
    for mix in result.answer.family.fleets:
        usd = float(resized_usd(mix, result.problem, one_world())[0])
        assert np.isfinite(usd)
        assert usd >= mix.cost_usd * (1 - 1e-6)
        assert usd <= mix.cost_usd * 1.1


def test_a_kept_fleet_that_needs_more_takes_it_as_the_plan_allows() -> None:
    result = solved(PLAIN + OWNED + "acquire: [buy]\n")
    assert isinstance(result.answer, Answer)
    kept = [mix for mix in result.answer.family.fleets if any(pool.kept_nodes for pool in mix.pools)]
    assert kept
    slower = one_world({"h200_sxm": 0.3})
    for mix in kept:
        usd = float(resized_usd(mix, result.problem, slower)[0])
        assert np.isfinite(usd)
        assert usd > mix.cost_usd


@given(planned=st.integers(1, 4), needed=st.lists(st.integers(0, 4), min_size=1, max_size=4))
def test_owned_devices_that_cannot_be_replaced_are_kept_until_they_are_needed(planned: int, needed: list[int]) -> None:
    """A fleet that needs fewer devices at first sold them, lacked them later, and counted as impossible."""
    kept = Kept(nodes=4, node_usd=(1.0,) * len(needed))
    offer = Offer(accelerator="h100", vendor="nvidia", site="s", devices=1, node_watts=1.0, unit=DEVICE, kept=kept)
    pools = [
        PoolPeriod(
            offer=offer,
            period=at,
            owned_nodes=0,
            rented_nodes=0,
            spare_nodes=0,
            replicas={},
            load={},
            kept_nodes=planned,
        )
        for at in range(len(needed))
    ]
    held = acquire_nodes(offer, pools, {at: np.array([float(count)]) for at, count in enumerate(needed)}, 1)
    assert not held.lacking.any()
    counts = [int(held.at_site[at][0]) for at in range(len(needed))]
    assert all(count >= asked for count, asked in zip(counts, needed, strict=True))
    assert counts == sorted(counts, reverse=True), "a device that was sold does not come back"
    assert counts == [max(needed[at:]) for at in range(len(needed))], "and none is kept for nothing"
