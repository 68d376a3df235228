"""What a buyer reads first agrees with the draws; what would settle a close call follows from what is blamed."""

from dataclasses import replace

import pytest

from penstock.fleet import Deployment
from penstock.performance.prediction.predict_deployment import Range
from penstock.planning.candidates.replica_capacity import Capacity, RateCurve
from penstock.planning.plan_result import Answer, PlanResult
from penstock.planning.spec.plan_types import Bucket
from penstock.planning.uncertainty.monte_carlo import Blame, Span
from penstock.planning.uncertainty.uncertain_inputs import KnobKind
from penstock.planning.uncertainty.verdict import judge
from penstock.report.plan.page import plan_html
from penstock.report.plan.sentences import (
    headline,
    label_name,
    mix_sentence,
    near_sentence,
    small_share_sentence,
    sureness,
)
from penstock.workload.slo import Slo
from small_plans import PLAIN, TWO_PARTS, solved


@pytest.fixture(scope="module")
def result() -> PlanResult:
    return solved(TWO_PARTS)


@pytest.mark.parametrize(
    ("kind", "subject", "expected"),
    [
        ("price", "mi300x", "get a written quote for mi300x, per device"),
        ("rent", "mi300x", "get a written quote for mi300x, per device-hour"),
        ("throughput", "mi300x", "benchmark llama-3.1-8b on mi300x, tp1, bf16 weights, at your lengths and SLO"),
        ("throughput", "b200_sxm", "benchmark b200_sxm on your own workload"),
    ],
)
def test_a_price_asks_for_a_quote_and_a_throughput_for_a_benchmark(
    result: PlanResult, kind: KnobKind, subject: str, expected: str
) -> None:
    answer = result.answer
    assert isinstance(answer, Answer)
    blamed = Blame(kind=kind, id="x", subject=subject, name="called anything", variance_fraction=1.0)
    verdict = judge(answer.family, replace(answer.confidence, blame=(blamed,)), result.candidates)
    assert verdict.measure == (expected,)


def drawn(result: PlanResult, probability: dict[str, float]) -> Answer:
    """Return the answer as if the draws had said this."""
    answer = result.answer
    assert isinstance(answer, Answer)
    span = Span(low=1e6, median=1.5e6, high=2e6)
    confidence = replace(answer.confidence, probability=probability, fleet_usd=span)
    verdict = judge(answer.family, confidence, result.candidates)
    return replace(answer, confidence=confidence, verdict=verdict, people=None)


def test_what_is_cheapest_in_most_draws_is_named_first_where_the_estimates_favour_another(result: PlanResult) -> None:
    """Attack: "Too close to call: a mix ... cheapest in 9%" and never a word of the vendor that was it in 77%."""
    answer = drawn(result, {"amd": 0.77, "mix": 0.14, "nvidia": 0.09})
    assert (answer.verdict.winner, answer.verdict.likeliest) == ("nvidia", "amd")
    assert answer.verdict.outcome == "too close to call"
    assert sureness(answer) == "open"
    said = headline(answer)
    assert said.startswith("Probably AMD: cheapest in 77% of 4,000 draws, a mix in 14%, NVIDIA in 9%. ")
    assert "at its estimate NVIDIA is cheapest" in said
    page = plan_html(replace(result, answer=answer))
    assert "AMD is the cheapest in 77% of cases and NVIDIA in 9%" in page


def test_a_coin_toss_is_too_close_to_call_and_nothing_is_probable(result: PlanResult) -> None:
    """Attack: "Probably h100: cheapest in 50% of 4,000 draws, h200 in 50%", against the estimate."""
    answer = drawn(result, {"amd": 0.51, "mix": 0.0, "nvidia": 0.49})
    assert answer.verdict.likeliest == "nvidia"
    assert headline(answer).startswith("Too close to call: NVIDIA at ")
    assert headline(answer).endswith("NVIDIA is cheapest in 49% of 4,000 draws, AMD in 51%.")


def test_a_cost_stands_beside_what_it_is_in_the_draws(result: PlanResult) -> None:
    """Attack: a headline cost below the P10 of its own draws, without a word."""
    answer = drawn(result, {"nvidia": 0.95, "amd": 0.05, "mix": 0.0})
    assert "(P10-P90 $1.00M to $2.00M, median $1.50M)" in headline(answer)
    assert "$1.00M to $2.00M (P10-P90), median $1.50M" in plan_html(replace(result, answer=answer))
    assert answer.verdict.cost_usd == Span(low=1e6, median=1.5e6, high=2e6)
    assert answer.verdict.outcome == "wins"
    low = replace(answer, verdict=replace(answer.verdict, cost_usd=Span(low=1e9, median=2e9, high=3e9)))
    assert "optimistic" in plan_html(replace(result, answer=low))


@pytest.mark.parametrize(("lost", "outcome"), [(0.09, "wins"), (0.1, "too close to call"), (0.5, "too close to call")])
def test_a_call_is_close_once_another_kind_is_cheapest_in_a_tenth_of_the_draws(
    result: PlanResult, lost: float, outcome: str
) -> None:
    assert drawn(result, {"nvidia": 1 - lost, "amd": lost, "mix": 0.0}).verdict.outcome == outcome


def test_a_mix_is_said_to_be_one_only_as_long_as_its_vendors_always_carry_what_counts(result: PlanResult) -> None:
    answer = result.answer
    assert isinstance(answer, Answer)
    assert mix_sentence(result, answer) == "A mix has two or more vendors, each with at least 10% of the load"
    bill = answer.by_label["mix"]
    first, *rest = bill.mix.pools
    in_turn = replace(bill, mix=replace(bill.mix, pools=(replace(first, load={}), *rest)))
    one_at_a_time = replace(answer, by_label={**answer.by_label, "mix": in_turn})
    said = mix_sentence(result, one_at_a_time)
    assert said == f"In the mix shown, {label_name(first.offer.vendor)} carries nothing"
    assert small_share_sentence(result, one_at_a_time) == ""
    won = replace(one_at_a_time, winner=in_turn)
    assert small_share_sentence(result, won) == said
    demands = tuple(replace(each, requests_per_s=each.requests_per_s * 2) for each in result.problem.demands)
    grows = replace(result, problem=replace(result.problem, periods=2, demands=demands))
    with_second = replace(bill.mix, pools=(*in_turn.mix.pools, replace(first, period=1), replace(rest[0], period=1)))
    grown = replace(one_at_a_time, by_label={**answer.by_label, "mix": replace(bill, mix=with_second)})
    assert mix_sentence(grows, grown) == f"{said} in step 1"


LIMITED = """
  - {id: mi300x, buy_usd: 15000, node_kw: 10, tp: [1], max_nodes: 1}
  - {id: h200, buy_usd: 15000, node_kw: 10, tp: [1], max_nodes: 2}
sites:"""


def limited(spread: float) -> PlanResult:
    """Two nodes of one vendor just miss and three of two vendors are plenty; no more can be had."""

    def just_missing(deployment: Deployment, bucket: Bucket, slo: Slo) -> Capacity:
        # 50 requests/s at 80% of capacity need 62.5: 16 x 3.9 on two nodes carry 62.4, and more half the time.
        assert bucket.context_tokens > 0
        assert slo.attainment_fraction > 0
        rate = 3.9 * deployment.parallelism.devices
        seen = Range(value=rate, low=rate * (1 - spread), high=rate * (1 + spread))
        return Capacity(curve=RateCurve.through(seen), tier="calibrated", grounds="made up", prefill_fraction=0.25)

    head, rest = PLAIN.split("accelerators:")
    text = f"{head}accelerators:{LIMITED}{rest.split('sites:')[1]}"
    text = text.replace("requests_per_s: 40", "requests_per_s: 50").replace("spare_nodes: 1", "spare_nodes: 0")
    return solved(text, capacity_of=just_missing)


def test_a_mix_whose_pools_carry_it_together_is_enough_in_every_draw() -> None:
    """Three nodes carry 93.6 where 62.5 is asked, in whichever of them a world is slower."""
    answer = limited(0.1).answer
    assert isinstance(answer, Answer)
    assert sum(answer.confidence.probability.values()) == pytest.approx(1)
    assert answer.confidence.enough_fraction == 1


def test_one_kind_of_fleet_as_estimated_is_not_the_only_choice_where_draws_have_another() -> None:
    """Attack: "a mix is the only choice" beside draws in which one vendor alone was enough in 35%."""
    result = limited(0.4)
    answer = result.answer
    assert isinstance(answer, Answer)
    assert set(answer.by_label) == {"mix"}
    alone = answer.confidence.probability["nvidia"]
    assert 0.1 < alone < 0.9
    assert answer.verdict.outcome == "too close to call"
    assert f"NVIDIA in {alone:.0%}" in headline(answer) or "NVIDIA: cheapest in" in headline(answer)
    nothing = 1 - sum(answer.confidence.probability.values())
    assert 0.01 < nothing < 0.9, "in some worlds no fleet, resized, keeps to its nodes: nobody wins those"
    assert f"no compared fleet meets demand in {nothing:.0%}" in headline(answer)
    assert "no other fleet meets demand" in plan_html(result)
    assert "only choice" not in headline(answer)
    assert answer.verdict.measure
    assert "only one kind of fleet" not in plan_html(result)


def test_a_choice_that_a_hundredth_changes_is_said_to_be_on_a_knife_s_edge(result: PlanResult) -> None:
    answer = result.answer
    assert isinstance(answer, Answer)
    first = answer.flips[0]
    for at, near in ((first.current * 1.009, (first.name,)), (first.current * 1.02, ())):
        verdict = judge(answer.family, answer.confidence, result.candidates, [replace(first, at=at)])
        assert verdict.near == near
    costs = answer.family.winner.cost_usd
    close = replace(answer.family.by_label["amd"], cost_usd=costs * 1.009)
    family = replace(answer.family, runners_up=(close,))
    assert judge(family, answer.confidence, result.candidates).near == ("amd",)
    edge = replace(answer, verdict=replace(answer.verdict, near=("h200_sxm throughput", "amd")))
    said = "a change of 1% or less makes another fleet cheapest (h200_sxm throughput); AMD costs at most 1% more."
    assert near_sentence(edge) == f"Nearly a tie: {said}"
    assert near_sentence(edge) in plan_html(replace(result, answer=edge))
