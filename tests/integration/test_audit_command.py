"""`audit` as a buyer runs it."""

import json
from pathlib import Path

import pytest

from conftest import Run

pytestmark = pytest.mark.wheel
SHEET = """model,on,precision,input,output,concurrency,tok/s,tpot_ms,usd_per_hour,usd_per_mtok
llama-3.1-405b,8x mi300x,fp8,1024,1024,64,6000,12,16.0,0.74
"""


def test_what_is_impossible_exits_1_with_the_arithmetic(penstock: Run) -> None:
    result = penstock("audit", "llama-3.1-70b fp16 on 1x h100: 2800 tok/s")
    assert result.returncode == 1
    assert "impossible" in result.stdout
    assert "85.9 - 141.1 = -55.2" in result.stdout


def test_what_is_confirmed_exits_0(penstock: Run) -> None:
    result = penstock("audit", "mi300x memory: 2.4x of h100", "--json")
    assert result.returncode == 0
    document = json.loads(result.stdout)
    assert document["passes"]
    assert document["claims"][0]["verdict"] == "confirmed"
    assert document["claims"][0]["sources"][0]["url"].startswith("https://")


def test_a_sheet_is_audited_row_by_row_and_kept_as_a_page(penstock: Run, tmp_path: Path) -> None:
    (tmp_path / "answer.csv").write_text(SHEET, encoding="utf-8")
    page = tmp_path / "audit.html"
    result = penstock("audit", "--sheet", str(tmp_path / "answer.csv"), "--html", str(page))
    assert result.returncode == 1
    assert "The claim's own inputs give 5,333, not 6000 tok/s." in result.stdout
    html = page.read_text(encoding="utf-8")
    assert html.count("<tr>") == 1 + 5
    assert "<script" not in html
    assert "contradicted" in html


def test_a_file_to_start_from_is_printed_and_read_again(penstock: Run, tmp_path: Path) -> None:
    path = tmp_path / "claims.yaml"
    path.write_text(penstock("audit", "--init").stdout, encoding="utf-8")
    result = penstock("audit", str(path), "--json")
    assert result.returncode == 1
    verdicts = json.loads(result.stdout)["verdicts"]
    assert verdicts == {"impossible": 1, "contradicted": 3, "implausible": 1}


def test_a_mistake_ends_the_process_with_2(penstock: Run) -> None:
    assert penstock("audit").returncode == 2


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "give exactly one of"),
        (("answer.csv",), "use `--sheet answer.csv`"),
        (("h100 is fast",), "has no figure after a colon"),
    ],
)
def test_what_cannot_be_meant_is_one_line(penstock_here: Run, arguments: tuple[str, ...], complaint: str) -> None:
    result = penstock_here("audit", *arguments)
    assert result.returncode == 2
    assert complaint in result.stderr
    assert result.stderr.count("\n") == 1
