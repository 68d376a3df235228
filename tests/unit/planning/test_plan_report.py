"""What people see of a plan: one screen, one page without a script, JSON, and a fleet file."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from penstock.cli.commands.plan import plan_command
from penstock.errors import UsageError
from penstock.fleet.file import read_fleet
from penstock.planning.asked.inputs import DEFAULTS
from penstock.planning.make import Answer, NoFleet, PlanResult
from penstock.planning.proof.verify import Check, ServingFleet
from penstock.report.drawing.plain import to_json
from penstock.report.plan.document import plan_document
from penstock.report.plan.page import plan_html
from penstock.report.plan.terminal import render_plan
from penstock.report.plan.words import amount, flip_sentence, spread, usd
from small_plans import TWO_PARTS, solved

SCREEN_LINES = 45


@pytest.fixture(scope="module")
def result() -> PlanResult:
    return solved(TWO_PARTS)


def shown(result: PlanResult, width: int = 110) -> str:
    console = Console(file=StringIO(), width=width, color_system=None)
    console.print(render_plan(result, width))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_the_summary_fits_a_screen_and_answers_first(result: PlanResult) -> None:
    text = shown(result)
    lines = text.splitlines()
    assert len(lines) <= SCREEN_LINES
    assert max(len(line) for line in lines) <= 110
    assert lines[3].startswith(("NVIDIA wins", "Too close to call"))
    assert "would change the answer" in text
    assert "software engineers" in text
    assert "not simulated" in text


def test_a_plan_without_a_fleet_says_what_stands_in_the_way() -> None:
    nothing = solved(TWO_PARTS + "sites: [{name: main, power_cap_kw: 11}]\n")
    assert isinstance(nothing.answer, NoFleet)
    assert "power caps" in shown(nothing)
    assert "power caps" in plan_html(nothing)
    document = json.loads(to_json(plan_document(nothing)))
    assert document["answer"]["feasible"] is False


def test_the_json_holds_the_whole_answer(result: PlanResult) -> None:
    document = json.loads(to_json(plan_document(result)))
    answer = document["answer"]
    winner = answer["winner"]
    assert sum(line["usd"] for line in winner["cost"]["lines"]) == pytest.approx(winner["cost_usd"])
    assert {"amd", "nvidia"} <= set(answer["by_label"])
    assert all(entry["source"] for entry in document["assumptions"])
    assert sum(answer["confidence"]["probability"].values()) == pytest.approx(1)


class Tags(HTMLParser):
    """Collects tags and everything that could make a browser fetch something."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.fetched: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in {"meta", "br", "img", "path", "rect", "line"}:
            self.open.append(tag)
        self.fetched += [
            value or "" for name, value in attrs if name in {"src", "href", "xlink:href", "data", "action"}
        ]
        assert not any(name.startswith("on") for name, _ in attrs)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.open:
            while self.open.pop() != tag:
                pass


def test_the_page_has_no_script_fetches_nothing_and_is_well_formed(result: PlanResult) -> None:
    page = plan_html(result)
    tags = Tags()
    tags.feed(page)
    assert not {"script", "iframe", "link", "object", "embed", "img"} & set(tags.tags)
    assert all(target.startswith("#") for target in tags.fetched)
    assert "url(http" not in page
    assert "@import" not in page
    assert "default-src 'none'" in page
    assert not tags.open
    ids = re.findall(r'\sid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert page.count("<figure>") >= 4
    assert page.count('class="narrow"') == page.count('class="wide"')


def test_the_page_names_every_assumption_with_its_source_and_marks_defaults(result: PlanResult) -> None:
    page = plan_html(result)
    for entry in result.assumptions:
        assert entry.name.split(":")[0] in page
    assert page.count('<tr class="default">') == sum(not entry.input.given for entry in result.assumptions)


def test_the_same_plan_gives_the_same_bytes(result: PlanResult) -> None:
    assert plan_html(result) == plan_html(solved(TWO_PARTS))


def test_a_hostile_name_stays_text() -> None:
    hostile = solved(TWO_PARTS.replace("name: two parts", "name: '<script>alert(1)</script>$css'"))
    page = plan_html(hostile)
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;$css" in page


def test_a_simulated_fleet_is_reported_with_what_was_added_and_the_regret() -> None:
    def strict(fleet: ServingFleet) -> tuple[Check, ...]:
        enough = sum(pool.replicas for pool in fleet.pools) >= 40
        return (Check(workload="chat", attainment_fraction=0.97 if enough else 0.2, required_fraction=0.95),)

    simulated = solved(TWO_PARTS, verify_of=strict)
    assert isinstance(simulated.answer, Answer)
    assert "simulated: the fleet meets its SLO (chat 97.0%)" in shown(simulated)
    assert "regret" in shown(simulated)
    assert "97.0% of 95%" in plan_html(simulated)


def test_flips_read_like_sentences(result: PlanResult) -> None:
    assert isinstance(result.answer, Answer)
    sentences = [flip_sentence(flip) for flip in result.answer.flips]
    assert any("extra AMD engineers" in sentence for sentence in sentences)
    assert any(re.search(r"h200_sxm costs more than \$[\d,]+ a device", sentence) for sentence in sentences)


def test_amounts_are_written_as_people_say_them() -> None:
    assert [usd(value) for value in (999, 12_345, 1_234_567, 123_456_789, -2_000_000, float("inf"))] == [
        "$999",
        "$12k",
        "$1.23M",
        "$123M",
        "-$2.00M",
        "-",
    ]
    assert amount(0.08, "per year") == "8.0% per year"
    assert amount(1.95, "USD/device/hour") == "$1.95 a device-hour"
    assert amount(22_000, "USD/device") == "$22,000 a device"
    assert spread(1.6, 3, "USD/device/hour") == "$1.60 to $3.00 a device-hour"
    assert spread(0.05, 0.12, "per year") == "5.0% to 12.0% per year"
    assert spread(0.57, 1.26, "x estimate") == "0.57 to 1.26 x the estimate"
    assert spread(0, 6, "engineers") == "0 to 6 engineers"


def test_every_default_in_dollars_is_written_in_dollars() -> None:
    for entry in DEFAULTS.values():
        assert amount(entry.value, entry.unit).startswith("$") == ("USD" in entry.unit)


def command() -> typer.Typer:
    app = typer.Typer()
    app.command()(plan_command)
    return app


def test_init_prints_a_plan_that_can_be_read_back(tmp_path: Path) -> None:
    printed = CliRunner().invoke(command(), ["--init"])
    assert printed.exit_code == 0
    path = tmp_path / "plan.yaml"
    path.write_text(printed.stdout)
    assert "workloads:" in printed.stdout


def test_the_command_writes_the_page_and_the_fleet_and_exits_1_without_a_fleet(tmp_path: Path) -> None:
    path, page, fleet = tmp_path / "plan.yaml", tmp_path / "plan.html", tmp_path / "fleet.yaml"
    path.write_text(TWO_PARTS)
    done = CliRunner().invoke(command(), [str(path), "--html", str(page), "--fleet", str(fleet), "--json"])
    assert done.exit_code == 0
    assert json.loads(done.stdout)["answer"]["feasible"] is True
    assert page.read_text().startswith("<!doctype html>")
    assert read_fleet(fleet.read_text(), fleet.name).name == "two parts"
    path.write_text(TWO_PARTS + "sites: [{name: main, power_cap_kw: 11}]\n")
    assert CliRunner().invoke(command(), [str(path)]).exit_code == 1


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00", b"a: [", b"x" * 1_100_000])
def test_a_file_that_is_no_plan_is_one_line(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "plan.yaml"
    if content is not None:
        path.write_bytes(content)
    failed = CliRunner().invoke(command(), [str(path)])
    assert isinstance(failed.exception, UsageError)
    assert "\n" not in str(failed.exception)


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(TWO_PARTS)
    failed = CliRunner().invoke(command(), [str(path), "--fleet", str(tmp_path / "nowhere" / "fleet.yaml")])
    assert isinstance(failed.exception, UsageError)
    assert "nowhere" in str(failed.exception)


def test_a_note_is_shown_on_the_page(result: PlanResult) -> None:
    noted = replace(result, resolved=replace(result.resolved, plan=replace(result.plan, note="for the <board>")))
    assert "for the &lt;board&gt;" in plan_html(noted)
