"""Renders an audit as an HTML section or as a full page.

The section and the page show a bar of verdict counts and one row per claim.
"""

from collections.abc import Sequence
from html import escape
from typing import Final

from penstock.audit.judge_claims import Audited
from penstock.audit.judgement import Cited, Verdict
from penstock.report.audit.audit_sentences import (
    MEANINGS,
    ORDER,
    claim_text,
    condition_sentence,
    counts,
    sentence,
    sorted_by_verdict,
    summary,
)

_COLOURS: Final = {
    Verdict.IMPOSSIBLE: ("#8c1515", "#fff"),
    Verdict.CONTRADICTED: ("#c8452f", "#fff"),
    Verdict.IMPLAUSIBLE: ("#e8a33d", "#222"),
    Verdict.UNDETERMINED: ("#c9c9c9", "#222"),
    Verdict.PLAUSIBLE: ("#8fbfd9", "#222"),
    Verdict.CONFIRMED: ("#3f8f4f", "#fff"),
}
_STYLE: Final = """
.audit{font-family:system-ui,sans-serif;line-height:1.45;color:#222}
.audit .bar{display:flex;height:2rem;border-radius:4px;overflow:hidden;margin:.6rem 0}
.audit .bar span{display:flex;align-items:center;justify-content:center;font-size:.85rem;min-width:1.6rem}
.audit table{border-collapse:collapse;width:100%}
.audit td,.audit th{border-top:1px solid #ddd;padding:.5rem .6rem;text-align:left;vertical-align:top}
.audit .v{border-radius:3px;padding:.1rem .45rem;font-size:.85rem;white-space:nowrap}
.audit .w{font-family:ui-monospace,monospace;font-size:.82rem;color:#444}
.audit .s{font-size:.8rem;color:#555;overflow-wrap:anywhere}
.audit dl{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;margin:.4rem 0;font-size:.85rem}.audit dd{margin:0}
"""
_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>body{{margin:2rem auto;max-width:76rem;padding:0 1rem}}</style></head><body>
{section}
</body></html>
"""


def audit_html(audited: Sequence[Audited], title: str) -> str:
    """Render the audit as a self-contained HTML page."""
    return _PAGE.format(title=escape(title), section=audit_section(audited, title))


def audit_section(audited: Sequence[Audited], title: str) -> str:
    """Render the audit as an HTML section that can be embedded in a report."""
    rows = "\n".join(_row(entry) for entry in sorted_by_verdict(audited))
    return (
        f'<section class="audit"><style>{_STYLE}</style><h1>{escape(title)}</h1><p>{escape(summary(audited))}.</p>'
        f"{_bar(audited)}{_legend()}"
        '<table><thead><tr><th scope="col">verdict</th><th scope="col">claim</th>'
        f'<th scope="col">why</th></tr></thead><tbody>\n{rows}\n</tbody></table></section>'
    )


def _bar(audited: Sequence[Audited]) -> str:
    cells = "".join(
        f'<span style="flex:{count};background:{_COLOURS[verdict][0]};color:{_COLOURS[verdict][1]}" '
        f'title="{count} {verdict.value}">{count}</span>'
        for verdict, count in counts(audited).items()
    )
    return f'<div class="bar" role="img" aria-label="{escape(summary(audited))}">{cells}</div>'


def _legend() -> str:
    return "<dl>" + "".join(f"<dd>{_badge(verdict)} {MEANINGS[verdict]}</dd>" for verdict in ORDER) + "</dl>"


def _badge(verdict: Verdict) -> str:
    back, front = _COLOURS[verdict]
    return f'<span class="v" style="background:{back};color:{front}">{verdict.value}</span>'


def _row(entry: Audited) -> str:
    claim, judgement = entry.claim, entry.judgement
    today = "" if judgement.today is None else f"<br><small>today: {_badge(judgement.today)}</small>"
    working = "".join(f'<div class="w">{escape(str(line))}.</div>' for line in judgement.workings)
    condition = condition_sentence(judgement)
    true_if = f"<div>{escape(condition)}</div>" if condition is not None else ""
    sources = "; ".join(_source(source) for source in dict.fromkeys(judgement.sources))
    cited = f'<div class="s">{sources}</div>' if sources else ""
    where = " · ".join(filter(None, (claim.said.who, claim.said.title, str(claim.said.said_on or ""))))
    place = f'<div class="s">{escape(where)}</div>' if where else ""
    return (
        f"<tr><td>{_badge(judgement.verdict)}{today}</td><td>{escape(claim_text(claim))}{place}</td>"
        f"<td>{escape(sentence(judgement.reason))}{working}{true_if}{cited}</td></tr>"
    )


def _source(source: Cited) -> str:
    if source.url is None or not source.url.startswith(("https://", "http://")):
        return escape(source.title)
    return f'<a href="{escape(source.url)}">{escape(source.title)}</a>'
