"""How rows are read: strictly, and what is wrong is said in one line."""

import re

import pytest

from penstock.catalog._measurement_rows import read_rows
from penstock.catalog.measurement import Measurement, Side
from penstock.errors import CatalogError

HEADER = "id,source,ref,scenario,model,weights,accelerator,engine,date,tp,input_tokens,output_tokens,tpot_s"
LINE = "a1,here,,online,m,fp8,mi300x,vllm,2026-01-02,8,921.6,921.6,0.0125"


def test_a_row_has_what_its_line_says_and_defaults_for_the_rest() -> None:
    (row,) = read_rows(f"{HEADER}\n{LINE}\n", "rows.csv")
    assert row == Measurement(
        id="a1",
        source="here",
        ref="",
        scenario="online",
        model="m",
        weights="fp8",
        accelerator="mi300x",
        engine="vllm",
        date=row.date,
        tp=8,
        input_tokens=921.6,
        output_tokens=921.6,
        tpot_s=0.0125,
    )
    assert row.date.isoformat() == "2026-01-02"


def test_a_side_is_read_from_its_four_columns_or_is_none() -> None:
    sides = "prefill_workers,prefill_tp,prefill_dp,prefill_ep"
    two = read_rows(f"{HEADER},{sides}\n{LINE},2,1,4,1\n{LINE},,,,\n", "rows.csv")
    assert [row.prefill for row in two] == [Side(workers=2, tp=1, dp=4, ep=True), None]
    assert two[0].devices == 8 + 2 * 4


def test_labels_of_drafts_settings_and_statistics_are_read_or_unknown() -> None:
    labels = "drafted,draft_tokens,accepted_length,overlap,max_running,tpot_statistic"
    known, unknown = read_rows(f"{HEADER},{labels}\n{LINE},mtp,3,2.9,tbo,24,median\n{LINE},,,,,,\n", "rows.csv")
    assert (known.drafted, known.draft_tokens, known.accepted_length, known.overlap) == ("mtp", 3, 2.9, "tbo")
    assert (known.max_running, known.tpot_statistic, known.ttft_statistic) == (24, "median", None)
    assert (unknown.draft_tokens, unknown.accepted_length, unknown.max_running) == (None, None, None)
    with pytest.raises(CatalogError, match="line 2: tpot_statistic: 'mode' is not one of mean, median"):
        read_rows(f"{HEADER},tpot_statistic\n{LINE},mode\n", "rows.csv")


def test_a_header_alone_is_a_file_without_rows() -> None:
    assert read_rows(f"{HEADER}\n", "rows.csv") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "rows.csv: line 1: no column 'accelerator'"),
        (f"{HEADER},colour\n{LINE},red\n", "rows.csv: line 1: unknown column 'colour'"),
        (f"{HEADER},tp\n{LINE},8\n", "rows.csv: line 1: column 'tp' twice"),
        (
            f"{HEADER},prefill_tp\n{LINE},8\n",
            "rows.csv: line 1: has only some of the columns prefill_workers, prefill_tp",
        ),
        (f"{HEADER}\n{LINE}\n{LINE},7\n", "rows.csv: line 3: has 14 fields, but the header has 13"),
        (f"{HEADER}\n{LINE}\n{LINE.replace('0.0125', 'fast')}\n", "rows.csv: line 3: tpot_s: could not convert"),
        (
            f"{HEADER}\n{LINE.replace('0.0125', 'nan')}\n",
            "rows.csv: line 2: tpot_s: 'nan' must be a finite number above zero",
        ),
        (
            f"{HEADER}\n{LINE.replace('0.0125', '-1')}\n",
            "rows.csv: line 2: tpot_s: '-1' must be a finite number above zero",
        ),
        (f"{HEADER}\n{LINE.replace(',8,', ',0,')}\n", "rows.csv: line 2: tp: '0' must be a whole number above zero"),
        (f"{HEADER}\n{LINE.replace('01-02', '13-02')}\n", "rows.csv: line 2: date: "),
        (
            f"{HEADER}\n{LINE.replace('online', 'offline')}\n",
            "rows.csv: line 2: scenario: 'offline' is not one of online",
        ),
        (f"{HEADER}\n{LINE.replace('a1', '')}\n", "rows.csv: line 2: id: must not be empty"),
        (f"{HEADER},ep\n{LINE},yes\n", "rows.csv: line 2: ep: 'yes' must be 0 or 1"),
    ],
)
def test_what_is_wrong_is_one_line_with_file_line_and_column(text: str, message: str) -> None:
    with pytest.raises(CatalogError, match=f"^{re.escape(message)}") as failure:
        read_rows(text, "rows.csv")
    assert "\n" not in str(failure.value)
