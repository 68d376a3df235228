"""Every public measurement is a claim: none may be impossible, and those set aside as too fast are caught."""

import csv
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

pytestmark = pytest.mark.refit("tools/results/data-faster-than-roofline.csv")
RESULTS = Path(__file__).resolve().parents[3] / "tools" / "results"


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
    """Nine of them are gpt-oss on H100 with 512 users."""
    with (RESULTS / "data-faster-than-roofline.csv").open(encoding="utf-8") as table:
        listed = list(csv.DictReader(table))
    assert len(listed) >= 30
    caught = {}
    for row in listed:
        model, weights = row["model"].split()
        part, _, split = row["setup"].split()
        users, lengths = row["users x lengths"].split(" x ")
        input_tokens, output_tokens = lengths.split(" / ")
        setup = ServedSetup(
            model=model,
            accelerator=part,
            devices=int(split.removeprefix("tp")),
            precision=weights,
            concurrency=_count(users),
            input_tokens=_count(input_tokens),
            output_tokens=_count(output_tokens),
            drafted=False,
        )
        caught[row["row"]] = judged(setup, "tpot", float(row["TPOT ms"]) / 1e3).caught
    # Where memory cannot hold the users stated, fewer ran than stated: then the row is a queue, and possible.
    clear = [row["row"] for row in listed if int(row["of the roofline"].rstrip("%")) > 105]
    assert sum(caught[ident] for ident in clear) / len(clear) > 0.7
    busy = [row for row in listed if row["users x lengths"].startswith("512 x")]
    oss = [row["row"] for row in busy if row["model"].startswith("gpt-oss-120b ")]
    assert sum(caught[ident] for ident in oss) >= 9


def _count(text: str) -> int:
    return int(text.replace(",", ""))
