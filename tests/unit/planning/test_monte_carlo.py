"""How sure an answer is follows from how wide its inputs are, and from nothing else."""

from dataclasses import replace

import pytest

from penstock.planning.doubt.knobs import InputWorld, knobs_of
from penstock.planning.doubt.monte_carlo import Confidence, Span, draw_confidence, widened
from penstock.planning.doubt.sensitivity import Judge
from penstock.planning.make import Answer, PlanResult, capacity_spreads
from small_plans import TWO_PARTS, solved

EXACT = TWO_PARTS.replace("{value: 15000, low: 12000, high: 18000}", "15000").replace(
    "{value: 32000, low: 24000, high: 36000}", "32000"
)


def priced(low: int, high: int) -> str:
    return EXACT.replace("buy_usd: 32000", f"buy_usd: {{value: 32000, low: {low}, high: {high}}}")


def answer_of(result: PlanResult) -> Answer:
    assert isinstance(result.answer, Answer)
    return result.answer


def drawn(result: PlanResult, *, seed: int = 0, draws: int = 2000) -> Confidence:
    """Draw again; the fleets are those of the result."""
    knobs = knobs_of(result.resolved, capacity_spreads(result.candidates))
    world = InputWorld(resolved=result.resolved)
    return draw_confidence(answer_of(result).family, world, result.candidates, knobs, seed=seed, draws=draws)


def width(span: Span) -> float:
    return span.high - span.low


@pytest.fixture(scope="module")
def exact() -> PlanResult:
    return solved(EXACT, spread=0.0)


@pytest.fixture(scope="module")
def uncertain() -> PlanResult:
    return solved(TWO_PARTS)


def test_where_nothing_is_uncertain_the_winner_is_certain_and_the_saving_is_the_point_estimate(
    exact: PlanResult,
) -> None:
    answer, found = answer_of(exact), drawn(exact)
    judge = Judge(family=answer.family, candidates=exact.candidates, winner="nvidia")
    saving = judge.saving(InputWorld(resolved=exact.resolved), "rate")
    costs = {label: bill.mix.cost_usd for label, bill in answer.by_label.items()}
    assert found.probability == {"amd": 0.0, "mix": 0.0, "nvidia": 1.0}
    assert found.saving_usd is not None
    assert (found.saving_usd.low, found.saving_usd.median, found.saving_usd.high) == pytest.approx((saving,) * 3)
    assert saving == pytest.approx(min(costs["amd"], costs["mix"]) - costs["nvidia"], rel=1e-4)
    assert found.blame == ()
    assert not found.too_close


def test_where_nothing_is_uncertain_no_other_world_is_solved(exact: PlanResult) -> None:
    knobs = knobs_of(exact.resolved, capacity_spreads(exact.candidates))
    family = replace(answer_of(exact).family, of_other_worlds=())
    world = InputWorld(resolved=exact.resolved)
    assert widened(family, world, exact.candidates, knobs, seed=0).of_other_worlds == ()


def test_the_same_seed_draws_the_same_worlds_and_another_seed_others(uncertain: PlanResult) -> None:
    assert drawn(uncertain, seed=3) == drawn(uncertain, seed=3)
    assert drawn(uncertain, seed=3) != drawn(uncertain, seed=4)


def test_a_wider_range_gives_a_wider_span() -> None:
    spans = [drawn(solved(priced(32_000 - by, 32_000 + by), spread=0.0)).cost_usd["nvidia"] for by in (0, 2000, 8000)]
    assert width(spans[0]) == pytest.approx(0)
    assert width(spans[1]) == pytest.approx(width(spans[2]) / 4, rel=0.05)
    assert width(spans[1]) > 0


def test_a_symmetric_price_alone_spans_what_a_triangle_says_and_takes_all_the_blame() -> None:
    result = solved(priced(24_000, 40_000), spread=0.0)
    found = drawn(result, draws=20_000)
    # P10 of a symmetric triangle lies sqrt(0.2) of the way from its low end to its middle.
    half = 8000 * (1 - 0.2**0.5)
    assert width(found.cost_usd["nvidia"]) == pytest.approx(2 * half * _per_dollar_of_price(result), rel=0.03)
    assert found.blame[0].subject == "h200_sxm"
    assert found.blame[0].kind == "price"
    assert found.blame[0].variance_fraction == pytest.approx(1, abs=0.02)


def _per_dollar_of_price(result: PlanResult) -> float:
    """What the winner's bill rises by when a device costs a dollar more: silicon lost and failures bought again."""
    lines = answer_of(result).winner.cost.lines
    finance, years = result.terms.finance, 3
    lost = 1 - finance.sold_fraction(years) * finance.worth_today(years)
    again = 0.04 * finance.paid_years(0, years)
    nodes = sum(line.inputs["nodes"] for line in lines if line.item in {"silicon", "spares"})
    return nodes * 8 * (lost + again)


def test_probabilities_are_of_one_winner_each(uncertain: PlanResult) -> None:
    found = drawn(uncertain)
    assert sum(found.probability.values()) == pytest.approx(1)
    assert all(span.low <= span.median <= span.high for span in found.cost_usd.values())
    assert all(0 <= entry.variance_fraction <= 1 for entry in found.blame)
