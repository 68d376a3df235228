"""`plan` and `simulate --capacity` give the same P10, P50 and P90 for the same deployment.

`make capacities` compares all deployments of `tools/check_capacities.py`.
"""

import pytest
from check_capacities import CASES, MAX_DIFFERENCE, Case, difference, rates_of


@pytest.mark.parametrize("case", CASES[:3], ids=str)
def test_plan_and_simulate_find_the_same_rates(case: Case) -> None:
    planned, simulated = rates_of(case)
    assert difference(planned, simulated) <= MAX_DIFFERENCE


def test_a_deployment_whose_slower_steps_miss_the_slo_sustains_nothing_at_its_p10() -> None:
    planned, _ = rates_of(CASES[0])
    assert planned.low == 0
    assert planned.value > 0
