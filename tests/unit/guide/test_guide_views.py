"""A guide as it is read: in 80 columns, as a page without a network, and as a fleet that routes."""

import json
import re
from functools import cache
from io import StringIO

import pytest
from click.testing import CliRunner
from rich.console import Console

from penstock.api.guide import GuideAnswer, command_of
from penstock.api.options.guide_options import GuideOptions
from penstock.cli.root import app
from penstock.errors import UsageError
from penstock.fleet.fleet_file import read_fleet, write_fleet
from penstock.guide.capacity_memory import KnownCapacity, ShapeMemory
from penstock.guide.guide_file import EXAMPLE_GUIDE, parse_guide
from penstock.guide.guide_result import GuideResult
from penstock.planning.make_plan import make_plan
from penstock.planning.plan_result import Answer
from penstock.planning.planned_fleet import planned_fleet
from penstock.report.guide.page import guide_html
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
    assert "No accelerator keeps the SLO" in said
    assert "vendor" not in said
    assert "--routes" not in said


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
