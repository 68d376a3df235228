"""Renders a bench: the certificate of parity, one row per target and load, and the verdict of each target."""

from collections.abc import Callable, Sequence
from typing import Annotated, Final, Literal

from rich.console import Group, RenderableType
from rich.text import Text
from typing_extensions import TypedDict

from penstock.parity.certificate import ComparedFact, ParityCertificate, Standing
from penstock.report.drawing.comparison_table import Column, Figure, sheet
from penstock.report.drawing.json_document import at
from penstock.target_runs.judge_runs import BenchCell, JudgedTarget, MedianRange
from penstock.units import format_s

_COLUMNS: Final = (
    Column("target", figures=False),
    Column("load", figures=False),
    *(
        Column(head)
        for head in ("runs", "in time", "goodput\nreq/s", "TTFT\nmean", "TPOT\nmean", "good\ntok/s", "verdict")
    ),
)
_VERDICTS: Final = {True: ("pass", "green"), False: ("fail", "red"), None: ("not measured", "yellow")}


class FactDocument(TypedDict):
    """One fact of the servers' setups."""

    fact: Annotated[str, at("fact.name")]
    title: Annotated[str, at("fact.title")]
    standing: Annotated[str, at(lambda one: str(one.standing))]
    values: dict[str, str | None]


class CertificateDocument(TypedDict):
    """Comparison of the servers."""

    holds: bool
    facts: list[FactDocument]


class CellDocument(TypedDict):
    """All repetitions of one load on one target. Times are in seconds."""

    load: Annotated[str, at("load.name")]
    requests_per_s: Annotated[float, at("load.requests_per_s")]
    requests: Annotated[int, at("load.requests")]
    at_least_fraction: Annotated[float, at("load.at_least_fraction")]
    repetitions: Annotated[int, at(lambda cell: len(cell.repetitions))]
    usable_repetitions: Annotated[int, at(lambda cell: len(cell.usable))]
    in_time: MedianRange | None
    goodput: MedianRange | None
    good_output_tokens: MedianRange | None
    ttft: MedianRange | None
    tpot: MedianRange | None
    passes: bool | None
    refusals: list[str]


class TargetDocument(TypedDict):
    """One target with its verdict."""

    target: Annotated[str, at("target.name")]
    url: Annotated[str, at("target.url")]
    slo: Annotated[str, at(lambda one: str(one.target.slo))]
    usd_per_hour: Annotated[float | None, at("target.usd_per_hour")]
    price_source: Annotated[str | None, at("target.price_source")]
    usd_per_mtok: MedianRange | None
    passes: bool | None
    cells: list[CellDocument]


class BenchDocument(TypedDict):
    """Measured targets, and whether they can be compared."""

    schema: Literal["penstock.bench/1"]
    tool: Annotated[str, at("tool.name")]
    certificate: CertificateDocument | None
    required: list[FactDocument]
    targets: list[TargetDocument]
    commands: list[str]


def render_bench(
    certificate: ParityCertificate | None,
    required: Sequence[ComparedFact],
    targets: Sequence[JudgedTarget],
    left_to_run: Sequence[str],
    columns: int,
) -> RenderableType:
    """Draw the certificate, the measured loads, the verdicts, and the commands that are left to run."""
    pieces: list[RenderableType] = [] if certificate is None else [*_certificate_lines(certificate)]
    for one in required:
        refused = one.standing is Standing.REFUSED
        pieces.append(
            Text(f"{'Refused' if refused else 'Differs'}: {one.sentence}.", style="red" if refused else "yellow")
        )
    if any(cell.repetitions for target in targets for cell in target.cells):
        rows = [_row(target, cell) for target in targets for cell in target.cells]
        pieces.append(sheet(_COLUMNS, rows, columns))
        for target in targets:
            for cell in target.cells:
                pieces += [Text(f"Refused: {reason}", style="red") for reason in cell.refusals]
        pieces += [_verdict_line(target) for target in targets]
    pieces += [Text(line, no_wrap=True, overflow="ignore") for line in left_to_run]
    return Group(*pieces)


def _certificate_lines(certificate: ParityCertificate) -> list[Text]:
    """Return the certificate: equal facts in one line, and one line per difference."""
    if len(certificate.targets) < 2:
        stated = [one.fact.title for one in certificate.having(Standing.SAME)]
        return [Text(f"One target, so nothing is compared. It states: {', '.join(stated)}.")]
    names, refused = ", ".join(certificate.targets), certificate.having(Standing.REFUSED)
    verdict = "These servers cannot be compared" if refused else "These servers can be compared"
    lines = [Text(f"Certificate of parity of {names}. {verdict}.", style="bold red" if refused else "bold green")]
    same = certificate.having(Standing.SAME)
    lines.append(Text(f"Same: {', '.join(one.fact.title for one in same) or 'nothing'}."))
    for one in refused:
        lines.append(
            Text(f"Refused: {one.sentence}; {one.fact.effect}. --accept {one.fact.name} allows it.", style="red")
        )
    for one in certificate.having(Standing.MARKED):
        lines.append(Text(f"Differs: {one.sentence}; {one.fact.effect}.", style="yellow"))
    unverified = certificate.having(Standing.UNVERIFIED)
    if unverified:
        lines.append(
            Text(f"Not verified, because a server does not say: {', '.join(one.fact.title for one in unverified)}.")
        )
    return lines


def _row(target: JudgedTarget, cell: BenchCell) -> tuple[Figure, ...]:
    word, style = _VERDICTS[cell.passes]
    return (
        target.target.name,
        f"{cell.load.name}, {cell.load.requests_per_s:.4g}/s",
        f"{len(cell.usable)}/{len(cell.repetitions)}",
        _spread(cell.in_time, lambda value: f"{value:.1%}"),
        _spread(cell.goodput, lambda value: f"{value:.3g}"),
        _spread(cell.ttft, format_s),
        _spread(cell.tpot, format_s),
        _spread(cell.good_output_tokens, lambda value: f"{value:,.0f}"),
        Text(word, style=style),
    )


def _spread(found: MedianRange | None, shown: Callable[[float], str]) -> str:
    """Return the median, and the range where repetitions differ."""
    if found is None:
        return "-"
    low, high = shown(found.low), shown(found.high)
    return shown(found.median) if low == high else f"{shown(found.median)} ({low} to {high})"


def _verdict_line(target: JudgedTarget) -> Text:
    word, style = _VERDICTS[target.passes]
    text = Text(f"{target.target.name}: ")
    text.append(word, style=f"bold {style}")
    text.append(f", {target.target.slo}")
    price = target.usd_per_mtok
    if price is not None:
        shown = _spread(price, lambda value: f"${value:,.2f}")
        text.append(
            f"; {shown} per million output tokens at the highest load that passes "
            f"(${target.target.usd_per_hour:,.2f} per hour, {target.target.price_source})"
        )
    elif target.target.usd_per_hour is None:
        text.append(f"; add --usd-per-hour {target.target.name}=USD for dollars per million tokens")
    return text
