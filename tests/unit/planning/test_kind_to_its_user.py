"""Amounts are read as people write them; what cannot be meant is asked about; editors know every key."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from conftest import REPOSITORY
from penstock.errors import TraceError, UsageError
from penstock.planning.spec.example_plan import EXAMPLE_PLAN
from penstock.planning.spec.plan_file import PLAN_FILE
from penstock.workload import parse_columns, read_trace
from small_plans import PLAIN, TWO_PARTS, plan_of

PLANS = sorted((REPOSITORY / "examples" / "plans").glob("*.yaml"))


@pytest.mark.parametrize(
    ("written", "meant"),
    [("25k", 25_000), ("$25,000", 25_000), ("$25k", 25_000), ("25 k", 25_000), ("0.025M", 25_000), ("25_000", 25_000)],
)
def test_money_is_read_as_people_write_it(written: str, meant: float) -> None:
    accelerator = plan_of(
        TWO_PARTS.replace("buy_usd: {value: 15000, low: 12000, high: 18000}", f'buy_usd: "{written}"')
    ).accelerators[0]
    assert accelerator.buy is not None
    assert accelerator.buy.value == pytest.approx(meant)


@pytest.mark.parametrize("written", ["$", "k", "25kk", "--25", "-$-3", "25 thousand"])
def test_what_is_no_amount_is_refused(written: str) -> None:
    with pytest.raises(UsageError, match="is not a number; write 12"):
        plan_of(TWO_PARTS.replace("buy_usd: {value: 15000, low: 12000, high: 18000}", f'buy_usd: "{written}"'))


def test_a_discount_that_falls_with_the_volume_is_refused() -> None:
    falling = "tp: [1], discounts: [{devices: 64, off: 20%}, {devices: 128, off: 5%}]}"
    with pytest.raises(UsageError, match="a discount for more devices must be larger"):
        plan_of(TWO_PARTS.replace("tp: [1]}", falling, 1))


def test_percent_without_its_sign_is_hinted_at() -> None:
    with pytest.raises(UsageError, match="write 8% if percent is meant"):
        plan_of(PLAIN.replace("discount_rate: 0", "discount_rate: 8"))
    with pytest.raises(UsageError, match="write 40% if percent is meant"):
        plan_of(PLAIN.replace("mean_load: 50%", "mean_load: 50%\n    growth_per_year: 40"))


@pytest.mark.parametrize(
    ("before", "after", "question"),
    [
        ("usd_per_kwh: 0.1", "usd_per_kwh: 8.7", r"8.7 \$ per kWh.*did you mean 0.087\?"),
        ("buy_usd: 15000", "buy_usd: 28", r"28 \$ a device;.*did you mean 28,000\?"),
        ("tpot=50ms", "tpot=60s", r"60 s per token.*did you mean 0.06\?"),
        ("rent_usd_per_hour: 3", "rent_usd_per_hour: 2600", r"2,600 \$ a device-hour.*did you mean 2.6\?"),
        ("rent_usd_per_hour: 3", "rent_usd_per_hour: 24", r"24 \$ a device-hour.*did you mean 3\?"),
        ("mean_load: 50%", "growth_per_year: 5", r"5 times more each year.*did you mean 0.05\?"),
        ("salvage: 0", "salvage: 0, price_change_per_year: 2", r"2 times more each year.*did you mean 0.02\?"),
        (
            "nvidia: {engineers: 0}",
            "nvidia: {software_gain_per_year: 3}",
            r"3 times more each year.*did you mean 0.03\?",
        ),
        ("start: 2027", "start: 2020", r"start is 2020-.*usual are the years 2024 to 2039"),
        ("engineer_usd_per_year: 300000", "engineer_usd_per_year: 280", r"did you mean 280,000\?"),
    ],
)
def test_an_amount_that_cannot_be_meant_is_asked_about(before: str, after: str, question: str) -> None:
    text = PLAIN.replace(before, after)
    assert text != PLAIN
    with pytest.raises(UsageError, match=question):
        plan_of(text)
    assert plan_of(text + "sure: true\n").name == "plain figures"


def test_no_shipped_plan_is_asked_about() -> None:
    for path in PLANS:
        plan_of(path.read_text(encoding="utf-8"))
    plan_of(EXAMPLE_PLAN)


def test_a_part_may_be_written_with_its_number() -> None:
    plan = plan_of(re.sub(r"accelerators:\n(.*\n)+?acquire", "accelerators: [8xh200, mi300x]\nacquire", TWO_PARTS))
    assert [(accelerator.id, accelerator.node_devices) for accelerator in plan.accelerators] == [
        ("h200", 8),
        ("mi300x", None),
    ]


FULL = """
workloads:
  - {name: a, model: m, slo: "ttft=1s,tpot=50ms", users: 5, lengths: [{input: 1, output: 1}]}
  - {name: b, model: m, slo: "ttft=1s,tpot=50ms", trace: t.csv, columns: {arrival: ts}}
accelerators: [{id: x, discounts: [{devices: 8, off: 1%}], contracts: [{years: 1, usd_per_hour: {value: 2}}]}]
owned: [{id: x, nodes: 2}]
stacks: {amd: {}, nvidia: {}, intel: {}, google: {}}
sites: [{name: s}]
finance: {}
node: {}
constraints: {}
"""


def test_editors_take_what_the_reader_takes() -> None:
    schema = PLAN_FILE.schema()
    for text in (FULL, EXAMPLE_PLAN, *(path.read_text(encoding="utf-8") for path in PLANS)):
        jsonschema.validate(loaded(text), schema)


def loaded(text: str) -> Any:  # noqa: ANN401 - a JSON document
    """Load a plan as editors do, which follow YAML 1.2: `off` is a word, and a date is text."""
    return json.loads(json.dumps(yaml.safe_load(text.replace("off:", '"off":')), default=str))


@pytest.mark.parametrize(
    "place",
    [
        (),
        ("workloads", 0),
        ("workloads", 0, "lengths", 0),
        ("accelerators", 0),
        ("accelerators", 0, "discounts", 0),
        ("accelerators", 0, "contracts", 0),
        ("accelerators", 0, "contracts", 0, "usd_per_hour"),
        ("owned", 0),
        ("stacks",),
        ("stacks", "amd"),
        ("sites", 0),
        ("finance",),
        ("node",),
        ("constraints",),
    ],
)
def test_a_key_editors_do_not_offer_is_refused_and_the_known_ones_are_named(place: tuple[str | int, ...]) -> None:
    document = loaded(FULL)
    table = document
    for step in place:
        table = table[step]
    table["zebra"] = "red"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, PLAN_FILE.schema())
    with pytest.raises(UsageError, match=r"plan.yaml:\d+: `zebra` is not a key of .*; known keys: \w+, \w+"):
        plan_of(yaml.safe_dump(document, sort_keys=False))


TRACE = """timestamp,prompt_tokens,completion_tokens
{rows}
"""


def test_a_trace_of_another_tool_is_guessed_and_told(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(TRACE.format(rows="\n".join(f"{1763200000 + n},{100 + n},{10 + n}" for n in range(5))))
    trace = read_trace(path)
    assert trace.mapping == {"arrival": "timestamp", "input": "prompt_tokens", "output": "completion_tokens"}
    (block,) = trace.blocks()
    assert block.arrival_s.tolist() == [0, 1, 2, 3, 4]
    assert block.input_tokens.tolist() == [100, 101, 102, 103, 104]


@pytest.mark.parametrize(
    "clock",
    [
        [f"{1763200000 + n}" for n in range(3)],
        [f"{(1763200000 + n) * 1000}" for n in range(3)],
        [f"{(1763200000 + n) * 10**6}" for n in range(3)],
        [f"{(1763200000 + n) * 10**9}" for n in range(3)],
        [f"2026-11-15T10:00:0{n}Z" for n in range(3)],
        ["0", "1", "2"],
    ],
)
def test_a_clock_is_told_by_its_digits(tmp_path: Path, clock: list[str]) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(TRACE.format(rows="\n".join(f"{when},5,5" for when in clock)))
    (block,) = read_trace(path).blocks()
    assert block.arrival_s.tolist() == pytest.approx([0, 1, 2])


def test_columns_may_be_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("t,p,c\n0,5,6\n1000,7,8\n")
    with pytest.raises(TraceError, match="name the columns"):
        read_trace(path)
    trace = read_trace(path, columns=parse_columns("arrival=t,input=p,output=c,unit=ms"))
    (block,) = trace.blocks()
    assert block.arrival_s.tolist() == [0, 1]
    assert block.output_tokens.tolist() == [6, 8]
    with pytest.raises(TraceError, match="no column 'x'"):
        read_trace(path, columns=parse_columns("arrival=x,input=p,output=c"))
    with pytest.raises(TraceError, match="no column is named for output"):
        read_trace(path, columns=parse_columns("arrival=t,input=p"))
    with pytest.raises(UsageError, match="is not MEANING=COLUMN"):
        parse_columns("when=t")


def test_two_workloads_of_one_name_are_refused() -> None:
    """Attack: the second one was planned for nobody, and the fleet was called verified."""
    chat = "{name: chat, model: llama-3.1-8b, slo: ttft=1s, requests_per_s: 1, lengths: [{input: 1k, output: 9}]}"
    with pytest.raises(UsageError, match="two workloads are called 'chat'; give each workload a different name"):
        plan_of(PLAIN.replace("workloads:", f"workloads:\n  - {chat}", 1))
