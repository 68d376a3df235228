"""The solver's answer is the best one, also where a volume price and a bound meet."""

from math import ceil

import pytest

from penstock.planning.optimizer.milp import Milp
from penstock.planning.optimizer.solved_programs import Optimum

DEVICES, DISCOUNT_FROM, UTILISATION = 8, 200, 0.9
# The scorecard's 800 accelerators: requests/s of an MI325X and of an H200, a node at list and at volume price, people.
ACCELERATORS = [
    (1.7376068392903523, (384394.2044192, 356797.4044192), 1_680_000.0),
    (1.6324800496213538, (495203.4152848, 451299.4152848), 0.0),
]


def two_parts(requests_per_s: float) -> Milp:
    """Two parts bought by the node, cheaper from 200 devices on, with one spare node where any is used."""
    milp = Milp()
    placed = [place(milp, requests_per_s / rate, prices) for rate, prices, _ in ACCELERATORS]
    for bought, most, _, _ in placed:
        levels = []
        for nodes, least in zip(bought, (0, DISCOUNT_FROM), strict=True):
            levels.append(milp.variable(upper=1, whole=True))
            milp.row([(nodes, float(DEVICES)), (levels[-1], -float(most * DEVICES))], at_most=0)
            milp.row([(nodes, float(DEVICES)), (levels[-1], -float(least))], at_least=0)
        milp.row([(level, 1.0) for level in levels], at_most=1)
    milp.row([(share, 1.0) for _, _, share, _ in placed], at_least=1, at_most=1)
    for (_, _, _, used), (_, _, people_usd) in zip(placed, ACCELERATORS, strict=True):
        people = milp.variable(cost=people_usd, upper=1, whole=True)
        milp.row([(people, 1.0), (used, -1.0)], at_least=0)
    return milp


def place(milp: Milp, needed: float, prices: tuple[float, float]) -> tuple[list[int], int, int, int]:
    most = ceil((needed / UTILISATION + 1) / DEVICES) + 1
    bought = [milp.variable(cost=usd, upper=most, whole=True) for usd in prices]
    used, share = milp.variable(upper=1, whole=True), milp.variable(upper=1)
    count = milp.variable(upper=most * DEVICES, whole=True)
    milp.row([(share, needed), (count, -UTILISATION)], at_most=0)
    milp.row([(count, 1.0), *((nodes, -float(DEVICES)) for nodes in bought), (used, float(DEVICES))], at_most=0)
    milp.row([(count, 1.0), (used, -float(most * DEVICES))], at_most=0)
    milp.row([*((nodes, 1.0) for nodes in bought), (used, -1.0)], at_least=0)
    return bought, most, share, used


@pytest.mark.parametrize("requests_per_s", [500, 1000, 1180, 1500])
def test_two_parts_never_cost_more_than_one_of_them_alone(requests_per_s: float) -> None:
    found = two_parts(requests_per_s).solve(gap_fraction=1e-5, search_nodes=1_000)
    assert found is not None
    for rate, (_, volume_usd), people_usd in ACCELERATORS:
        nodes = ceil(ceil(requests_per_s / rate / UTILISATION) / DEVICES) + 1
        assert found.cost <= (nodes * volume_usd + people_usd) * (1 + 1e-5)


def test_the_cheaper_of_two_points_keeps_the_bound_that_was_proven() -> None:
    short, longer = (
        Optimum(values=(), cost=cost, gap_fraction=gap, seconds=1.0) for cost, gap in ((100.0, 0.05), (101.0, 0.01))
    )
    found = longer.or_cheaper(short)
    assert found.cost == 100.0
    assert found.gap_fraction == pytest.approx(1 - 101.0 * 0.99 / 100.0, abs=1e-12)
    assert short.or_cheaper(longer) is short
