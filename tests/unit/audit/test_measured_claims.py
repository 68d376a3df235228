"""Every public measurement is a claim: none may be impossible, and those set aside as too fast are caught."""

import re
from collections import defaultdict
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from audits import library
from penstock.audit.checks.speed_check import audit_speed
from penstock.audit.claims.amount import exactly
from penstock.audit.claims.speed_claims import Metric, ServedSetup, SpeedStatement
from penstock.audit.judgement import Verdict
from penstock.audit.reference_library import Library
from penstock.catalog import load_measurements
from planted import served

pytestmark = pytest.mark.refit("docs/data.md")
DATA = Path(__file__).resolve().parents[3] / "docs" / "data.md"
ROW = re.compile(
    r"\| (?P<id>\S+) \| (?P<model>\S+) (?P<weights>\S+) \| (?P<part>\S+) (?P<engine>\S+) tp(?P<tp>\d+) "
    r"\| (?P<users>[\d,]+) x (?P<input>[\d,]+) / (?P<output>[\d,]+) \| (?P<tpot>[\d.]+) \|[^|]*\| (?P<light>\d+)% \|"
)


@cache
def by_bounds() -> Library:
    """Physics alone: no measurement vouches for itself."""
    return replace(library(), efficiencies=None, measurements_of=lambda _: ())


def test_no_measurement_that_is_shipped_is_impossible() -> None:
    """Of runs of one setup and load the fastest is judged: what it is allowed, the others are."""
    fastest: dict[ServedSetup, dict[Metric, float]] = defaultdict(dict)
    rows = load_measurements()
    for row in rows:
        found = fastest[served(row)]
        if row.output_tokens_per_s is not None:
            found["throughput"] = max(found.get("throughput", 0.0), row.output_tokens_per_s)
        if row.tpot_s is not None:
            found["tpot"] = min(found.get("tpot", 1e9), row.tpot_s)
    assert len(rows) > 24_000
    assert len(fastest) > 5_000
    impossible = [
        (setup, metric, value)
        for setup, found in fastest.items()
        for metric, value in found.items()
        if judged(setup, metric, value) is Verdict.IMPOSSIBLE
    ]
    assert not impossible


def judged(setup: ServedSetup, metric: Metric, value: float) -> Verdict:
    measure = "tokens/s" if metric == "throughput" else "s"
    return audit_speed(SpeedStatement(setup=setup, metric=metric, amount=exactly(value, measure)), by_bounds()).verdict


def test_rows_set_aside_as_faster_than_light_are_caught() -> None:
    """docs/data.md lists them as data defects; nine of them are gpt-oss on H100 with 512 users."""
    listed = list(ROW.finditer(DATA.read_text(encoding="utf-8")))
    assert len(listed) >= 30
    caught = {}
    for found in listed:
        setup = ServedSetup(
            model=found["model"],
            accelerator=found["part"],
            devices=int(found["tp"]),
            precision=found["weights"],
            concurrency=_count(found["users"]),
            input_tokens=_count(found["input"]),
            output_tokens=_count(found["output"]),
            drafted=False,
        )
        caught[found["id"]] = judged(setup, "tpot", float(found["tpot"]) / 1e3).caught
    # Where memory cannot hold the users stated, fewer ran than stated: then the row is a queue, and possible.
    clear = [found["id"] for found in listed if int(found["light"]) > 105]
    assert sum(caught[ident] for ident in clear) / len(clear) > 0.7
    oss = [found["id"] for found in listed if found["model"] == "gpt-oss-120b" and found["users"] == "512"]
    assert sum(caught[ident] for ident in oss) >= 9


def _count(text: str) -> int:
    return int(text.replace(",", ""))
