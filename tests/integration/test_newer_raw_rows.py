"""The traps of the newer raw files, each on the rows that have it."""

import csv
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from measurements.atom_more import read_atom_more
from measurements.cookbook import read_cookbook
from measurements.filters import WHY, Raw
from measurements.labelled import flags
from measurements.ledger import Ledger
from measurements.serving_2026_09 import read_serving
from measurements.small_more import read_small_more
from measurements.tables import TABLES
from measurements.unloaded import read_long_prompts, read_prefill

from penstock.catalog.measurement import Measurement

pytestmark = [pytest.mark.shared, pytest.mark.refit("../shared/data")]
Read = Callable[[Iterable[Raw], Ledger], Iterator[Measurement]]


def raw_rows(shared: Path, name: str) -> list[dict[str, str]]:
    with (shared / "data" / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def taken_and_left(shared: Path, name: str, read: Read) -> tuple[list[Measurement], dict[str, str]]:
    ledger = Ledger()
    taken = list(read(raw_rows(shared, name), ledger))
    return taken, {entry.id: entry.filter for entry in ledger.left}


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("atom_more.csv", read_atom_more),
        ("sglang_cookbook.csv", read_cookbook),
        ("small_more.csv", read_small_more),
        ("serving_2026_09.csv", read_serving),
        ("long_prompts.csv", read_long_prompts),
        ("prefill_llmd.csv", read_prefill),
    ],
)
def test_every_raw_row_is_taken_or_left_for_a_named_reason(shared: Path, name: str, read: Read) -> None:
    taken, left = taken_and_left(shared, name, read)
    raw = {row["id"] for row in raw_rows(shared, name)}
    assert {row.id for row in taken} | left.keys() == raw
    assert len(taken) + len(left) == len(raw)
    assert set(left.values()) <= WHY.keys()


@pytest.mark.parametrize(
    ("flag", "filter_name"),
    [
        ("accuracy_low", "accuracy_low"),
        ("drafter_changed_that_day", "drafter_changed"),
        ("slow_outlier", "slow_outlier"),
    ],
)
def test_runs_of_atom_that_were_disturbed_are_left(shared: Path, flag: str, filter_name: str) -> None:
    _, left = taken_and_left(shared, "atom_more.csv", read_atom_more)
    disturbed = [raw["id"] for raw in raw_rows(shared, "atom_more.csv") if flag in flags(raw)]
    assert disturbed
    assert filter_name in {left[ident] for ident in disturbed}


def test_what_accuracy_runs_accepted_is_not_what_this_run_accepted(shared: Path) -> None:
    taken, _ = taken_and_left(shared, "atom_more.csv", read_atom_more)
    rows = {row.id: row for row in taken}
    for raw in raw_rows(shared, "atom_more.csv"):
        if raw["accept_length_gsm8k"] and raw["id"] in rows:
            stated = float(raw["accept_length"]) if raw["accept_length"] else None
            assert rows[raw["id"]].accepted_length == stated


def test_rates_of_the_cookbook_that_contradict_its_times_are_left(shared: Path) -> None:
    taken, left = taken_and_left(shared, "sglang_cookbook.csv", read_cookbook)
    doubtful = {
        raw["id"] for raw in raw_rows(shared, "sglang_cookbook.csv") if "rate_and_latency_disagree" in flags(raw)
    }
    assert len(doubtful) == 12
    assert not doubtful & {row.id for row in taken}
    assert doubtful <= left.keys()


def test_a_published_rate_of_input_and_output_is_read_as_output_alone(shared: Path) -> None:
    taken, _ = taken_and_left(shared, "sglang_cookbook.csv", read_cookbook)
    raw = {row["id"]: row for row in raw_rows(shared, "sglang_cookbook.csv")}
    for row in taken:
        if row.output_tokens_per_s is not None:
            total = raw[row.id]["rate_kind"] == "total"
            share = row.output_tokens / (row.input_tokens + row.output_tokens) if total else 1.0
            published = float(raw[row.id]["rate_as_published"]) * row.devices * share
            assert row.output_tokens_per_s == pytest.approx(published, rel=0.01)


def test_weights_that_nobody_states_are_not_guessed(shared: Path) -> None:
    _, cookbook = taken_and_left(shared, "sglang_cookbook.csv", read_cookbook)
    trained = [raw["id"] for raw in raw_rows(shared, "sglang_cookbook.csv") if raw["weights"] == "qat"]
    assert {cookbook[ident] for ident in trained} <= {"weights_unstated", "unknown_model"}
    _, small = taken_and_left(shared, "small_more.csv", read_small_more)
    assert {small[f"sm{number}"] for number in (10, 11, 12, 13)} == {"weights_unstated"}


def test_a_split_that_is_not_stated_is_not_guessed(shared: Path) -> None:
    _, small = taken_and_left(shared, "small_more.csv", read_small_more)
    assert small["sm04"] == "split_unstated"
    _, prefill = taken_and_left(shared, "prefill_llmd.csv", read_prefill)
    assert {prefill[f"pf0{number}"] for number in range(30, 35)} == {"split_unstated"}


def test_a_path_with_two_published_values_decides_nothing(shared: Path) -> None:
    _, left = taken_and_left(shared, "prefill_llmd.csv", read_prefill)
    assert (left["pf023"], left["pf027"]) == ("two_values_published", "two_values_published")


def test_mlperf_results_that_were_there_before_are_counted_once(shared: Path) -> None:
    ledger = Ledger()
    taken = TABLES["mlperf_v61.csv"].rows(raw_rows(shared, "mlperf_v61.csv"), ledger)
    before = {row["row_id"] for row in raw_rows(shared, "measurements.csv") if row["source_id"] == "mlperf-v6.1"}
    given = {row["given"] for row in raw_rows(shared, "mlperf_v61.csv")} - {""}
    assert given == before
    assert len(taken) + len(ledger.left) == 382
    assert not any(row.source == "mlperf-v6.1" for row in ledger.left if row.filter == "mlperf")
