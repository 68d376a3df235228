"""Keeps tables of results as CSV in tools/results; docs/evidence.md names the command that writes each."""

import csv
import io
import re
from pathlib import Path
from typing import Final

RESULTS: Final = Path(__file__).resolve().parent / "results"
_LINK: Final = re.compile(r"\[([^\]]*)\]\((https?:[^)]+)\)")


def csv_text(table: str) -> str:
    """Return the cells of a Markdown table as CSV. A linked cell keeps its text and its address."""
    lines = [line.strip() for line in table.strip().splitlines() if line.lstrip().startswith("|")]
    cells = [[_plain(cell) for cell in re.split(r"(?<!\\)\|", line.strip("|"))] for line in lines]
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows([cells[0], *cells[2:]])
    return written.getvalue()


def keep(name: str, table: str) -> Path:
    """Write a Markdown table as tools/results/NAME.csv."""
    path = RESULTS / f"{name}.csv"
    path.parent.mkdir(exist_ok=True)
    path.write_text(csv_text(table), encoding="utf-8")
    return path


def _plain(cell: str) -> str:
    return _LINK.sub(r"\1 \2", cell.replace("**", "").replace("`", "").replace("\\|", "|")).strip()
