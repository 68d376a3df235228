"""Detects the layout of a tender sheet: its delimiter, its column names, and whether it uses decimal commas."""

import csv
import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.errors import UsageError

_MAX_CHARACTERS: Final = 2_000_000
_MAX_ROWS: Final = 5_000
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "model": ("checkpoint", "model name"),
    "on": ("accelerator", "gpu", "gpus", "gpu type", "gpu model", "hardware", "devices", "configuration"),
    "count": ("gpu count", "number of gpus", "num gpus", "# gpus", "quantity", "qty"),
    "precision": ("weights", "dtype", "quantization", "quantisation"),
    "kv": ("kv_cache", "kv cache"),
    "engine": ("framework", "server"),
    "input": ("input_tokens", "isl", "prompt", "prompt tokens", "input tokens"),
    "output": ("output_tokens", "osl", "output tokens"),
    "concurrency": ("users", "batch", "batch size", "concurrent requests", "concurrent users"),
    "replicas": (),
    "dp": (),
    "tok/s": ("throughput", "tokens/s", "output tok/s", "output throughput", "tps", "tokens per second"),
    "tok/s/gpu": ("throughput per gpu", "tokens/s/gpu"),
    "tpot_ms": ("tpot", "itl", "itl_ms", "time per output token"),
    "ttft_ms": ("ttft", "time to first token"),
    "usd_per_hour": ("price per hour", "$/h", "usd/h", "rent"),
    "usd_per_mtok": (
        "$/mtok",
        "usd/mtok",
        "price per million tokens",
        "cost per million tokens",
        "cost per 1m tokens",
        "price per 1m tokens",
    ),
    "note": ("comment", "notes"),
}
"""Columns of a sheet, each with its synonyms. Only `model` and `on` are required."""
_NEEDED: Final = ("model", "on")
_WORDS: Final = {"model", "on", "precision", "kv", "engine", "note"}
_COUNTS: Final = ("gpus", "devices")
"""Synonyms of `on` that hold a count if another column names the accelerator."""
_UNITS: Final[Mapping[str, frozenset[str]]] = {
    "input": frozenset({"tokens"}),
    "output": frozenset({"tokens"}),
    "tok/s": frozenset({"tok/s", "tokens/s", "output tok/s", "output tokens/s"}),
    "tok/s/gpu": frozenset({"tok/s", "tokens/s", "tok/s/gpu", "tokens/s/gpu"}),
    "tpot_ms": frozenset({"ms"}),
    "ttft_ms": frozenset({"ms"}),
    "usd_per_hour": frozenset({"usd", "$", "us$"}),
    "usd_per_mtok": frozenset({"usd", "$", "us$"}),
}
"""Units that may follow the name of a column in parentheses."""
_BLANK: Final = {"n/a", "na", "-", "\u2013", "tbd", "tba", "none"}
_DECIMAL_COMMA: Final = re.compile(r"\D*\d{1,3}(?:\.\d{3})+,\d+\D*|\D*(?:0|\d{4,}),\d+\D*|\D*\d+,(?:\d{1,2}|\d{4,})\D*")
_DOTTED: Final = re.compile(r"\D*[1-9]\d{0,2}(?:\.\d{3})+\D*")


@dataclass(frozen=True, slots=True)
class SheetRow:
    """One row of a sheet. The file name and the line number are used in error messages."""

    where: str
    line: int
    cells: Mapping[str, str]

    def get(self, name: str) -> str | None:
        """Return the text of a cell. Return None if the cell is empty or has a placeholder such as `n/a`."""
        written = self.cells.get(name) or None
        return None if written is not None and written.lower() in _BLANK else written

    def refuse(self, name: str, problem: str) -> UsageError:
        """Return an error that names the row, the column and the problem."""
        return UsageError(f"{self.where}:{self.line}: {name}: {problem}")


def sheet_rows(text: str, where: str) -> Iterator[SheetRow]:
    """Yield the rows below the header. Figures in these rows are converted from decimal commas to decimal points."""
    if len(text) > _MAX_CHARACTERS:
        raise UsageError(
            f"{where}: the sheet has {len(text):,} characters; split it into sheets of at most {_MAX_CHARACTERS:,}"
        )
    lines = text.removeprefix("\ufeff").splitlines()
    above = 1 if lines and re.fullmatch(r"sep=.", lines[0].strip().strip('"')) else 0
    delimiter = _delimiter(lines[above] if len(lines) > above else "")
    try:
        table = list(csv.reader(lines[above:], strict=True, delimiter=delimiter))
    except csv.Error as error:
        raise UsageError(f"{where}: the sheet is not CSV: {error}; save it as comma separated values") from None
    header = _header(table[0] if table else [], f"{where}:{above + 1}", where)
    found = list(_cells(table[1:], header, where, above + 2))
    continental = delimiter != "," and any(_DECIMAL_COMMA.fullmatch(cell) for _, row in found for cell in _figures(row))
    for number, row in found:
        for name, cell in row.items() if delimiter != "," and not continental else ():
            if name not in _WORDS and _DOTTED.fullmatch(cell):
                raise UsageError(
                    f"{where}:{number}: {name}: '{cell[:40]}' is ambiguous: its point could be a decimal point or a "
                    "thousands separator; write the number as 6000"
                )
        yield SheetRow(where, number, _with_points(row) if continental else row)


def _figures(row: Mapping[str, str]) -> list[str]:
    return [cell for name, cell in row.items() if name not in _WORDS]


def _with_points(row: Mapping[str, str]) -> dict[str, str]:
    """Convert a figure with a decimal comma to a decimal point: `6.000,5` becomes `6000.5`."""
    return {
        name: cell if name in _WORDS else re.sub(r"(?<=\d)\.(?=\d{3})", "", cell).replace(",", ".")
        for name, cell in row.items()
    }


def _cells(table: list[list[str]], header: list[str], where: str, first: int) -> Iterator[tuple[int, dict[str, str]]]:
    for number, line in enumerate(table, start=first):
        if number > _MAX_ROWS:
            raise UsageError(
                f"{where}:{number}: the sheet has more than {_MAX_ROWS:,} rows; split it into several sheets"
            )
        cells = [cell.strip() for cell in line]
        while len(cells) > len(header) and not cells[-1]:
            cells.pop()
        if not any(cells):
            continue
        if len(cells) != len(header):
            raise UsageError(
                f"{where}:{number}: the row has {len(cells)} cells, but the heading has {len(header)}; put quotes "
                "around cells that contain commas"
            )
        yield number, dict(zip(header, cells, strict=True))


def _delimiter(heading: str) -> str:
    return ";" if heading.count(";") > heading.count(",") else "\t" if heading.count("\t") > heading.count(",") else ","


def _header(names: list[str], place: str, where: str) -> list[str]:
    while names and not names[-1].strip():
        names = names[:-1]
    header = [_column(name, place) for name in names]
    if header.count("on") == 2:  # the accelerator and its count
        spelled = [name.strip().lower() for name in names]
        header = [
            "count" if name in _COUNTS and column == "on" else column
            for name, column in zip(spelled, header, strict=True)
        ]
    if not header:
        raise UsageError(f"{where}: the sheet is empty; its first line must name columns: {', '.join(COLUMNS)}")
    twice = next((name for name in header if header.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"{place}: two columns mean `{twice}`; keep only one of them")
    missing = next((name for name in _NEEDED if name not in header), None)
    if missing is not None:
        raise UsageError(f"{place}: the sheet has no column `{missing}`; add this column")
    return header


def _column(name: str, place: str) -> str:
    spelled = " ".join(name.strip().lower().replace("_", " ").split())
    bare, unit = _without_unit(spelled)
    for column, others in COLUMNS.items():
        names = {column.replace("_", " "), *(other.replace("_", " ") for other in others)}
        if spelled in names:
            return column
        if bare in names and unit is not None:
            if unit in _UNITS.get(column, {unit}):
                return column
            raise UsageError(
                f"{place}: '{name[:40]}': the column `{column}` cannot be in {unit[:20]}; convert its figures"
            )
    known = list(COLUMNS) + [other for others in COLUMNS.values() for other in others]
    near = difflib.get_close_matches(spelled[:40], known, n=1, cutoff=0.6)
    hint = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(COLUMNS)}"
    raise UsageError(f"{place}: '{name[:40]}' is not a column of a sheet; {hint}")


def _without_unit(spelled: str) -> tuple[str, str | None]:
    found = re.fullmatch(r"(.+?)\s*[(\[]([^()\[\]]*)[)\]]", spelled)
    return (spelled, None) if found is None else (found[1], found[2].strip())
