"""Knobs moved in a real browser: what the page bills is what a fresh plan with these inputs bills."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from browser import opened
from penstock.planning.plan_result import Answer, Bill, PlanResult
from penstock.planning.uncertainty.rebill import Unit, count_units, count_units_at
from penstock.report.plan.page import plan_html
from penstock.report.plan.page_knobs import fleets_of
from small_plans import solved

pytestmark = pytest.mark.in_turn(3)
if TYPE_CHECKING:
    from playwright.sync_api import Page

PLAN = """
name: turned
start: 2026-12-01
horizon_years: {term}
workloads:
  - name: chat
    model: llama-3.1-8b
    slo: ttft=1s,tpot=50ms
    requests_per_s: {rate}
    lengths: [{{input: 1k, output: 256, share: 60%}}, {{input: 8k, output: 512, share: 40%}}]
accelerators:
  - {{id: mi300x, buy_usd: {mi300x}, tp: [1], discounts: [{{devices: 64, off: 10%}}]}}
  - {{id: h200, buy_usd: {h200}, tp: [1]}}
  - {{id: mi325x, rent_usd_per_hour: {mi325x}, tp: [1], contracts: [{{years: 1, usd_per_hour: {contract}}}]}}
acquire: [buy, rent, contract]
sites: [{{name: main, usd_per_kwh: {kwh}, pue: {pue}, hosting_usd_per_kw_month: {hosting}}}]
stacks: {{amd: {{engineers: {amd}}}, nvidia: {{engineers: {nvidia}}}}}
engineer_usd_per_year: {engineer}
draws: 200
"""
PLANNED: Mapping[str, float] = {
    "term": 3,
    "rate": 40,
    "mi300x": 15000,
    "h200": 26000,
    "mi325x": 2.2,
    "contract": 1.9,
    "kwh": 0.09,
    "pue": 1.3,
    "hosting": 190,
    "amd": 2,
    "nvidia": 0,
    "engineer": 280000,
}
KNOBS = {
    "term": "term",
    "rate": "load",
    "mi300x": "price.mi300x",
    "h200": "price.h200_sxm",
    "mi325x": "rent.mi325x",
    "contract": "contract.mi325x.0",
    "kwh": "kwh.main",
    "pue": "pue.main",
    "hosting": "hosting.main",
    "amd": "engineers.amd",
    "nvidia": "engineers.nvidia",
    "engineer": "engineer_usd",
}
SETTINGS: tuple[Mapping[str, float], ...] = (
    {},
    {"amd": 0},
    {"amd": 1},
    {"amd": 5.5},
    {"nvidia": 2},
    {"engineer": 180000},
    {"engineer": 420000, "amd": 3},
    {"mi300x": 9000},
    {"mi300x": 22000},
    {"h200": 18000},
    {"h200": 41000},
    {"h200": 41000, "mi300x": 12000, "amd": 0.5},
    {"contract": 1.2},
    {"contract": 3.1},
    {"kwh": 0.05},
    {"kwh": 0.17},
    {"pue": 1.08},
    {"pue": 1.6, "kwh": 0.15},
    {"hosting": 120},
    {"hosting": 340},
    {"rate": 20},
    {"rate": 52},
    {"rate": 80},
    {"term": 1},
    {"term": 2},
    {"term": 5},
    {"term": 2, "rate": 60, "kwh": 0.12},
    {"term": 4, "h200": 30000, "amd": 0, "rate": 32},
)
SPEEDS = {"mi300x": 4.0, "h200_sxm": 6.0, "mi325x": 4.6}


def answered(setting: Mapping[str, float]) -> PlanResult:
    return solved(PLAN.format(**{**PLANNED, **setting}), SPEEDS)


def bills_of(result: PlanResult) -> list[Bill]:
    assert isinstance(result.answer, Answer)
    return fleets_of(result.answer)


def fragment(setting: Mapping[str, float]) -> str:
    values = {name: value / PLANNED["rate"] if name == "rate" else value for name, value in setting.items()}
    return "&".join(f"{KNOBS[name]}={value:g}" for name, value in values.items())


def turned_to(page: "Page", setting: Mapping[str, float]) -> None:
    page.evaluate("fragment => { location.hash = fragment }", fragment(setting))
    wanted = f"#{fragment(setting)}" if setting else ""
    page.locator(f'#knobs[data-shown="{wanted}"]').wait_for()


@pytest.fixture(scope="module")
def planned() -> PlanResult:
    return answered({})


@pytest.fixture(scope="module")
def path(planned: PlanResult, tmp_path_factory: pytest.TempPathFactory) -> Path:
    written = tmp_path_factory.mktemp("page") / "plan.html"
    written.write_text(plan_html(planned), encoding="utf-8")
    return written


def fleet_key(counts: Mapping[Unit, int]) -> frozenset[tuple[Unit, int]]:
    return frozenset(counts.items())


@pytest.mark.xfail(
    reason="no slider moves the contracts that a plan estimates from rents; the sliders leave", strict=False
)
def test_rebilled_totals_are_those_of_a_fresh_plan_wherever_the_fleet_stays_the_same(
    planned: PlanResult, path: Path
) -> None:
    fleets, compared, settings = bills_of(planned), 0, 0
    with opened(path) as page:
        for setting in SETTINGS:
            turned_to(page, setting)
            rows = page.locator("#rebilled tbody tr")
            shown = {
                row.get_attribute("data-fleet"): float(row.get_attribute("data-usd") or "inf") for row in rows.all()
            }
            fresh = {fleet_key(count_units(bill.mix)): bill for bill in bills_of(answered(setting))}
            load = setting.get("rate", PLANNED["rate"]) / PLANNED["rate"]
            same = 0
            for number, bill in enumerate(fleets):
                counts = count_units_at(bill.mix, planned.problem, load)
                again = None if counts is None else fresh.get(fleet_key(counts))
                if again is not None:
                    same += 1
                    assert shown[str(number)] == pytest.approx(again.cost.total_usd, rel=0.005), (setting, number)
            compared += same
            settings += same > 0
    assert settings >= 20
    assert compared >= 40


def test_the_winner_changes_where_the_plan_says_it_does(planned: PlanResult, path: Path) -> None:
    assert isinstance(planned.answer, Answer)
    flip = next(flip for flip in planned.answer.flips if (flip.kind, flip.subject) == ("engineers", "amd"))
    with opened(path) as page:
        assert page.locator("#now").inner_text().startswith("As planned: NVIDIA H200 SXM at ")
        turn = page.locator('[data-turn="engineers.amd"]').inner_text()
        found = re.fullmatch(r"about ([\d.]+) engineers: AMD Instinct MI300X \| NVIDIA H200 SXM", turn)
        assert found is not None
        points_apart = 6 / 60
        assert float(found[1]) == pytest.approx(flip.at, abs=points_apart)
        pieces = page.locator('[data-strip="engineers.amd"] i')
        colours = pieces.evaluate_all("all => all.map(piece => piece.style.background)")
        assert len(set(colours)) == 2
        turned_to(page, {"amd": flip.at - points_apart})
        assert page.locator("#now").inner_text().startswith("The winner changes: AMD Instinct MI300X at ")
        page.locator("#reset").click()
        assert page.locator("#now").inner_text().startswith("As planned: ")


def test_a_slider_and_a_typed_number_move_the_same_bill(path: Path) -> None:
    cost = "document.querySelector('#rebilled tr[data-fleet=\"0\"]').dataset.usd"
    with opened(path) as page:
        planned_usd = float(page.evaluate(cost))
        slider, typed = page.locator('[data-knob="kwh.main"]'), page.locator('input[data-for="kwh.main"]')
        slider.fill("0.1296")
        moved = float(page.evaluate(cost))
        number = typed.input_value()
        assert float(number) == pytest.approx(0.13, abs=0.001)
        page.locator("#reset").click()
        assert float(page.evaluate(cost)) == planned_usd
        typed.fill(number)
        assert float(page.evaluate(cost)) == pytest.approx(moved)
        assert moved > planned_usd
        typed.fill("-3")
        assert float(page.evaluate(cost)) == pytest.approx(moved)


@pytest.mark.parametrize("width", [1200, 400])
def test_nothing_sticks_out_of_the_page(path: Path, width: int) -> None:
    with opened(path, width=width) as page:
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.locator("#knobs").is_visible()
        shown, hidden = (".wide", ".narrow") if width > 640 else (".narrow", ".wide")
        assert page.locator(shown).first.is_visible()
        assert not page.locator(hidden).first.is_visible()
        page.emulate_media(media="print")
        assert not page.locator("#knobs").is_visible()


def test_a_script_that_was_changed_does_not_run_and_the_page_still_reads(path: Path, tmp_path: Path) -> None:
    changed = path.read_text(encoding="utf-8").replace('"use strict";', '"use strict"; window.changed = true;')
    assert "window.changed" in changed
    other = tmp_path / "changed.html"
    other.write_text(changed, encoding="utf-8")
    with opened(other, may_complain_of="Content Security Policy") as page:
        assert page.evaluate("window.changed === undefined")
        assert page.locator("section.verdict").is_visible()
        assert not page.locator("#knobs").is_visible()
