"""Prints an audit, most serious verdict first, and defines the document of `audit --json`."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from typing_extensions import TypedDict

from penstock.audit.claim import Audited, Verdict
from penstock.report.drawing.json_document import at

_STYLES: Final = {
    Verdict.IMPOSSIBLE: "bold red",
    Verdict.CONTRADICTED: "red",
    Verdict.IMPLAUSIBLE: "yellow",
    Verdict.UNDETERMINED: "bright_black",
    Verdict.NOT_READ: "bright_black",
    Verdict.PLAUSIBLE: "cyan",
    Verdict.CONFIRMED: "green",
}
_BETTER: Final = {Verdict.IMPOSSIBLE: "possible", Verdict.IMPLAUSIBLE: "plausible"}
_BRIEF: Final = 24
"""With more claims than this, claims without a problem are one line."""


class AuditSource(TypedDict):
    """A source that a judgement used."""

    title: Annotated[str, at(lambda source: source[0])]
    url: Annotated[str | None, at(lambda source: source[1])]


class AuditedClaim(TypedDict):
    """One figure with its verdict and evidence. A kind of `none` was not read."""

    says: Annotated[str, at("claim.says")]
    line: Annotated[int, at("claim.line")]
    kind: Annotated[str, at("claim.kind")]
    accelerator: Annotated[str | None, at("claim.setup.accelerator")]
    devices: Annotated[int, at("claim.setup.devices")]
    model: Annotated[str | None, at("claim.setup.model")]
    precision: Annotated[str | None, at("claim.setup.precision")]
    figure: Annotated[str | None, at(lambda entry: entry.claim.amount.written if entry.claim.amount else None)]
    verdict: Annotated[Verdict, at("judgement.verdict")]
    reason: Annotated[str, at("judgement.reason")]
    arithmetic: Annotated[list[str], at("judgement.arithmetic")]
    true_if: Annotated[str | None, at("judgement.true_if")]
    sources: Annotated[list[AuditSource], at("judgement.sources")]


class AuditDocument(TypedDict):
    """What `audit --json` prints."""

    schema: Literal["penstock.audit/2"]
    passes: Annotated[bool, at("good")]
    verdicts: Annotated[dict[str, int], at("counts")]
    claims: Annotated[list[AuditedClaim], at("audited")]


def render_audit(audited: Sequence[Audited], counts: Mapping[str, int]) -> RenderableType:
    """Draw every claim of the audit."""
    total = f"{len(audited)} claim{'' if len(audited) == 1 else 's'}: "
    pieces: list[RenderableType] = [
        Text(total + ", ".join(f"{count} {name}" for name, count in counts.items()), style="bold")
    ]
    order = list(Verdict)
    for entry in sorted(audited, key=lambda one: order.index(one.judgement.verdict)):
        short = len(audited) > _BRIEF and not entry.judgement.verdict.negative
        pieces += [*([] if short else [Text()]), _drawn(entry, short=short)]
    return Group(*pieces)


def _drawn(entry: Audited, *, short: bool) -> RenderableType:
    claim, judgement = entry.claim, entry.judgement
    head = Text(claim.says, style="" if short else "bold")
    if claim.amount is not None and claim.amount.written != claim.says:
        head.append(f"  ({claim.amount.written})", style="dim")
    row = Table.grid(padding=(0, 1, 0, 0))
    row.add_column(width=12, no_wrap=True)
    row.add_column()
    row.add_row(Text(judgement.verdict.value, style=_STYLES[judgement.verdict]), head)
    if not short or not judgement.verdict.judged:
        row.add_row("", Text(f"{judgement.reason[:1].upper()}{judgement.reason[1:]}."))
    if short:
        return row
    for line in judgement.arithmetic:
        row.add_row("", Text(f"{line}.", style="dim"))
    if judgement.true_if is not None:
        row.add_row("", Text(f"The claim would be {_BETTER.get(judgement.verdict, 'true')} if {judgement.true_if}."))
    titles = dict.fromkeys(title for title, _ in judgement.sources)
    if titles:
        row.add_row("", Text(f"Sources: {'; '.join(titles)}.", style="dim"))
    return row
