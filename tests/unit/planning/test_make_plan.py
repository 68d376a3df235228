"""A plan from file to answer, with made-up capacities: what it costs, what changes it, and what stands in the way."""

import re
from dataclasses import replace
from math import isclose

import pytest

from penstock.errors import UsageError
from penstock.fleet import Deployment
from penstock.planning.candidates.replica_capacity import Capacity
from penstock.planning.optimizer.competing_fleets import NOTHING
from penstock.planning.plan_result import Answer, NoFleet, PlanResult
from penstock.planning.spec.plan_types import Bucket
from penstock.planning.verification.serving_fleet import Check, ServingFleet
from penstock.report.plan.flips import flip_sentence
from penstock.report.plan.scenario_sentences import scenario_sentence
from penstock.workload.slo import Slo
from small_plans import PEOPLE, TWO_PARTS, capacities, solved


def answer_of(result: PlanResult) -> Answer:
    assert isinstance(result.answer, Answer)
    return result.answer


def test_the_bill_is_what_the_solver_minimised() -> None:
    answer = answer_of(solved(TWO_PARTS))
    for bill in (answer.winner, *answer.runners_up, *answer.by_label.values()):
        assert isclose(bill.cost.total_usd, bill.mix.cost_usd, rel_tol=1e-9)
        assert isclose(sum(line.usd for line in bill.cost.lines), bill.cost.total_usd, rel_tol=1e-12)
        assert isclose(bill.cost.waterfall.all_in_usd, bill.cost.total_usd, rel_tol=1e-9)
        assert 0 < bill.cost.busy_fraction < 1


def test_tokens_pay_the_whole_bill() -> None:
    (chat,) = answer_of(solved(TWO_PARTS)).winner.cost.workloads
    assert chat.price.input_usd_per_mtok is not None
    assert chat.price.output_usd_per_mtok is not None
    paid = chat.price.input_usd_per_mtok * chat.input_tokens + chat.price.output_usd_per_mtok * chat.output_tokens
    assert isclose(paid / 1e6, chat.usd, rel_tol=1e-9)


def test_two_workloads_share_one_bill() -> None:
    second = """  - name: batch
    model: llama-3.1-8b
    slo: tpot=200ms
    requests_per_s: 5
    lengths: [{input: 2k, output: 1k}]
accelerators:"""
    answer = answer_of(solved(TWO_PARTS.replace("accelerators:", second)))
    costs = answer.winner.cost
    assert {entry.workload for entry in costs.workloads} == {"chat", "batch"}
    assert isclose(sum(entry.usd for entry in costs.workloads), costs.total_usd, rel_tol=1e-9)


def test_engineers_decide_at_this_size_and_the_flip_says_where() -> None:
    answer = answer_of(solved(TWO_PARTS, {"mi300x": 6.0, "h200_sxm": 6.0}))
    assert answer.verdict.winner == "nvidia"
    flip = next(flip for flip in answer.flips if flip.name == "extra amd engineers")
    assert flip.side == "below"
    for engineers, winner in ((flip.at * 0.97, "amd"), (flip.at * 1.03, "nvidia")):
        moved = TWO_PARTS.replace(PEOPLE, f"stacks: {{amd: {{engineers: {engineers}}}}}\n")
        assert answer_of(solved(moved, {"mi300x": 6.0, "h200_sxm": 6.0})).verdict.winner == winner


def test_a_price_flip_is_where_solving_again_changes_its_mind() -> None:
    free = TWO_PARTS.replace(PEOPLE, "stacks: {amd: {engineers_per_1000_devices: 0}}\n")
    answer = answer_of(solved(free))
    assert answer.verdict.winner == "amd"
    flip = next(flip for flip in answer.flips if flip.name == "h200_sxm price" and flip.side == "below")
    for price, winner in ((flip.at * 0.97, "nvidia"), (flip.at * 1.03, "amd")):
        moved = free.replace("value: 32000, low: 24000, high: 36000", f"value: {price:.0f}")
        assert answer_of(solved(moved)).verdict.winner == winner


def test_a_win_inside_the_interval_is_too_close_to_call_and_says_what_to_measure() -> None:
    even = TWO_PARTS.replace("value: 32000, low: 24000, high: 36000", "value: 15500, low: 12000, high: 19000")
    even = even.replace(PEOPLE, "stacks: {amd: {engineers_per_1000_devices: 0}}\n")
    answer = answer_of(solved(even, {"mi300x": 4.0, "h200_sxm": 4.0}, spread=0.4))
    assert answer.verdict.outcome == "too close to call"
    assert answer.confidence.saving_usd is not None
    assert answer.confidence.saving_usd.low <= 0
    assert answer.verdict.measure
    assert "benchmark llama-3.1-8b on" in answer.verdict.measure[0]


def test_an_input_that_no_bill_depends_on_settles_nothing() -> None:
    """The draws of any input correlate a little with the saving, and a fleet without purchases was told to determine
    its depreciation."""
    rented = TWO_PARTS.replace("acquire: [buy]", "acquire: [rent]").replace(
        "buy_usd: {value: 15000, low: 12000, high: 18000}", "rent_usd_per_hour: {value: 2, low: 1.6, high: 2.4}"
    )
    rented = rented.replace(
        "buy_usd: {value: 32000, low: 24000, high: 36000}", "rent_usd_per_hour: {value: 3, low: 2.5, high: 3.5}"
    ).replace(PEOPLE, "")
    answer = answer_of(solved(rented))
    assert answer.confidence.blame
    assert not {entry.id for entry in answer.confidence.blame} & {
        "money/depreciation_years",
        "money/salvage",
        "node/host_usd",
    }
    assert all(entry.variance_fraction >= 0.01 for entry in answer.confidence.blame)


def test_requests_beyond_the_context_of_a_model_are_no_matter_of_the_slo() -> None:
    answer = solved(TWO_PARTS.replace("input: 8k", "input: 200k")).answer
    assert isinstance(answer, NoFleet)
    assert answer.reasons[0].endswith(
        "exceed the context of llama-3.1-8b, which is 131,072 tokens; shorten them or plan another model"
    )


def test_the_same_seed_gives_the_same_confidence_and_probabilities_are_whole() -> None:
    first, second = (answer_of(solved(TWO_PARTS, again=True)).confidence for _ in range(2))
    assert first == second
    assert isclose(sum(first.probability.values()), 1)
    assert answer_of(solved(TWO_PARTS + "seed: 7\n")).confidence != first


def test_tornado_bars_are_the_costs_of_planning_at_both_ends() -> None:
    answer = answer_of(solved(TWO_PARTS))
    bar = next(swing for swing in answer.swings if swing.name == "h200_sxm price")
    assert bar.cost_at_low_usd < bar.cost_at_high_usd
    cheap = answer_of(solved(TWO_PARTS.replace("value: 32000, low: 24000, high: 36000", "value: 24000")))
    assert bar.cost_at_low_usd >= cheap.winner.mix.cost_usd * (1 - 1e-9)
    assert bar.cost_at_low_usd <= cheap.winner.mix.cost_usd * 1.05


def test_where_nothing_is_enough_any_more_is_told_of_the_only_choice_too() -> None:
    few = TWO_PARTS.replace("tp: [1]}", "tp: [1], max_nodes: 8}", 1) + "sites: [{name: main, deny: [nvidia]}]\n"
    answer = answer_of(solved(few))
    assert answer.verdict.outcome == "only choice"
    flip = next(flip for flip in answer.flips if flip.kind == "demand" and flip.side == "above")
    assert flip.instead == NOTHING
    assert flip_sentence(flip).startswith("No fleet meets demand if")
    for more, holds in ((0.97, True), (1.03, False)):
        moved = few.replace("requests_per_s: 40", f"requests_per_s: {40 * flip.at * more:.3f}")
        assert isinstance(solved(moved).answer, Answer) == holds


def test_demand_at_which_there_is_no_fleet_is_a_scenario() -> None:
    few = TWO_PARTS.replace("tp: [1]}", "tp: [1], max_nodes: 8}")
    few = few.replace("requests_per_s: 40", "requests_per_s: {value: 40, low: 20, high: 900}")
    *_, high = answer_of(solved(few + "constraints: {confidence: 50%}\n")).scenarios
    assert (high.name, high.usd) == ("high", None)
    assert scenario_sentence(high) == "high: no fleet meets every rule"


def test_a_rule_that_nothing_can_keep_is_named() -> None:
    with pytest.raises(UsageError, match="`deny` excludes every accelerator of the plan at every site"):
        solved(TWO_PARTS + "sites: [{name: main, deny: [nvidia, amd]}]\n")
    alone = solved(TWO_PARTS + "constraints: {min_vendors: 2}\n", {"mi300x": 0.0, "h200_sxm": 9.0}).answer
    assert isinstance(alone, NoFleet)
    assert alone.reasons[0].startswith("min_vendors is 2, but no accelerator of amd serves a workload")


def test_rules_that_cannot_all_hold_are_named() -> None:
    capped = TWO_PARTS + "sites: [{name: main, power_cap_kw: 11}]\n"
    result = solved(capped)
    assert isinstance(result.answer, NoFleet)
    (reason,) = [said for said in result.answer.reasons if "power caps" in said]
    assert reason.startswith("without the sites' power caps a fleet exists: the cheapest draws ")
    assert reason.endswith(" kW at main (11 allowed)")
    few = solved(TWO_PARTS.replace("tp: [1]}", "tp: [1], max_nodes: 1}")).answer
    assert isinstance(few, NoFleet)
    assert any(re.search(r": the cheapest has [2-9] nodes of \w+ \(1 allowed\)$", said) for said in few.reasons)


def test_lengths_nothing_serves_are_named() -> None:
    result = solved(TWO_PARTS, {"mi325x": 1.0})
    assert isinstance(result.answer, NoFleet)
    assert "no accelerator of the plan serves 1,024/256 tokens" in result.answer.reasons[0]


def test_a_part_without_a_price_is_left_out_by_name() -> None:
    result = solved(TWO_PARTS.replace("accelerators:", "accelerators:\n  - mi350x"))
    assert any(entry.what == "mi350x" and "the catalog has no price" in entry.why for entry in result.left_out)
    with pytest.raises(UsageError, match="no accelerator of the plan has a price"):
        solved(TWO_PARTS.split("accelerators:", maxsplit=1)[0] + "accelerators: [mi350x]\nacquire: [buy]\n")


def test_export_rules_keep_a_vendor_out_of_a_site() -> None:
    denied = TWO_PARTS + "sites: [{name: main, deny: [nvidia]}]\n"
    answer = answer_of(solved(denied))
    assert answer.winner.mix.vendors == {"amd"}
    assert answer.verdict.outcome == "only choice"


def test_a_short_name_keeps_its_price_and_may_be_denied() -> None:
    result = solved(TWO_PARTS)
    assert [(accelerator.id, accelerator.buy.value) for accelerator in result.plan.accelerators if accelerator.buy] == [
        ("mi300x", 15_000),
        ("h200_sxm", 32_000),
    ]
    assert answer_of(solved(TWO_PARTS + "sites: [{name: main, deny: [h200]}]\n")).winner.mix.support == {"mi300x"}
    with pytest.raises(UsageError, match="neither a vendor nor an accelerator"):
        solved(TWO_PARTS + "sites: [{name: main, deny: [h100x]}]\n")
    with pytest.raises(UsageError, match="listed twice"):
        solved(TWO_PARTS.replace("accelerators:", "accelerators:\n  - h200_sxm"))


def test_at_least_two_vendors_means_each_carries_a_real_share() -> None:
    answer = answer_of(solved(TWO_PARTS + "constraints: {min_vendors: 2, max_vendor_share: 70%}\n"))
    assert answer.winner.mix.label == "mix"
    loads = {pool.offer.vendor: sum(pool.load.values()) for pool in answer.winner.mix.pools}
    assert set(loads) == {"amd", "nvidia"}


def test_growth_buys_later_and_a_late_part_is_bridged_by_rent() -> None:
    late = """
name: wait
start: 2026-12-01
step_months: 12
workloads:
  - name: chat
    model: llama-3.1-8b
    slo: ttft=1s,tpot=50ms
    requests_per_s: 40
    growth_per_year: 50%
    lengths: [{input: 1k, output: 256}]
accelerators:
  - {id: mi325x, rent_usd_per_hour: 2.0, tp: [1]}
  - {id: mi350x, buy_usd: 25000, available: 2027-11-30, tp: [1]}
acquire: [buy, rent]
finance: {resale: 100%}
"""
    answer = answer_of(solved(late, {"mi325x": 4.0, "mi350x": 9.0}))
    mix = answer.winner.mix
    assert [pool.offer.accelerator for pool in mix.pools if pool.period == 0] == ["mi325x"]
    assert mix.nodes_of("mi350x", 0) == 0
    assert mix.nodes_of("mi350x", 2) >= mix.nodes_of("mi350x", 1) > 0
    assert isclose(answer.winner.cost.total_usd, mix.cost_usd, rel_tol=1e-9)
    assert answer.verdict.winner == "mi325x + mi350x"
    (flip,) = [flip for flip in answer.flips if flip.kind == "delivery" and flip.side == "above"]
    assert flip.instead == "mi325x"
    assert 24 < flip.at <= 36


def test_a_volume_discount_is_taken_once_the_volume_is_there() -> None:
    off = TWO_PARTS.replace("tp: [1]}", "tp: [1], discounts: [{devices: 8, off: 50%}]}", 1)
    plain, cheaper = answer_of(solved(TWO_PARTS)), answer_of(solved(off))
    assert cheaper.by_label["amd"].mix.cost_usd < plain.by_label["amd"].mix.cost_usd
    assert all(level == 1 for _, _, _, level, _ in cheaper.by_label["amd"].mix.purchases)


@pytest.mark.parametrize("share_of", ["load", "devices"])
def test_a_vendor_rule_is_kept_by_pools_that_serve(share_of: str) -> None:
    """Idle nodes of the other vendor are no second source."""
    rule = f"constraints: {{max_vendor_share: 70%, share_of: {share_of}}}\n"
    mix = answer_of(solved(TWO_PARTS + rule, {"mi300x": 1.0, "h200_sxm": 9.0})).winner.mix
    assert mix.vendors == {"amd", "nvidia"}
    assert all(pool.load and pool.replicas for pool in mix.pools)


def test_a_fleet_that_misses_in_simulation_is_grown_until_it_holds_and_the_regret_is_told() -> None:
    seen: list[ServingFleet] = []

    def strict(fleet: ServingFleet) -> tuple[Check, ...]:
        seen.append(fleet)
        (stream, *_) = fleet.streams
        replicas = sum(pool.replicas for pool in fleet.pools)
        attained = 0.99 if replicas >= 20 else 0.5
        return (Check(workload=stream.workload, attainment_fraction=attained, required_fraction=0.95),)

    answer = answer_of(solved(TWO_PARTS, {"mi300x": 14.0, "h200_sxm": 14.0}, verify_of=strict))
    first = answer.verified[0]
    assert first.met
    assert first.attempts > 1
    assert first.added_usd > 0
    assert isclose(answer.winner.cost.total_usd, first.mix.cost_usd, rel_tol=1e-9)
    assert answer.regret_usd is not None
    assert answer.regret_usd >= 0
    (stream, *_) = seen[0].streams
    assert isclose(sum(stream.shares.values()), 1, abs_tol=1e-6)
    assert set(stream.shares) <= {pool.id for pool in seen[0].pools}


def test_where_a_mixed_filling_of_nodes_misses_a_pure_one_that_holds_is_taken() -> None:
    """Two devices carry long requests better than two replicas of one do, so the first filling mixes both kinds."""
    text = "\n".join(line.replace("tp: [1]", "tp: [1, 2]") for line in TWO_PARTS.splitlines() if "h200" not in line)
    mixed: list[bool] = []

    def better_for_short_or_long(deployment: Deployment, bucket: Bucket, slo: Slo) -> Capacity:
        found = capacities({"mi300x": 4.0}, spread=0.0)(deployment, bucket, slo)
        better = (bucket.input_tokens < 8000) == (deployment.parallelism.tp == 1)
        return replace(found, curve=found.curve.scaled(2.5 if better else 1.0))

    def pure_holds(fleet: ServingFleet) -> tuple[Check, ...]:
        (stream, *_) = fleet.streams
        mixed.append(len({pool.option.deployment.parallelism.tp for pool in fleet.pools}) > 1)
        attained = 0.5 if mixed[-1] else 0.99
        return (Check(workload=stream.workload, attainment_fraction=attained, required_fraction=0.95),)

    (verified,) = answer_of(solved(text, verify_of=pure_holds, capacity_of=better_for_short_or_long)).verified
    assert mixed[0]
    assert verified.met
    assert 0 <= verified.added_usd < 0.1 * verified.planned.cost_usd


def test_a_fleet_that_never_holds_is_reported_as_missing() -> None:
    def never(fleet: ServingFleet) -> tuple[Check, ...]:
        return tuple(
            Check(workload=name, attainment_fraction=0.1, required_fraction=0.95)
            for name in {stream.workload for stream in fleet.streams}
        )

    answer = answer_of(solved(TWO_PARTS, verify_of=never))
    assert not answer.verified[0].met
    assert answer.regret_usd is None


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (
            "{max_vendor_share: 40%}",
            "max_vendor_share is 40%, but the plan only has accelerators of amd, nvidia.* at least 50%",
        ),
        (
            "{min_vendors: 3}",
            "min_vendors is 3, but the plan only has accelerators of amd, nvidia; add accelerators of another",
        ),
        ("{min_vendor_share: 30%}", "add `min_vendors: 2`"),
        ("{max_vendor_share: 150%}", r"1.5 is outside 0.01 to 1$"),
    ],
)
def test_rules_that_no_fleet_can_keep_are_refused_before_anything_is_solved(rules: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        solved(TWO_PARTS + f"constraints: {rules}\n")


def test_a_pause_between_requests_needs_users() -> None:
    with pytest.raises(UsageError, match="add `users:`"):
        solved(TWO_PARTS.replace("requests_per_s: 40", "requests_per_s: 40\n    think: 10s"))
