"""Reads a vendor's answers to a tender: each row of a CSV sheet is said as sentences, one per figure."""

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from io import StringIO
from typing import Final

from penstock.audit.claim import Claim
from penstock.audit.reader import read_sentence
from penstock.errors import UsageError

_COLUMNS: Final[Mapping[str, str]] = {
    "model": "model|checkpoint", "on": "on|gpus?|accelerator|hardware|device", "count": "count|devices|number of gpus",
    "precision": "precision|format|dtype|quanti[sz]ation|weights", "engine": "engine|backend|framework",
    "input": "input|isl|input tokens", "output": "output|osl|output tokens",
    "concurrency": "concurrency|users|batch|batch size", "tok/s": "(output )?(tok|tokens)/s|throughput",
    "tok/s/gpu": "(tok|tokens)/s/gpu|throughput per gpu", "tpot_ms": r"(tpot|itl)( ?\(?ms\)?)?",
    "ttft_ms": r"ttft( ?\(?ms\)?)?", "usd_per_hour": r"usd per hour|[$]/h|usd/h|(hourly )?price( per hour)?",
    "usd_per_mtok": "usd per mtok|[$]/mtok|usd/mtok|cost per million tokens",
}  # fmt: skip
_SAID: Final = {
    "tok/s": "{} tok/s", "tok/s/gpu": "{} tok/s/gpu", "tpot_ms": "{} ms per token", "ttft_ms": "{} ms to first token",
    "usd_per_hour": "rents for ${} per hour", "usd_per_mtok": "costs ${} per million tokens",
}  # fmt: skip
_BLANK: Final = {"", "n/a", "na", "tbd", "-"}


def read_sheet(text: str, name: str) -> list[Claim]:
    """Read the claims of a sheet, which must have the columns `model` and `on`. What is not read is listed."""
    plain = text.lstrip("\ufeff")
    rows = list(csv.reader(StringIO(plain), delimiter=max(",;\t", key=plain.partition("\n")[0].count)))
    headings = [_column(cell) for cell in rows[0]] if rows else []
    for column in ("model", "on"):
        if column not in headings:
            raise UsageError(f"{name}: there is no column `{column}`; name the columns {', '.join(_COLUMNS)}")
    claims: list[Claim] = []
    for number, cells in enumerate(rows[1:], 2):
        pairs = list(zip(headings, cells, rows[0], strict=False))
        row = {key: cell.strip() for key, cell, _ in pairs if key and cell.strip().lower() not in _BLANK}
        for key, cell, heading in pairs:
            if not key and re.search(r"\d", cell):
                claims.append(Claim(says=f"{heading}: {cell}", line=number, kind="none", why="the column is not known"))
        claims += _claims(row, number)
    if not claims:
        raise UsageError(f"{name}: there is no row with a figure")
    return claims


def _column(heading: str) -> str:
    plain = heading.strip().lower().replace("_", " ")
    return next((key for key, pattern in _COLUMNS.items() if re.fullmatch(pattern, plain)), "")


def _claims(row: Mapping[str, str], line: int) -> Iterator[Claim]:
    count = f"{row['count']}x " if "count" in row else ""
    load = f" in {row['input']}/{row['output']}" if {"input", "output"} <= row.keys() else ""
    users = f" at {row['concurrency']} users" if "concurrency" in row else ""
    engine = f" with {row['engine']}" if "engine" in row else ""
    setup = f"{row.get('model', '')} {row.get('precision', '')} on {count}{row.get('on', '')}{engine}{load}{users}"
    numbers = {key: _number(row[key]) for key in (*_SAID, "concurrency") if key in row}
    for key in (key for key in _SAID if key in row):
        said = f"{setup}: {_SAID[key].format(re.sub('[$~ ]', '', row[key]))}"
        for claim in read_sentence(said, line):
            rate = numbers.get("tok/s") or (numbers.get("tok/s/gpu") or 0.0) * claim.setup.devices
            told = replace(claim, usd_per_hour=numbers.get("usd_per_hour"), tokens_per_s=rate or None)
            yield told
            users_, tpot = numbers.get("concurrency"), numbers.get("tpot_ms")
            if key == "tpot_ms" and rate and users_ and tpot and rate > 1.05e3 * users_ / tpot:
                yield replace(told, kind="follows", tokens_per_s=1e3 * users_ / tpot)


def _number(text: str) -> float | None:
    found = re.fullmatch(r"[$~ ]*(\d+(?:,\d{3})*(?:[.,]\d+)?) ?(?:ms|tok/s|/h)?", text)
    if found is None:
        return None
    plain = found[1].replace(",", "") if re.fullmatch(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?", found[1]) else found[1]
    return float(plain.replace(",", "."))
