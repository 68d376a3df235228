"""A guide as it is read: in 80 columns, as a page without a network, and as a fleet that routes."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from io import StringIO
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from penstock.api.guide import GuideAnswer, command_of, guide
from penstock.api.options.guide_options import GuideOptions
from penstock.cli.root import app
from penstock.errors import PenstockError, UsageError
from penstock.fleet.fleet_file import read_fleet, write_fleet
from penstock.guide.capacity_memory import KnownCapacity, ShapeMemory
from penstock.guide.guide_file import EXAMPLE_GUIDE, parse_guide
from penstock.guide.guide_result import GuideResult
from penstock.guide.guide_routes import guide_fleet
from penstock.planning.make_plan import make_plan
from penstock.planning.plan_result import Answer
from penstock.planning.planned_fleet import planned_fleet
from penstock.report.guide.guide_sentences import tie_fraction
from penstock.report.guide.names import short_name
from penstock.report.guide.page import guide_html
from penstock.report.guide.where_sentences import where_sentences
from penstock.units import format_digits
from small_guides import GUIDE, guided, sources_of
from small_plans import TODAY


@cache
def answer() -> GuideAnswer:
    return GuideAnswer(result=guided(), command="penstock guide guide.yaml")


def test_the_map_fits_80_columns_and_names_every_winner() -> None:
    console = Console(file=StringIO(), width=80, color_system=None)
    console.print(answer().render(80))
    assert isinstance(console.file, StringIO)
    text = console.file.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    for cell in answer().result.cells:
        assert cell.winner is not None
        assert cell.winner.accelerator.removesuffix("_sxm") in text


def test_the_page_needs_no_network() -> None:
    page = guide_html(answer().result)
    assert not re.findall(r"(?:src|href)=", page)
    found = re.search(r'id="cells">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    cells = json.loads(found[1])["cells"]
    assert [cell["fleets"][0]["usd"] for cell in cells] == [
        cell.winner.cost_usd for cell in answer().result.cells if cell.winner
    ]


def test_the_routes_are_a_fleet_that_serves_every_workload() -> None:
    fleet = answer().fleet()
    assert read_fleet(write_fleet(fleet), "fleet.yaml") == fleet
    middle = answer().result.grid.loads[1]
    served = {(route.input_tokens, route.peak_requests_per_s) for route in fleet.routes}
    assert served == {(prompt, middle) for prompt in answer().result.grid.prompts}
    with pytest.raises(UsageError, match="is not a load of the guide"):
        answer().fleet(3.0)


def test_routes_of_a_trace_have_its_load_and_share_their_spares(tmp_path: Path) -> None:
    """Each prompt length had four times the whole trace's busiest minute, and spares of its own."""
    begun = datetime(2024, 5, 10, tzinfo=UTC)
    lines = (
        f"{begun + timedelta(seconds=number / 4):%Y-%m-%d %H:%M:%S.%f}0,{3000 if number % 4 == 0 else 300},100\n"
        for number in range(4 * 600)
    )
    (tmp_path / "trace.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(lines))
    found = guide("llama-3.1-8b", trace=str(tmp_path / "trace.csv"), on="h100,mi300x", prompts="300,3000")
    fleet = found.fleet()
    assert [route.peak_requests_per_s for route in fleet.routes] == pytest.approx([3.0, 1.0], rel=0.02)
    assert sum(group.spare_nodes for group in fleet.nodes) == 1
    assert sum(pool.replicas for pool in fleet.pools) <= 2
    stated = found.fleet(found.result.grid.loads[-1])
    assert {route.peak_requests_per_s for route in stated.routes} == {found.result.grid.loads[-1]}


def test_a_replica_of_the_routes_costs_what_a_plan_says() -> None:
    """Spares and engineers are not in the price of a replica, and workloads that share a pool have one price."""
    result = answer().result
    question = parse_guide(GUIDE, "guide.yaml", today=TODAY)
    cell = result.cells[1]
    asked = cell.shape.plan(question.template, cell.requests_per_s)
    found = make_plan(asked, sources_of(question, 4.0, 6.0, 0.2))
    assert isinstance(found.answer, Answer)
    planned = planned_fleet(found, found.answer)
    prices = {pool.accelerator: pool.usd_per_hour for pool in planned.pools}
    shared = [pool for pool in answer().fleet().pools if pool.accelerator in prices]
    assert shared
    for pool in shared:
        assert pool.usd_per_hour == pytest.approx(prices[pool.accelerator], rel=1e-6)


def printed(result: GuideResult) -> str:
    console = Console(file=StringIO(), width=80, color_system=None)
    console.print(GuideAnswer(result=result, command="penstock guide guide.yaml").render(80))
    assert isinstance(console.file, StringIO)
    return " ".join(console.file.getvalue().split())


def test_a_guide_of_one_vendor_compares_no_other() -> None:
    one = GUIDE.split("  - {id: h200")[0] + "draws: 500\n"
    said = printed(guided(one))
    assert "Only accelerators of AMD were compared." in said
    assert "only: no other vendor" not in said


def test_a_guide_that_nothing_can_serve_names_no_routes_and_no_vendor() -> None:
    said = printed(guided(mi300x=0.0, h200=0.0))
    assert "No fleet serves any of 6 workloads." in said
    assert "vendor" not in said
    assert "--routes" not in said


def test_a_guide_says_which_workload_goes_where_and_why() -> None:
    result = guided(h200=10.0)
    said = printed(result)
    (sentence,) = where_sentences(result)
    assert sentence in said
    winners = [cell.winner for cell in result.cells if cell.winner is not None]
    assert {winner.vendor for winner in winners} == {"amd", "nvidia"}
    for name, vendor in (("AMD (mi300x)", "amd"), ("NVIDIA (h200)", "nvidia")):
        own = [cell for cell in result.cells if cell.winner is not None and cell.winner.vendor == vendor]
        (part,) = (part for part in sentence.split("; ") if name in part)
        assert "in the others" in part or all(format_digits(cell.requests_per_s) in part for cell in own)
        assert ("decided by" in part) == any(cell.binding is not None for cell in own)
        assert all(cell.binding in part for cell in own if cell.binding is not None)


def test_near_ties_are_named_once_with_their_range() -> None:
    also = "  - {id: mi325x, rent_usd_per_hour: {value: 2.04, low: 1.7, high: 2.6}, instances: [1, 2]}\n"
    result = guided(GUIDE.replace("draws", f"{also}draws"))
    ties = [cell for cell in result.cells if cell.near_tie is not None]
    more = sorted(tie_fraction(cell) for cell in ties if cell.winner and cell.winner.accelerator == "mi300x")
    assert len(more) > 1
    said = printed(result)
    assert f"mi325x costs {more[0]:.1%} to {more[-1]:.1%} more than mi300x: " in said
    assert said.count("more than mi3") == len({cell.winner.accelerator for cell in ties if cell.winner})


def test_a_turn_names_both_ends_of_its_interval() -> None:
    result = guided(GUIDE.replace("[2, 20, 90]", "[0.5, 400]") + "stacks: {amd: {engineers: 1}}\n")
    said = printed(result)
    for turn in result.crossings:
        below, above = short_name(turn.below), short_name(turn.above)
        if turn.axis == "load":
            assert f"{below} up to {format_digits(turn.low)}/s, {above} from {format_digits(turn.high)}/s" in said
        else:
            assert f"{below} up to prompts of {turn.low:,.0f} tokens, {above} from {turn.high:,.0f}" in said
    assert result.crossings


def test_a_winner_of_two_pools_is_one_winner() -> None:
    """The first fleet is printed with a second pool, as of instances of another size."""
    result = guided()
    cell = result.cells[0]
    assert cell.winner is not None
    (pool,) = cell.winner.pools
    twice = replace(cell.winner, pools=(replace(pool, tier="transferred"), replace(pool, tier="transferred")))
    said = printed(replace(result, cells=(replace(cell, fleets=(twice, *cell.fleets[1:])),)))
    assert f"Speeds of {short_name(pool.accelerator)} are transferred from other setups in 1 winner." in said


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("sites: [{name: here, deny: [amd, nvidia]}]", "are denied at the site"),
        ("sites: [{name: here, deny: [nvidia]}]", "Only accelerators of AMD were compared."),
        ("sites: [{name: here, deny: [nvidia]}]", "Left out: h200: denied at the site."),
    ],
)
def test_accelerators_that_the_site_denies_are_named(rule: str, said: str) -> None:
    text = printed(guided(f"{GUIDE}{rule}\n"))
    assert said in text
    assert "only: no other vendor" not in text


def test_too_few_devices_are_not_a_missed_slo() -> None:
    limited = guided(GUIDE.replace("instances: [1, 2]}", "max_nodes: 0}").replace("instances: [1]}", "max_nodes: 0}"))
    said = printed(limited)
    assert "No fleet (-) for 6 workloads (1k and 8k prompts at 2, 20 and 90/s)" in said
    assert "have too few devices" in said


def test_a_grid_without_weight_formats_is_refused() -> None:
    with pytest.raises(PenstockError, match="name a format"):
        parse_guide(GUIDE.replace("prompts:", "weights: [], prompts:"), "guide.yaml", today=TODAY)


def test_memory_is_read_as_it_was_written() -> None:
    known = KnownCapacity(errors=(-1.0, 0.0), requests_per_s=(2.0, 3.0), headroom=1.25, tier="calibrated")
    memory = ShapeMemory(
        kinds=["a"],
        curves={"a": {8: known}},
        rates={"a": {8: 3.0}},
        screened={"a": 4.0},
        left_out={"guide on h100_sxm": "too slow"},
    )
    assert ShapeMemory.of(json.loads(json.dumps(memory.plain()))) == memory


def test_the_example_is_a_guide() -> None:
    assert parse_guide(EXAMPLE_GUIDE, "guide.yaml", today=TODAY).grid.size == 40


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["guide"], "name a model or a guide file"),
        (["guide", "nobody.yaml"], "nobody.yaml"),
        (["guide", "llama-3.1-8b", "--loads", "fast"], "is not a list of numbers"),
        (["guide", "llama-3.1-8b", "--loads", "0"], "must be above 0"),
        (["guide", "llama-3.1-8b", "--loads", "nan"], "must be above 0"),
        (["guide", "llama-3.1-8b", "--loads", "1,inf"], "must be above 0"),
    ],
)
def test_errors_are_one_line(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code != 0
    assert said in result.output + str(result.exception)


def test_the_next_command_asks_the_same_question() -> None:
    asked = GuideOptions("llama-3.1-8b", prompts="1k,4k", slo="ttft=1s,tpot=50ms", on="mi300x,h100")
    assert command_of(asked) == ("penstock guide llama-3.1-8b --prompts 1k,4k --slo ttft=1s,tpot=50ms --on mi300x,h100")


def test_a_guide_explains_the_mark_of_close_winners_only_if_it_has_some() -> None:
    close, sure = printed(guided(spread=0.2)), printed(guided(h200=0.5, spread=0.01))
    assert "~: close." in close
    assert "~" not in sure
    assert "Every winner is cheapest in at least 90% of the draws." in sure


def test_limits_of_routes_are_written_without_rounding_errors() -> None:
    text = GUIDE.replace("ttft_per_1k: 1us", "ttft_per_1k: 250ms").replace("ttft=1s", "ttft=2s")
    limits = [route.slo.ttft_s for route in guide_fleet(guided(text), 20).routes]
    assert limits == [2.256, 4.048]


def test_prompts_beyond_the_context_are_named() -> None:
    said = printed(guided(GUIDE.replace("[1k, 8k]", "[1k, 1000k]")))
    assert (
        "Left out: llama-3.1-8b with prompts of 1,024,000 tokens: the model's context ends at 131,072 tokens." in said
    )
