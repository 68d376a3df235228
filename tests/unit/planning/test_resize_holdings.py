"""A fleet in its own world costs what its bill says, however its nodes are had."""

import numpy as np
import pytest

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
