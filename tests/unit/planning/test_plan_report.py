"""What people see of a plan: one screen, one page that fetches nothing, JSON, and a fleet file."""

import json
import re
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from io import StringIO
from math import inf, nan
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator
from rich.console import Console

from penstock.api.document_schemas import json_schema
from penstock.cli.commands.plan import plan_command
from penstock.cli.declared_commands import declared_command
from penstock.errors import UnreadableFile, UsageError
from penstock.fleet.fleet_file import read_fleet
from penstock.planning.plan_result import Answer, NoFleet, PlanResult
from penstock.planning.spec import default_inputs
from penstock.planning.spec.sourced_inputs import Input
from penstock.planning.uncertainty.monte_carlo import Span
from penstock.planning.verification.serving_fleet import Check, ServingFleet
from penstock.report.drawing.json_document import build
from penstock.report.drawing.plain_json import to_json
from penstock.report.plan.document import PlanDocument
from penstock.report.plan.flips import flip_sentence, flips_by_input, plain_flip
from penstock.report.plan.page import plan_html
from penstock.report.plan.plan_amounts import amount, axis_unit, spread, usd
from penstock.report.plan.rfp import rfp_pack
from penstock.report.plan.sentences import sureness
from penstock.report.plan.terminal import render_plan
from penstock.units import count_text
from small_plans import TWO_PARTS, solved

SCREEN_LINES = 45


@pytest.fixture(scope="module")
def result() -> PlanResult:
    return solved(TWO_PARTS)


@pytest.fixture(scope="module")
def page(result: PlanResult) -> str:
    return plan_html(result)


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
    assert lines[3].startswith(("Buy ", "Rent "))
    assert any(line.startswith(("NVIDIA wins", "Too close to call")) for line in lines[4:6])
    assert "What would change the answer" in text
    assert "software engineers" in text
    assert "Not checked by simulation" in text


def test_one_of_a_thing_has_no_plural() -> None:
    """A plan of one year said "1 years" in the terminal, the report and the requests to vendors."""
    year = solved(TWO_PARTS + "horizon_years: 1\n")
    assert isinstance(year.answer, Answer)
    texts = (shown(year), plan_html(year), *rfp_pack(year, year.answer).values())
    assert not [found for text in texts for found in re.findall(r"\b1 (?:year|month|week|node|server|device)s\b", text)]
    assert (amount(1.0, "years"), amount(1.5, "years"), amount(1.0, "months")) == ("1 year", "1.5 years", "1 month")
    assert (count_text(1, "node"), count_text(1200, "node"), count_text(0.5, "year")) == (
        "1 node",
        "1,200 nodes",
        "0.5 years",
    )


def test_a_plan_without_a_fleet_says_what_stands_in_the_way() -> None:
    nothing = solved(TWO_PARTS + "sites: [{name: main, power_cap_kw: 11}]\n")
    assert isinstance(nothing.answer, NoFleet)
    assert "power caps" in shown(nothing)
    assert "power caps" in plan_html(nothing)
    document = json.loads(to_json(build(PlanDocument, nothing)))
    assert document["answer"]["feasible"] is False


def test_the_json_holds_the_whole_answer(result: PlanResult) -> None:
    document = json.loads(to_json(build(PlanDocument, result)))
    answer = document["answer"]
    winner = answer["winner"]
    assert sum(line["usd"] for line in winner["cost"]["lines"]) == pytest.approx(winner["cost_usd"])
    assert {"amd", "nvidia"} <= set(answer["by_label"])
    assert all(entry["source"] for entry in document["assumptions"])
    assert sum(answer["confidence"]["probability"].values()) == pytest.approx(1)


def refused(constant: str) -> float:
    raise AssertionError(f"{constant} is not JSON")


def test_what_is_impossible_is_null_in_the_json_and_its_schema_says_so(result: PlanResult) -> None:
    answer = result.answer
    assert isinstance(answer, Answer)
    never = Span(low=inf, median=inf, high=inf)
    swing = replace(answer.swings[0], saving_at_low_usd=inf, saving_at_high_usd=-inf, cost_at_high_usd=inf)
    confidence = replace(answer.confidence, cost_usd={**answer.confidence.cost_usd, "amd": never})
    verdict = replace(answer.verdict, cost_usd=never)
    gone = replace(result, answer=replace(answer, swings=(swing,), confidence=confidence, verdict=verdict))
    document = json.loads(to_json(build(PlanDocument, gone)), parse_constant=refused)
    assert document["answer"]["confidence"]["cost_usd"]["amd"] == {"low": None, "median": None, "high": None}
    [shown_swing] = document["answer"]["tornado"]
    assert [shown_swing["saving_at_low_usd"], shown_swing["saving_at_high_usd"]] == [None, None]
    assert shown_swing["cost_at_low_usd"] == pytest.approx(swing.cost_at_low_usd)
    Draft202012Validator(json_schema("penstock.plan/2")).validate(document)


def test_the_only_choice_is_valid_json_too() -> None:
    alone = solved(re.sub(r".*id: h200.*\n", "", TWO_PARTS))
    json.loads(to_json(build(PlanDocument, alone)), parse_constant=refused)


@pytest.mark.parametrize("value", [inf, -inf, nan])
def test_no_document_is_written_that_is_not_json(value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_json({"value": value})


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


def test_the_page_runs_only_its_own_script_fetches_nothing_and_is_well_formed(page: str) -> None:
    tags = Tags()
    tags.feed(page)
    assert not {"iframe", "link", "object", "embed", "img", "form"} & set(tags.tags)
    scripts = re.findall(r"<script([^>]*)>(.*?)</script>", page, re.DOTALL)
    assert [attributes for attributes, _ in scripts] == [' type="application/json" id="bills"', ""]
    digest = b64encode(sha256(scripts[1][1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'; " in page
    assert not {"fetch", "XMLHttpRequest", "import", "eval", "innerHTML"} & set(re.findall(r"\w+", scripts[1][1]))
    assert all(target.startswith("#") for target in tags.fetched)
    assert "url(http" not in page
    assert "@import" not in page
    assert "default-src 'none'" in page
    assert not tags.open
    ids = re.findall(r'\sid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert page.count("<figure>") >= 4
    assert page.count('class="narrow"') == page.count('class="wide"')


JARGON = re.compile(r"\b(tp\d|TPOT|TTFT|SLO|[Dd]raws?|[Rr]egret|[Pp]resent value|[Rr]eplicas?|h200_sxm|mi300x)\b")


class Text(HTMLParser):
    """Collects what is read, by the part of the page it stands in."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: dict[str, list[str]] = {}
        self.part = "head"
        self.silent = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.silent += tag in {"style", "script", "svg"}
        if tag == "section" and (ident := dict(attrs).get("id")):
            self.part = ident

    def handle_endtag(self, tag: str) -> None:
        self.silent -= tag in {"style", "script", "svg"}

    def handle_data(self, data: str) -> None:
        if not self.silent and data.strip():
            self.parts.setdefault(self.part, []).append(" ".join(data.split()))


def read(page: str) -> dict[str, list[str]]:
    text = Text()
    text.feed(page)
    return text.parts


def test_the_page_reads_as_it_did(page: str, golden: Callable[[str, str], None]) -> None:
    parts = read(page)
    shown = (f"== {part}\n" + "\n".join(lines) for part, lines in parts.items())
    golden("plan_page.txt", "\n\n".join(shown))


def test_who_pays_reads_no_jargon_and_who_runs_it_does(page: str) -> None:
    parts = read(page)
    assert not [line for line in (*parts["head"], *parts["pays"]) if JARGON.search(line)]
    assert [line for line in parts["runs"] if JARGON.search(line)]


def test_page_one_has_the_order_the_total_and_every_option(result: PlanResult, page: str) -> None:
    assert isinstance(result.answer, Answer)
    paid = " ".join(read(page)["pays"])
    winner = result.answer.winner
    assert usd(winner.cash.first_order_usd) in paid
    assert usd(sum(quarter.total_usd for quarter in winner.cash.quarters)) in paid
    for bill in result.answer.by_label.values():
        assert usd(bill.cost.total_usd) in paid
    assert "What to ask vendors" in paid


def test_what_is_owned_and_let_go_is_said_on_page_one() -> None:
    owned = TWO_PARTS + "owned: [{id: 80xh200, age_years: 1, resale_usd: 10k}]\n"
    paid = " ".join(read(plan_html(solved(owned)))["pays"])
    assert re.search(r"Sell \d of your NVIDIA H200 SXM nodes, and keep \d nodes of 8 NVIDIA H200 SXM", paid)
    assert re.search(
        r"\d of 10 NVIDIA H200 SXM nodes kept: running one to the end, instead of selling it, costs \$", paid
    )
    assert "If you owned no nodes to use or sell, the plan would cost $" in paid
    # Sales lower what is paid, but not the cost in today's money, which may be the larger of the two.
    assert re.search(r"paid in total over 3 years after \$\S+ from sales\.", paid)
    assert "in today's money as planned without the sales; $" in paid


def test_where_the_rules_leave_one_kind_the_next_fleet_of_it_is_named() -> None:
    third = "  - {id: mi325x, buy_usd: 24000, tp: [1]}\nacquire: [buy]\nconstraints: {min_vendors: 2}\n"
    speeds = {"mi300x": 4.0, "h200_sxm": 6.0, "mi325x": 4.4}
    page = plan_html(solved(TWO_PARTS.replace("acquire: [buy]\n", third), speeds))
    paid = " ".join(read(page)["pays"])
    assert 'class="verdict alone"' in page
    assert re.search(r"next fleet of that kind, NVIDIA H200 SXM \+ AMD Instinct MI3\d\dX, costs \$", paid)
    assert "The minimum number of vendors: $" in paid
    assert "No other fleet can do the work" not in paid


def test_only_a_simulated_fleet_that_rarely_loses_is_green(result: PlanResult) -> None:
    assert isinstance(result.answer, Answer)
    proven = solved(
        TWO_PARTS, verify_of=lambda _: (Check(workload="chat", attainment_fraction=1, required_fraction=1),)
    )
    assert isinstance(proven.answer, Answer)
    surely = replace(proven.answer.verdict, of_fleets="wins", probability=0.95)
    cases = {
        "sure": replace(proven.answer, verdict=surely),
        "likely": replace(result.answer, verdict=surely),
        "open": replace(proven.answer, verdict=replace(surely, of_fleets="too close to call")),
        "alone": replace(proven.answer, verdict=replace(surely, of_fleets="only choice", others_usd={})),
    }
    for level, answer in cases.items():
        assert sureness(answer) == level
        assert f'class="verdict {level}"' in plan_html(replace(proven, answer=answer))
    assert sureness(replace(cases["sure"], verdict=replace(surely, probability=0.89))) == "likely"
    assert sureness(replace(cases["sure"], regret_usd=2.0)) == "open"
    missed = (
        replace(
            proven.answer.verified[0], checks=(Check(workload="chat", attainment_fraction=0.9, required_fraction=0.95),)
        ),
    )
    assert sureness(replace(cases["sure"], verified=missed)) == "unmet"


def test_every_input_stands_under_who_can_confirm_it(page: str) -> None:
    assumed = read(page)["assumed"]
    heads = ["Procurement: quotes", "Facilities: power", "Engineering: demand", "Finance: rates"]
    places = [next(at for at, line in enumerate(assumed) if line.startswith(head)) for head in heads]
    assert places == sorted(places)
    assert places[0] < assumed.index("h200_sxm: price") < places[1] < assumed.index("site: PUE") < places[2]
    assert places[2] < assumed.index("amd: extra engineers, floor") < places[3] < assumed.index("discount rate")


def test_the_page_names_every_assumption_with_its_source_and_marks_defaults(result: PlanResult, page: str) -> None:
    for entry in result.assumptions:
        assert entry.name.split(":")[0] in page
    assert page.count('<tr class="default">') == sum(not entry.input.given for entry in result.assumptions)


def test_the_same_plan_gives_the_same_bytes(page: str) -> None:
    assert page == plan_html(solved(TWO_PARTS, again=True))


def test_a_hostile_name_stays_text() -> None:
    named = TWO_PARTS.replace("name: two parts", "name: '<script>alert(1)</script>$css'")
    site = "sites: [{name: '</script><script>alert(2)//'}]\n"
    page = plan_html(solved(named + site))
    assert page.count("<script") == 2
    assert "alert(2)//" in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;$css" in page


def test_a_simulated_fleet_is_reported_with_what_was_added_and_the_regret() -> None:
    def strict(fleet: ServingFleet) -> tuple[Check, ...]:
        enough = sum(pool.replicas for pool in fleet.pools) >= 40
        return (Check(workload="chat", attainment_fraction=0.97 if enough else 0.2, required_fraction=0.95),)

    simulated = solved(TWO_PARTS, verify_of=strict)
    assert isinstance(simulated.answer, Answer)
    said = " ".join(shown(simulated).split())
    assert re.search(r"Checked by simulation: 97% of chat requests in time at 1\.\d\d x the peak rate", said)
    assert "no cheaper fleet passed." in shown(simulated)
    assert re.search(r"97% of chat requests in time at 1\.\d\d x the peak rate \(required 95%\)", plan_html(simulated))


def test_flips_read_like_sentences(result: PlanResult) -> None:
    assert isinstance(result.answer, Answer)
    sentences = [flip_sentence(*ends) for ends in flips_by_input(result.answer.flips)]
    assert any("AMD is cheaper if it needs fewer than" in sentence for sentence in sentences)
    assert any(re.search(r"h200_sxm costs more than \$[\d,]+ a device", sentence) for sentence in sentences)


def test_an_input_that_changes_the_answer_both_ways_is_one_sentence(result: PlanResult) -> None:
    """Attack: "H200 delivers more than 1.00 x" and "less than 0.99 x", both "then NVIDIA", as two lines."""
    assert isinstance(result.answer, Answer)
    first = next(flip for flip in result.answer.flips if flip.kind == "throughput")
    near = replace(first, winner="mix", instead="nvidia", instead_named=("nvidia",), within_range=True)
    ends = [replace(near, at=1.0044, side="above"), replace(near, at=0.9859, side="below")]
    (both,) = flips_by_input(ends)
    cheapest = f"A mix is cheapest only while {first.subject} delivers 0.986 to 1.004 x the estimate"
    assert flip_sentence(*both) == f"{cheapest} (assumed 1.00; within its range); otherwise NVIDIA is cheaper"
    assert plain_flip(both, {}).endswith(
        "the choice holds (planned: 1.00 x the estimate); otherwise NVIDIA is cheaper."
    )
    other = replace(ends[1], instead="amd", instead_named=("amd",))
    assert flip_sentence(*flips_by_input([ends[0], other])[0]).endswith(
        "below that AMD is cheaper, above that NVIDIA is cheaper"
    )


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
    for entry in (value for value in vars(default_inputs).values() if isinstance(value, Input)):
        assert amount(entry.value, entry.unit).startswith("$") == ("USD" in entry.unit)


def command() -> click.Command:
    return declared_command(plan_command, "plan")


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
    assert isinstance(failed.exception, (UsageError, UnreadableFile))
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


@pytest.mark.parametrize("largest", [5.0, 4_000.0, 12_000.0, 836_000.0, 999_999.0, 1_000_000.0, 28_240_000.0])
def test_the_axis_of_a_chart_has_the_digits_of_its_dollars(largest: float) -> None:
    unit, words = axis_unit(largest)
    assert unit == 1 or 1 <= largest / unit < 1_000
    assert {"M": "million dollars", "k": "thousand dollars"}.get(usd(largest)[-1], "dollars") == words
