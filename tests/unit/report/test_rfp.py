"""The pack for vendors: every question, a benchmark that reads back, thresholds that are the plan's own loads."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from penstock.cli.commands.plan import plan_command
from penstock.cli.declared_commands import declared_command
from penstock.errors import UsageError
from penstock.performance.prediction.speculation import Speculation
from penstock.planning.acceptance_file import read_acceptance, write_acceptance
from penstock.planning.acceptance_tests import Acceptance, Margin, margins_of
from penstock.planning.optimizer.problem import Mix
from penstock.planning.plan_result import Answer, PlanResult
from penstock.planning.verification.simulated_capacity import PoolLoad
from penstock.report.plan.rfp import rfp_pack, vendor_sheets
from small_plans import TWO_PARTS, solved

SPEEDS = {"mi300x": 4.0, "h200_sxm": 6.0}
SPREAD = 0.2
VENDORS = ("amd", "nvidia")


@pytest.fixture(scope="module")
def result() -> PlanResult:
    return solved(TWO_PARTS, SPEEDS, spread=SPREAD)


@pytest.fixture(scope="module")
def answer(result: PlanResult) -> Answer:
    assert isinstance(result.answer, Answer)
    return result.answer


@pytest.fixture(scope="module")
def pack(result: PlanResult, answer: Answer) -> dict[str, str]:
    return dict(rfp_pack(result, answer))


def of_part(margins: tuple[Margin, ...], accelerator: str) -> Margin:
    return next(margin for margin in margins if margin.case.accelerator == accelerator)


def test_each_vendor_gets_a_letter_and_a_benchmark_and_nothing_of_another(pack: dict[str, str]) -> None:
    assert set(pack) == {
        "workload.yaml",
        "request-amd.md",
        "request-nvidia.md",
        "acceptance-amd.yaml",
        "acceptance-nvidia.yaml",
        "internal.md",
    }
    for topic in ("price", "lead time", "delivery", "support", "power"):
        assert f"| {topic} |" in pack["request-amd.md"]
    assert "NVIDIA" not in pack["request-amd.md"]
    assert "h200" not in pack["acceptance-amd.yaml"]
    assert "MI300X" not in pack["request-nvidia.md"]


def test_what_the_plan_counts_on_is_only_in_the_internal_notes(pack: dict[str, str]) -> None:
    assert "$32,000" in pack["internal.md"]
    assert "AMD is cheaper" in pack["internal.md"]
    for name, text in pack.items():
        assert ("$" in text) == (name == "internal.md")
        assert ("cheaper" in text) == (name == "internal.md")


def new_nodes(mix: Mix) -> int:
    return max(pool.nodes for pool in mix.pools)


def test_every_vendor_is_asked_for_nodes_that_carry_everything(
    result: PlanResult, answer: Answer, pack: dict[str, str]
) -> None:
    """AMD was asked for its part of a mix, at rates that only the whole of a fleet serves."""
    offers = {vendor: pack[f"request-{vendor}.md"].partition("## Offer")[2] for vendor in ("amd", "nvidia")}
    same = {text.partition("## Questions")[0] for text in offers.values()}
    assert len(same) == 1
    assert "Lot 2" not in same.pop()
    for vendor, text in offers.items():
        assert f"about {new_nodes(answer.by_label[vendor].mix)} nodes of 8 devices" in text
    assert {sheet.accelerator.vendor: sheet.role for sheet in vendor_sheets(result, answer)} == {
        "nvidia": "chosen",
        "amd": "to compare",
    }


def test_where_vendors_share_each_is_asked_for_the_same_share_too() -> None:
    dual = solved(TWO_PARTS + "constraints: {min_vendors: 2, min_vendor_share: 20%}\n", SPEEDS)
    assert isinstance(dual.answer, Answer)
    assert set(dual.answer.by_label) == {"mix"}
    free = solved(TWO_PARTS, SPEEDS).answer
    assert isinstance(free, Answer)
    pack = rfp_pack(dual, dual.answer)
    for vendor in ("amd", "nvidia"):
        whole = new_nodes(free.by_label[vendor].mix)
        heading = next(line for line in pack[f"request-{vendor}.md"].splitlines() if line.startswith("### "))
        lots = [int(number) for number in re.findall(r"about (\d+) nodes", heading)]
        assert lots[0] == whole, "the whole demand, without the rule on vendors"
        assert 0.5 * (whole - 1) <= lots[1] - 1 < 0.5 * (whole - 1) + 1, "half of it, and the spare node"
        assert "serve 50% of every rate above" in pack[f"request-{vendor}.md"]


def test_vendors_are_asked_for_the_term_of_the_plan() -> None:
    """A plan of one year asked for a price for 36 months."""
    text = TWO_PARTS.replace("acquire: [buy]", "acquire: [contract]").replace(
        "buy_usd: {value: 32000, low: 24000, high: 36000}",
        "contracts: [{months: 6, usd_per_hour: 3}, {years: 1, usd_per_hour: 2.5}, {years: 3, usd_per_hour: 2.4}]",
    )
    text = text.replace("buy_usd: {value: 15000, low: 12000, high: 18000}", "contracts: [{years: 3, usd_per_hour: 2}]")
    year = solved(text + "horizon_years: 1\n", SPEEDS)
    assert isinstance(year.answer, Answer)
    pack = rfp_pack(year, year.answer)
    asked = {vendor: re.findall(r"device-hour for (\d+) months", pack[f"request-{vendor}.md"]) for vendor in VENDORS}
    assert asked["nvidia"] == ["6", "12"]
    # The only AMD rent known binds for longer than the plan: its fleet would sign it, so it is asked about as well.
    assert asked["amd"] == ["12", "36"]


def test_the_load_to_show_is_what_the_plan_sends_to_a_node(result: PlanResult, answer: Answer) -> None:
    margin = of_part(margins_of(result, answer), "h200_sxm")
    replicas = sum(pool.replicas[name] for pool in answer.winner.mix.pools for name in pool.replicas)
    assert (margin.case.nodes, margin.case.replicas) == (1, 8)
    half, peak = margin.case.loads
    headroom = result.problem.utilisation_fraction
    assert headroom < 1
    assert peak.requests_per_s == pytest.approx(40 / replicas * 8 / headroom, rel=1e-3)
    assert half.requests_per_s == pytest.approx(peak.requests_per_s / 2, rel=1e-3)
    assert [length.share_fraction for length in margin.case.lengths] == pytest.approx([0.6, 0.4])


def test_the_margin_is_the_estimate_beside_that_load(result: PlanResult, answer: Answer) -> None:
    margin = of_part(margins_of(result, answer), "h200_sxm")
    mean_tokens = 0.6 * (1024 + 256) + 0.4 * (8192 + 512)
    assert margin.estimate_requests_per_s == pytest.approx(8 * 6.0 * 1000 / mean_tokens)
    assert margin.low_requests_per_s == pytest.approx(margin.estimate_requests_per_s * (1 - SPREAD))
    peak = margin.case.loads[-1].requests_per_s
    assert margin.margin_fraction == pytest.approx(margin.estimate_requests_per_s / peak - 1)
    assert margin.margin_fraction >= 0, "the plan sizes a fleet for its peak and the headroom"
    turns = next(flip for flip in answer.flips if (flip.kind, flip.subject) == ("throughput", "h200_sxm"))
    assert margin.turns_below_requests_per_s == pytest.approx(turns.at * margin.estimate_requests_per_s)


@pytest.mark.parametrize("share", [0.9, 0.95003, 1.0, 1.3])
def test_a_node_is_asked_for_a_little_less_than_its_own_replicas_keep(
    result: PlanResult, answer: Answer, share: float
) -> None:
    """One node was asked for what a replica of a large pool carries, and a good one failed."""
    simulated: list[PoolLoad] = []

    def sustained(load: PoolLoad) -> float:
        simulated.append(load)
        return load.requests_per_s * share

    for margin in margins_of(result, answer, sustained):
        peak = margin.case.loads[-1].requests_per_s
        assert margin.estimate_requests_per_s == pytest.approx(margin.sent_requests_per_s * share)
        assert peak == pytest.approx(margin.sent_requests_per_s * min(1.0, 0.95 * share), rel=1e-3)
        assert margin.margin_fraction >= 0
        assert margin.low_requests_per_s == pytest.approx(margin.estimate_requests_per_s * (1 - SPREAD))
    assert {load.replicas for load in simulated} == {8}
    assert [part for _, part in simulated[0].mix] == pytest.approx([0.6, 0.4])
    assert len({load.option.id for load in simulated}) == len(simulated), "each is simulated once"


def test_the_notes_say_why_a_node_shows_less_than_the_fleet_sends_it(result: PlanResult, answer: Answer) -> None:
    notes = rfp_pack(result, answer, lambda load: load.requests_per_s * 0.9)["internal.md"]
    assert "all replicas of a pool share a burst" in notes
    assert "| +5% |" in notes


def test_enough_requests_to_tell_the_attained_share_to_a_point(result: PlanResult, answer: Answer) -> None:
    for margin in margins_of(result, answer):
        for load in margin.case.loads:
            share = load.at_least_fraction
            assert share == margin.case.slo.attainment_fraction
            assert 2 * (share * (1 - share) / load.requests) ** 0.5 <= 0.01


def test_a_benchmark_says_how_many_tokens_a_step_drafts(result: PlanResult, answer: Answer) -> None:
    """Attack: a plan that counts on drafts asked vendors for a benchmark without them."""
    drafts = Speculation(drafted_tokens=3, accepted_tokens=2.4)
    drafting = replace(result, candidates=tuple(replace(entry, speculation=drafts) for entry in result.candidates))
    for found, tokens in ((result, 0), (drafting, 3)):
        assert {margin.case.drafted_tokens for margin in margins_of(found, answer)} == {tokens}


def test_a_benchmark_reads_back_as_it_was_written(result: PlanResult, answer: Answer) -> None:
    cases = tuple(replace(margin.case, drafted_tokens=2) for margin in margins_of(result, answer))
    text = write_acceptance(Acceptance(plan="two parts", cases=cases))
    assert write_acceptance(read_acceptance(text, "acceptance.yaml")) == text


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("version: 1", "version: 2", "reads version 1"),
        ("poisson", "bursts", "poisson"),
        ("share_fraction: 0.4", "share_fraction: 0.5", "add up to 1"),
        ("  replicas: 8", "  replicas: 8\n  extra: 1", "extra"),
        ("requests: 1", "requests: -1", "requests"),
    ],
)
def test_a_mistake_in_a_benchmark_is_one_line(pack: dict[str, str], old: str, new: str, problem: str) -> None:
    text = pack["acceptance-nvidia.yaml"]
    assert old in text
    with pytest.raises(UsageError, match=problem) as found:
        read_acceptance(text.replace(old, new, 1), "acceptance.yaml")
    assert "\n" not in str(found.value)


def test_the_workload_says_lengths_limits_and_every_peak(pack: dict[str, str]) -> None:
    document = yaml.safe_load(pack["workload.yaml"])
    [workload] = document["workloads"]
    assert document["version"] == 1
    assert workload["slo"] == "ttft=1s,tpot=50ms,attain=95%"
    assert [entry["share_fraction"] for entry in workload["lengths"]] == [0.6, 0.4]
    assert workload["peaks"] == [{"from": "2026-12-01", "requests_per_s": 40.0}]


def test_nobody_is_asked_about_nodes_that_are_only_kept() -> None:
    owned = solved(TWO_PARTS + "owned: [{id: 80xh200, age_years: 1, resale_usd: 10k}]\n", SPEEDS)
    assert isinstance(owned.answer, Answer)
    assert owned.answer.winner.mix.support == {"h200_sxm"}
    sheets = vendor_sheets(owned, owned.answer)
    assert "chosen" not in {sheet.role for sheet in sheets}
    assert all(sheet.nodes.whole_nodes for sheet in sheets)


def test_the_command_writes_the_pack_into_a_directory_it_makes(tmp_path: Path) -> None:
    plan, folder = tmp_path / "plan.yaml", tmp_path / "to" / "vendors"
    plan.write_text(TWO_PARTS)
    app = declared_command(plan_command, "plan")
    done = CliRunner().invoke(app, [str(plan), "--rfp", str(folder)])
    assert done.exit_code == 0
    assert {"workload.yaml", "internal.md"} < {path.name for path in folder.iterdir()}
    assert "| -" not in (folder / "internal.md").read_text().replace("| - |", ""), "no margin is negative"
    failed = CliRunner().invoke(app, [str(plan), "--rfp", str(plan / "inside")])
    assert isinstance(failed.exception, UsageError)
