"""What Python gets is what the command prints: byte for byte, short to look at, flat for a data frame."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

import penstock
from penstock.api.answer import ApiAnswer
from penstock.api.document_schemas import DOCUMENTS, json_schema
from penstock.catalog import load_accelerator
from penstock.checkpoint import open_checkpoint
from penstock.cli.root import app
from penstock.errors import UsageError
from penstock.report.drawing.plain_json import to_json
from penstock.workload import parse_slo

LLAMA, R1 = "llama-3.1-70b", "deepseek-r1"
Case = tuple[tuple[str, ...], Callable[[], ApiAnswer]]
CASES: dict[str, Case] = {
    "fit": (
        ("fit", LLAMA, "--on", "mi300x,h100:2,h100", "--context", "32k"),
        lambda: penstock.fit(LLAMA, "mi300x,h100:2,h100", context="32k"),
    ),
    "fit together": (
        ("fit", f"{LLAMA},qwen3-8b", "--on", "mi300x,h100", "--context", "4k"),
        lambda: penstock.fit_together(f"{LLAMA},qwen3-8b", "mi300x,h100", context="4k"),
    ),
    "predict": (
        ("predict", R1, "--on", "mi355x:8,h100:2", "--in", "8192", "--concurrency", "32", "--mtp"),
        lambda: penstock.predict(R1, "mi355x:8,h100:2", input_tokens="8k", concurrency=32, mtp=True),
    ),
    "predict one token": (
        ("predict", LLAMA, "--on", "mi300x", "--out", "1"),
        lambda: penstock.predict(LLAMA, "mi300x", output_tokens=1),
    ),
    "predict the roofline": (
        ("predict", LLAMA, "--on", "mi300x", "--roofline"),
        lambda: penstock.predict(LLAMA, "mi300x", roofline=True),
    ),
    "predict apart": (
        ("predict", R1, "--on", "gb200:8", "--ep", "--replicas", "4", "--prefill", "1", "--prefill-split", "dp8,ep"),
        lambda: penstock.predict(R1, "gb200:8", ep=True, replicas=4, prefill=1, prefill_split="dp8,ep"),
    ),
    "predict a curve": (
        ("predict", LLAMA, "--on", "mi300x,h100:4", "--in", "2k", "--out", "400", "--concurrency", "1,16,64"),
        lambda: penstock.sweep(
            LLAMA, "mi300x,h100:4", input_tokens="2k", output_tokens=400, concurrency=[64, 1, 16, 16]
        ),
    ),
    "simulate": (
        (
            *("simulate", LLAMA, "--on", "mi300x,h100", "--in", "512", "--out", "64", "--rate", "2", "--capacity"),
            *("--requests", "200", "--slo", "ttft=1s,tpot=80ms", "--arrivals", "gamma:2"),
        ),
        lambda: penstock.simulate(
            *(LLAMA, "mi300x,h100"),
            rate=2,
            capacity=True,
            requests=200,
            slo="ttft=1s,tpot=80ms",
            arrivals="gamma:2",
            input_tokens=512,
            output_tokens=64,
        ),
    ),
    "simulate apart": (
        (
            *("simulate", R1, "--on", "gb200:8", "--ep", "--prefill", "1", "--users", "8", "--requests", "40"),
            *("--in", "512", "--out", "64"),
        ),
        lambda: penstock.simulate(
            R1, "gb200:8", ep=True, prefill=1, users=8, requests=40, input_tokens=512, output_tokens=64
        ),
    ),
    "preflight": (
        ("preflight", "gpt-oss-120b", "--on", "mi300x,h100", "--host", "rocm=7.2.3"),
        lambda: penstock.preflight("gpt-oss-120b", "mi300x,h100", host={"rocm": "7.2.3"}),
    ),
    "audit": (
        ("audit", "llama-3.1-70b fp16 on 1x h100: 2800 tok/s"),
        lambda: penstock.audit("llama-3.1-70b fp16 on 1x h100: 2800 tok/s"),
    ),
    "catalog list": (("catalog", "list", "--all"), lambda: penstock.catalog("list", everything=True)),
    "catalog show": (("catalog", "show", "mi300x"), lambda: penstock.catalog("show", "mi300x")),
    "catalog diff": (("catalog", "diff", "mi300x", "h100"), lambda: penstock.catalog("diff", "mi300x", "h100")),
    "catalog prices": (
        ("catalog", "prices", "mi300x", "--kind", "rent_on_demand"),
        lambda: penstock.catalog("prices", "mi300x", kind="rent_on_demand"),
    ),
    "catalog models": (("catalog", "models"), lambda: penstock.catalog("models")),
}


@cache
def answer(case: str) -> ApiAnswer:
    return CASES[case][1]()


@pytest.mark.parametrize("case", CASES)
def test_python_gets_the_document_that_the_command_prints_byte_for_byte(case: str) -> None:
    printed = CliRunner().invoke(app, [*CASES[case][0], "--json"])
    assert printed.stdout == json.dumps(answer(case).to_dict(), indent=2, ensure_ascii=False) + "\n"
    assert printed.stdout == answer(case).to_json() + "\n"
    assert (printed.exit_code == 0) is answer(case).good


@pytest.mark.parametrize("case", CASES)
def test_an_answer_is_short_to_print_flat_in_rows_and_drawn_in_a_notebook(case: str) -> None:
    found = answer(case)
    assert len(repr(found)) < 200
    assert repr(found).startswith(type(found).__name__)
    rows = found.rows()
    assert rows
    assert all(isinstance(cell, str | int | float | None) for row in rows for cell in row.values())
    html = found._repr_html_()
    assert html.startswith("<pre")
    assert "…" not in html


def closed(schema: Any) -> Any:  # noqa: ANN401 - JSON
    """Allow nothing the schema does not name, so that a field nobody described is found."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    more = {"additionalProperties": False} if "properties" in schema else {}
    return {key: closed(value) for key, value in schema.items()} | more


def complaints(document: dict[str, Any]) -> list[str]:
    validator = Draft202012Validator(closed(json_schema(document["schema"])))
    return [f"{error.json_path}: {error.message[:200]}" for error in validator.iter_errors(document)]


@pytest.mark.parametrize("case", CASES)
def test_a_document_names_its_schema_and_holds_nothing_the_schema_does_not(case: str) -> None:
    document = json.loads(answer(case).to_json())
    assert next(iter(document)) == "schema"
    assert complaints(document) == []


def test_a_document_that_lost_a_field_or_gained_one_is_refused() -> None:
    document = json.loads(answer("fit").to_json())
    lost = {key: value for key, value in document.items() if key != "context_tokens"}
    assert complaints(lost)
    assert complaints(document | {"colour": "red"})
    assert complaints(document | {"deployments": [document["deployments"][0] | {"devices": "two"}]})


def test_every_schema_is_a_schema_and_named_as_its_document() -> None:
    for name in DOCUMENTS:
        schema: Any = json_schema(name)
        Draft202012Validator.check_schema(schema)
        assert schema["properties"]["schema"]["const"] == name


def test_words_and_typed_objects_ask_the_same() -> None:
    words = penstock.fit(LLAMA, "mi300x,h100:2", context="32k")
    typed = penstock.fit(
        open_checkpoint(LLAMA).spec, [load_accelerator("mi300x"), ("h100", 2)], context=32 * 1024, kv="auto"
    )
    assert words.to_json() == typed.to_json()
    mixed = penstock.fit(LLAMA, ["mi300x", (load_accelerator("h100"), 2)], context=32_768)
    assert mixed.to_json() == words.to_json()


def test_a_promise_may_be_typed_or_read() -> None:
    words = penstock.simulate(LLAMA, "mi300x", rate=2, requests=50, slo="ttft=1s,tpot=80ms")
    typed = penstock.simulate(LLAMA, "mi300x", rate=2.0, requests=50, slo=parse_slo("ttft=1s,tpot=80ms"))
    assert words.to_json() == typed.to_json()


@pytest.mark.parametrize(
    ("ask", "complaint"),
    [
        (lambda: penstock.fit(LLAMA, []), "no accelerator is named"),
        (lambda: penstock.fit(LLAMA, ("h100", 0)), "the device count must be from 1 to 4096"),
        (lambda: penstock.fit(LLAMA, "h100", tp=0), "tp must be at least 1, not 0"),
        (lambda: penstock.fit(LLAMA, "h100", context=0), "is not a token count"),
        (lambda: penstock.fit(LLAMA, "h100", memory_fraction=0.0), "memory_fraction must be at least 0.05, not 0"),
        (lambda: penstock.predict(LLAMA, "h100", concurrency=0), "concurrency must be at least 1, not 0"),
        (lambda: penstock.predict(LLAMA, "h100", concurrency=-1), "concurrency must be at least 1, not -1"),
        (lambda: penstock.sweep(LLAMA, "h100", concurrency="1,x"), "'x' is not a number of requests in flight"),
        (lambda: penstock.sweep(LLAMA, "h100", concurrency=[1, -4]), "'-4' is not a number of requests in flight"),
        (lambda: penstock.sweep(LLAMA, "h100", concurrency=[]), "concurrency takes from 1 to 64 numbers, not 0"),
        (lambda: penstock.sweep(R1, "gb200:8", concurrency="1,2", prefill=1), "no prediction with --prefill"),
        (lambda: penstock.simulate(LLAMA, "h100"), "no load is given"),
        (lambda: penstock.catalog("show"), "takes 1 accelerators, not 0"),
        (lambda: penstock.preflight(LLAMA), "no accelerator is named"),
    ],
)
def test_what_cannot_be_meant_is_one_line(ask: Callable[[], object], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint) as raised:
        ask()
    assert "\n" not in str(raised.value)


def test_the_schemas_are_published_as_they_are_made() -> None:
    folder = Path(__file__).resolve().parents[3] / "docs" / "schemas"
    for name in DOCUMENTS:
        published = (folder / f"{name.replace('/', '-')}.json").read_text(encoding="utf-8")
        assert published == to_json(json_schema(name)) + "\n", "out of date; run `make docs`"
    assert len(list(folder.glob("*.json"))) == len(DOCUMENTS)


PLAN = """
name: a small chat service
start: 2026-12-01
workloads:
  - name: chat
    model: llama-3.1-8b
    slo: ttft=1s,tpot=50ms
    requests_per_s: 20
    lengths: [{input: 1k, output: 256, share: 100%}]
accelerators: [{id: mi300x, tp: [1]}, {id: h100, tp: [1]}]
acquire: [rent]
"""


def test_a_plan_is_the_same_from_python_and_as_its_schema_says(tmp_path: Path) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(PLAN, encoding="utf-8")
    found = penstock.plan(file)
    assert CliRunner().invoke(app, ["plan", str(file), "--json"]).stdout == found.to_json() + "\n"
    assert complaints(json.loads(found.to_json())) == []
    assert len(repr(found)) < 200
    assert found.rows()[0]["rank"] == 1
