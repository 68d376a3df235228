"""A plan with two sites says what stands where; one with a single site prints no site at all."""

from collections.abc import Iterator
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from penstock.planning.plan_result import Answer, PlanResult
from penstock.report.drawing.html_template import render_template
from penstock.report.plan.acquisition_plan import acquisitions
from penstock.report.plan.operation import operation
from penstock.report.plan.terminal import render_plan
from small_plans import TWO_PARTS, solved

SITES = "sites: [{name: '[b]north', power_cap_kw: 140}, {name: south, power_cap_kw: 140}]\n"


@pytest.fixture(scope="module")
def two() -> PlanResult:
    """The same nodes, bought, doing the same at each of two sites."""
    result = solved(TWO_PARTS + SITES)
    answer = result.answer
    assert isinstance(answer, Answer)
    mix, [order] = answer.winner.mix, answer.winner.cash.orders
    [pool] = mix.pools
    names = [site.name for site in result.plan.sites]
    pools = tuple(replace(pool, offer=replace(pool.offer, site=name)) for name in names)
    cash = replace(answer.winner.cash, orders=tuple(replace(order, site=name) for name in names))
    winner = replace(answer.winner, mix=replace(mix, pools=pools), cash=cash)
    return replace(result, answer=replace(answer, winner=winner))


def lines(result: PlanResult) -> Iterator[str]:
    console = Console(file=StringIO(), width=160, color_system=None)
    console.print(render_plan(result, 160))
    assert isinstance(console.file, StringIO)
    yield from console.file.getvalue().splitlines()


def test_every_row_of_the_fleet_and_every_order_names_its_site(two: PlanResult) -> None:
    told = list(lines(two))
    assert isinstance(two.answer, Answer)
    [accelerator] = two.answer.winner.mix.support
    assert [line.split("  ")[0] for line in told if line.startswith(accelerator)] == [
        f"{accelerator} at [b]north",
        f"{accelerator} at south",
    ]
    [ordered] = [number for number, line in enumerate(told) if line.startswith("order")]
    said = " ".join(told[ordered : ordered + 2])
    assert f"for [b]north: {two.answer.winner.cash.orders[0].nodes} {accelerator} nodes" in said
    assert f"; for south: {two.answer.winner.cash.orders[0].nodes} {accelerator} nodes" in said


def test_the_page_names_them_too(two: PlanResult) -> None:
    assert isinstance(two.answer, Answer)
    page = render_template("plan_operation.html.j2", operation=operation(two, two.answer, ()))
    [accelerator] = two.answer.winner.mix.support
    assert f">{accelerator} at [b]north<" in page
    assert f">{accelerator} at south<" in page
    assert "for south:" in page


def test_what_is_rented_by_the_hour_or_kept_at_two_sites_adds_up(two: PlanResult) -> None:
    assert isinstance(two.answer, Answer)
    mix = two.answer.winner.mix
    pools = tuple(replace(pool, owned_nodes=0, kept_nodes=1, rented_nodes=2) for pool in mix.pools)
    said, _ = acquisitions(replace(mix, pools=pools, purchases={}), two.resolved)
    assert said.startswith("keep 2 nodes of 8")
    assert "rent 4 instances of 8" in said


def test_one_site_is_not_named() -> None:
    alone = solved(TWO_PARTS + "sites: [{name: the-only-place}]\n")
    assert not [line for line in lines(alone) if "the-only-place" in line]
