"""Prints the claims of an audit, most serious first.

Each claim is printed with the reason for its verdict and with reproducible arithmetic.
"""

from collections.abc import Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.audit.judge_claims import Audited
from penstock.audit.judgement import Verdict
from penstock.report.audit.audit_sentences import claim_text, condition_sentence, sentence, sorted_by_verdict, summary

_STYLES: Final = {
    Verdict.IMPOSSIBLE: "bold red",
    Verdict.CONTRADICTED: "red",
    Verdict.IMPLAUSIBLE: "yellow",
    Verdict.PLAUSIBLE: "cyan",
    Verdict.CONFIRMED: "green",
    Verdict.UNDETERMINED: "bright_black",
}
_VERDICT_WIDTH: Final = 12
_MANY: Final = 24
"""If an audit has more claims than this number, each claim without a problem is printed in one line.

Undetermined claims still name the missing data.
"""


def render_audit(audited: Sequence[Audited]) -> RenderableType:
    """Draw every claim of the audit."""
    brief = len(audited) > _MANY
    pieces: list[RenderableType] = [Text(summary(audited), style="bold")]
    for entry in sorted_by_verdict(audited):
        short = brief and not entry.judgement.verdict.caught
        pieces += [*([] if short else [Text()]), *_claim(entry, short=short)]
    return Group(*pieces)


def _claim(entry: Audited, *, short: bool) -> list[RenderableType]:
    claim, judgement = entry.claim, entry.judgement
    head = Text(claim_text(claim), style="" if short else "bold")
    if claim.line is not None and not short:
        head.append(f"  ({claim.id}, line {claim.line})", style="dim")
    row = Table.grid(padding=(0, 1, 0, 0))
    row.add_column(width=_VERDICT_WIDTH, no_wrap=True)
    row.add_column()
    row.add_row(Text(judgement.verdict.value, style=_STYLES[judgement.verdict]), head)
    if short:
        if judgement.verdict is Verdict.UNDETERMINED:
            row.add_row("", Text(sentence(judgement.reason), style="dim"))
        return [row]
    lines = [Text(sentence(judgement.reason))]
    lines += [Text(f"{line}.", style="dim") for line in judgement.workings]
    condition = condition_sentence(judgement)
    if condition is not None:
        lines.append(Text(condition))
    if judgement.today is not None:
        lines.append(Text(f"As of today, the verdict is: {judgement.today.value}."))
    titles = dict.fromkeys(source.title for source in judgement.sources)
    if titles:
        lines.append(Text(f"Sources: {'; '.join(titles)}.", style="dim"))
    for line in lines:
        row.add_row("", line)
    return [row]
