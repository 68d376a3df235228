"""Parses a tender sheet in CSV. Each row describes a setup. The rate, latencies and price in the row become claims."""

from collections.abc import Iterator, Mapping
from typing import Final

from penstock.audit.claims.amount import Amount, parse_amount
from penstock.audit.claims.claim import Claim, Said, Statement
from penstock.audit.claims.price_claims import CostStatement, PriceStatement
from penstock.audit.claims.record_claims import FollowsStatement
from penstock.audit.claims.speed_claims import Metric, ServedSetup
from penstock.audit.evidence.weight_formats import precision_name
from penstock.audit.parsing.claim_keys import served_setup, speed_statement
from penstock.audit.parsing.claim_terms import counted_accelerator, engine_name, model_name
from penstock.audit.parsing.sheet_columns import SheetRow, sheet_rows
from penstock.errors import ConfigError, UsageError
from penstock.model.cache_dtypes import cache_dtype
from penstock.units import parse_tokens

_FIGURES: Final[Mapping[str, tuple[Metric, str]]] = {
    "tok/s": ("throughput", "tok/s"),
    "tok/s/gpu": ("throughput", "tok/s/gpu"),
    "tpot_ms": ("tpot", "ms"),
    "ttft_ms": ("ttft", "ms"),
}


def parse_sheet(text: str, where: str, said: Said | None = None) -> tuple[Claim, ...]:
    """Parse the rows of a sheet.

    Each row yields one claim per figure, and one claim that the rate agrees with the time per token.
    """
    claims: list[Claim] = []
    for row in sheet_rows(text, where):
        try:
            claims += [
                Claim(id=f"row-{row.line}-{name}", statement=statement, said=said or Said(), words=words, line=row.line)
                for name, words, statement in _claims_of(row)
            ]
        except UsageError as error:
            known = str(error)
            if known.startswith(f"{where}:"):
                raise
            raise UsageError(f"{where}:{row.line}: {known}") from None
    if not claims:
        raise UsageError(f"{where}: no row has a figure to check; fill a column such as tok/s, tpot_ms or usd_per_mtok")
    return tuple(claims)


def _claims_of(row: SheetRow) -> Iterator[tuple[str, str, Statement]]:
    setup = _setup(row)
    label = _label(setup)
    figures: dict[str, Amount] = {}
    for column, (metric, unit) in _FIGURES.items():
        written = row.get(column)
        if written is not None:
            figures[column] = _figure(row, column, written, unit)
            yield column, f"{label}: {figures[column].written}", speed_statement(setup, metric, figures[column])
    yield from _agreement(setup, label, figures)
    yield from _price(row, setup, label, figures)


def _setup(row: SheetRow) -> ServedSetup:
    found: dict[str, object] = {}
    readers = {
        "model": model_name,
        "precision": precision_name,
        "kv": _kv,
        "engine": engine_name,
        "input": parse_tokens,
        "output": parse_tokens,
        "concurrency": _count,
        "replicas": _count,
        "dp": _count,
    }
    for name, read in readers.items():
        written = row.get(name)
        if written is None:
            if name == "model":
                raise row.refuse(name, "is empty; name a model, such as llama-3.1-70b")
            continue
        try:
            found[name] = read(written)
        except UsageError as error:
            raise row.refuse(name, str(error)) from None
    on = row.get("on")
    if on is None:
        raise row.refuse("on", "is empty; name the devices, such as 8x h100")
    try:
        return served_setup(found, _devices(on, row.get("count")))
    except UsageError as error:
        raise row.refuse("on", str(error)) from None


def _devices(on: str, count: str | None) -> tuple[str, int]:
    part, devices = counted_accelerator(on)
    if count is None:
        return part, devices
    if devices > 1:
        raise UsageError(f"'{on[:40]}' and the column `count` both give the number of devices; keep only one of them")
    return part, _count(count)


def _kv(text: str) -> str:
    try:
        return cache_dtype(text).value
    except ConfigError as error:
        raise UsageError(str(error)) from None


def _count(text: str) -> int:
    clean = text.replace(",", "").replace("_", "")
    if not (clean.isascii() and clean.isdecimal() and len(clean) <= 7 and int(clean) >= 1):
        raise UsageError(f"'{text[:40]}' is not a positive whole number; write 64, for example")
    return int(clean)


def _figure(row: SheetRow, column: str, written: str, unit: str) -> Amount:
    """Parse a cell. A number without a unit is read in the unit of its column."""
    try:
        amount = parse_amount(written)
        return parse_amount(f"{written} {unit}") if amount.measure == "number" else amount
    except UsageError as error:
        raise row.refuse(column, str(error)) from None


def _label(setup: ServedSetup) -> str:
    load = "" if setup.concurrency is None else f", {setup.concurrency} users"
    lengths = "" if setup.input_tokens is None else f" of {setup.input_tokens:,}/{setup.output_tokens or 0:,}"
    stored = "" if setup.precision is None else f" {setup.precision}"
    return f"{setup.model}{stored} on {setup.devices}x {setup.accelerator}{load}{lengths}"


def _agreement(setup: ServedSetup, label: str, figures: Mapping[str, Amount]) -> Iterator[tuple[str, str, Statement]]:
    """Yield the claim that the rate agrees with the time per token.

    The number of users divided by the time per token is an upper bound of the rate.
    """
    rate, tpot = figures.get("tok/s"), figures.get("tpot_ms")
    if rate is None or tpot is None or setup.concurrency is None or not tpot.low:
        return
    yield (
        "agreement",
        f"{label}: {rate.written} at {tpot.written} a token",
        FollowsStatement(
            inputs=(("users", float(setup.concurrency)), ("ms", tpot.low * 1e3)),
            formula="1000 * users / ms",
            amount=rate,
            at_most=True,
        ),
    )


def _price(
    row: SheetRow, setup: ServedSetup, label: str, figures: Mapping[str, Amount]
) -> Iterator[tuple[str, str, Statement]]:
    rent, cost = row.get("usd_per_hour"), row.get("usd_per_mtok")
    hourly = None if rent is None else _usd(row, "usd_per_hour", rent)
    if hourly is not None and rent is not None:
        each = hourly.scaled(1 / setup.devices)
        yield (
            "rent",
            f"{setup.devices}x {setup.accelerator}: {_dollars(rent)} an hour",
            PriceStatement(accelerator=setup.accelerator, bought=False, amount=each),
        )
    if cost is None:
        return
    rate = figures.get("tok/s") or (figures["tok/s/gpu"].scaled(setup.devices) if "tok/s/gpu" in figures else None)
    if hourly is None or rate is None or not rate.middle:
        raise row.refuse("usd_per_mtok", "can be checked only with `usd_per_hour` and `tok/s` in the same row")
    yield (
        "cost",
        f"{label}: {_dollars(cost)} per million tokens",
        CostStatement(usd_per_hour=hourly.middle, tokens_per_s=rate.middle, amount=_usd(row, "usd_per_mtok", cost)),
    )


def _dollars(written: str) -> str:
    return written if "$" in written else f"${written}"


def _usd(row: SheetRow, column: str, written: str) -> Amount:
    try:
        amount = parse_amount(_dollars(written))
    except UsageError as error:
        raise row.refuse(column, str(error)) from None
    if not amount.low:
        raise row.refuse(column, f"'{written[:40]}' must be above 0; change it or leave the cell empty")
    return amount
