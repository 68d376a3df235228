"""`audit` as a buyer runs it."""

import json
from pathlib import Path

import pytest

from conftest import Run

pytestmark = pytest.mark.wheel
SHEET = """model,on,precision,input,output,concurrency,tok/s,tpot_ms,usd_per_hour,usd_per_mtok
llama-3.1-405b,8x mi300x,fp8,1024,1024,64,6000,12,16.0,0.74
"""


def test_impossible_exits_1_with_arithmetic(penstock: Run) -> None:
    result = penstock("audit", "llama-3.1-70b fp16 on 1x h100: 2800 tok/s")
    assert result.returncode == 1
    assert "impossible" in result.stdout
    assert "85.9 - 141.1 = -55.2" in result.stdout


def test_confirmed_exits_0(penstock: Run) -> None:
    result = penstock("audit", "mi300x memory: 2.4x of h100", "--json")
    assert result.returncode == 0
    document = json.loads(result.stdout)
    assert document["passes"]
    assert document["claims"][0]["verdict"] == "confirmed"
    assert document["claims"][0]["sources"][0]["url"].startswith("https://")


def test_files_are_read_by_their_ending(penstock: Run, tmp_path: Path) -> None:
    (tmp_path / "answer.csv").write_text(SHEET, encoding="utf-8")
    (tmp_path / "article.md").write_text("# T\n\nThe MI300X has 192 GB. AMD holds 12% of it.\n", encoding="utf-8")
    sheet = penstock("audit", str(tmp_path / "answer.csv"))
    assert sheet.returncode == 1
    assert "at most 5,333 tok/s" in sheet.stdout
    article = penstock("audit", str(tmp_path / "article.md"), "--json")
    assert article.returncode == 0
    assert json.loads(article.stdout)["verdicts"] == {"not read": 1, "confirmed": 1}


def test_nothing_judged_exits_4(penstock: Run) -> None:
    assert penstock("audit", "AMD holds 12% of the market.").returncode == 4


@pytest.mark.parametrize(
    ("argument", "complaint"), [("h100 is fast", "has no figure"), ("claims.yaml", "no longer read")]
)
def test_misuse_is_one_line(penstock: Run, argument: str, complaint: str) -> None:
    result = penstock("audit", argument)
    assert result.returncode == 2
    assert complaint in result.stderr
    assert result.stderr.count("\n") == 1
