"""Checks facts, names, reported results and dates against sources, and computed figures against stated inputs."""

import calendar
import re
from datetime import date

from penstock.audit.arithmetic import evaluate
from penstock.audit.checks.spec_check import citation
from penstock.audit.claims.amount import Amount
from penstock.audit.claims.hardware_claims import FORMATS_OF_FLOPS
from penstock.audit.claims.record_claims import (
    ClaimedSpan,
    DateStatement,
    FactStatement,
    FollowsStatement,
    MentionStatement,
    UncheckableStatement,
)
from penstock.audit.judgement import Cited, Judgement, Verdict, Working, figure, plainly, working_line
from penstock.audit.reference_library import Library, SourcedFact
from penstock.catalog.accelerator import Precision
from penstock.errors import UnknownName

_SAME = 1.1
"""A claimed figure agrees with the figure computed from its inputs if their ratio is at most this value."""
_FAR_BELOW = 0.1
_EVENTS = {
    "launch": "launched",
    "launches": "launched",
    "release": "released",
    "releases": "released",
    "announcement": "announced",
    "announce": "announced",
    "availability": "available",
    "publication": "published",
}
"""Synonyms of events. Without the synonyms, the check would miss false dates in claims that use a synonym."""


def audit_fact(statement: FactStatement, library: Library, said_on: date | None) -> Judgement:
    """Judge a claimed fact by the sourced facts, as of the day of the claim and as of today."""
    fact = library.facts.find(statement.subject, statement.about) or _catalog_fact(statement, library)
    if fact is None:
        return Judgement(
            verdict=Verdict.UNDETERMINED,
            reason=f"no sourced fact is on record about '{statement.subject}: {statement.about}'",
        )
    if isinstance(statement.says, Amount):
        return _judge_figure(statement.says, fact)
    if isinstance(statement.says, str):
        return _judge_name(statement.says, fact)
    return _judge_state(fact, library, said_on, says=statement.says)


def _catalog_fact(statement: FactStatement, library: Library) -> SourcedFact | None:
    """Return a fact from the accelerator catalog: a supported format, FP8 dialect, target or architecture."""
    try:
        accelerator = library.accelerator_of(statement.subject)
    except UnknownName:
        return None
    about = statement.about.strip().lower()
    if about == "fp8" and isinstance(statement.says, str):
        about = "fp8 dialect"
    words = {
        "architecture": (accelerator.architecture, "compute_target"),
        "target": (accelerator.compute_target, "compute_target"),
        "fp8 dialect": (accelerator.fp8_dialect, "fp8_dialect"),
    }
    if about in FORMATS_OF_FLOPS:
        source = accelerator.source_of(f"dense_flops_per_s.{next(iter(accelerator.dense_flops_per_s))}")
        holds, text = Precision(about) in accelerator.dense_flops_per_s, None
    elif about in words and words[about][0] is not None:
        text, field = words[about]
        source, holds = accelerator.source_of(field), None
    else:
        return None
    return SourcedFact(
        subject=accelerator.id,
        about=about,
        holds=holds,
        text=text,
        url=source.url or "",
        title=source.title or accelerator.name,
        checked_on=source.checked_on,
    )


def _judge_figure(amount: Amount, fact: SourcedFact) -> Judgement:
    if fact.low is None:
        return Judgement(verdict=Verdict.UNDETERMINED, reason="the fact on record has no figure", sources=(fact.cited,))
    high = fact.low if fact.high is None else fact.high
    line = working_line(
        f"{plainly(amount.middle)} / {plainly((fact.low + high) / 2)}",
        float(plainly(amount.middle)) / float(plainly((fact.low + high) / 2)),
        "claimed figure / figure of the source",
    )
    met = amount.meets(fact.low) and amount.meets(high)
    near = met or (amount.overlaps(fact.low, high))
    said = (
        _figure_text(fact.low, fact)
        if high == fact.low
        else f"{_figure_text(fact.low, fact)} to {_figure_text(high, fact)}"
    )
    return Judgement(
        verdict=Verdict.CONFIRMED if near else Verdict.CONTRADICTED,
        reason=f"the source on record gives {said} for '{fact.subject}: {fact.about}'"
        + (f"; {fact.note}" if fact.note else ""),
        workings=(line,),
        sources=(fact.cited,),
        true_if=None if near else f"it said {said}",
    )


def _figure_text(value: float, fact: SourcedFact) -> str:
    unit = {"bytes": "KiB", "times": "x", "number": ""}.get(fact.measure, fact.measure)
    return f"{figure(value / 1024 if unit == 'KiB' else value)} {unit}".strip()


def _judge_name(says: str, fact: SourcedFact) -> Judgement:
    """Judge a name. To be confirmed, the claim must contain every word of one of the names on record."""
    if not fact.text:
        return Judgement(verdict=Verdict.UNDETERMINED, reason="the fact on record has no name", sources=(fact.cited,))
    words = set(re.findall(r"[a-z0-9]+", says.lower()))
    wanted = [set(re.findall(r"[a-z0-9]+", option.lower())) for option in fact.text.split("|")]
    met = any(option <= words for option in wanted if option)
    right = fact.text.split("|", maxsplit=1)[0]
    return Judgement(
        verdict=Verdict.CONFIRMED if met else Verdict.CONTRADICTED,
        reason=f"the recorded answer to '{fact.subject}: {fact.about}' is '{right}'"
        + (f": {fact.note}" if fact.note else ""),
        sources=(fact.cited,),
        true_if=None if met else f"it said '{right}'",
    )


def _judge_state(fact: SourcedFact, library: Library, said_on: date | None, *, says: bool) -> Judgement:
    if fact.holds is None:
        return Judgement(verdict=Verdict.UNDETERMINED, reason="the fact on record does not say", sources=(fact.cited,))
    day = said_on or library.today
    then = fact.holds if fact.first is None or day >= fact.first else not fact.holds
    now = fact.holds
    lines: tuple[Working, ...] = ()
    if fact.first is not None:
        lines = (
            working_line(
                f"{day} >= {fact.first}",
                day >= fact.first,
                "the claim is dated on or after the day from which the record holds",
            ),
        )
    since = "" if fact.first is None else f" since {fact.first}"
    verdict, today = (Verdict.CONFIRMED if says == state else Verdict.CONTRADICTED for state in (then, now))
    return Judgement(
        verdict=verdict,
        reason=f"the recorded answer to '{fact.subject}: {fact.about}' is {'yes' if fact.holds else 'no'}{since}"
        + (f": {fact.note}" if fact.note else ""),
        workings=lines,
        sources=(fact.cited,),
        true_if=None if verdict is Verdict.CONFIRMED else "it said the opposite",
        today=today if today is not verdict else None,
    )


def span_of_month(text: str) -> ClaimedSpan:
    """Return the first and last day of a catalog month such as `2024-10`."""
    year, month = (int(piece) for piece in text.split("-")[:2])
    return ClaimedSpan(
        first=date(year, month, 1), last=date(year, month, calendar.monthrange(year, month)[1]), written=text
    )


def _event_date(subject: str, event: str, library: Library) -> tuple[ClaimedSpan, Cited] | None:
    """Return the date of an event with its source.

    The date comes from the sourced facts, or else from the launch month in the catalog.
    """
    meant = _EVENTS.get(event.lower(), event)
    fact = library.facts.find(subject, meant)
    if fact is not None and fact.first is not None:
        last = fact.last or fact.first
        return ClaimedSpan(first=fact.first, last=last, written=f"{fact.first}"), fact.cited
    if meant not in {"launched", "released"}:
        return None
    try:
        accelerator = library.accelerator_of(subject)
    except UnknownName:
        return None
    if accelerator.launched is None:
        return None
    return span_of_month(accelerator.launched), citation(accelerator, accelerator.source_of("launched"))


def audit_date(statement: DateStatement, library: Library, said_on: date | None) -> Judgement:
    """Judge a claimed date by the sourced facts and the catalog.

    A date that was still in the future on the day of the claim is judged as a plan.
    """
    found = _event_date(statement.subject, statement.event, library)
    if found is None:
        return Judgement(
            verdict=Verdict.UNDETERMINED,
            reason=f"no sourced date is on record for '{statement.subject}: {statement.event}'; "
            "events are launched, released, announced or available",
        )
    real, source = found
    said = statement.when
    plan = said_on is not None and said.last > said_on
    overlap = said.first <= real.last and real.first <= said.last
    if overlap:
        line = working_line(
            f"{real.first} <= {said.last}",
            real.first <= said.last,
            "the recorded date is not after the end of the claimed time",
        )
        return Judgement(
            verdict=Verdict.CONFIRMED,
            reason=_event_text(statement, real) + (", as planned" if plan else ""),
            workings=(line,),
            sources=(source,),
        )
    early = said.last < real.first
    line = (
        working_line(
            f"{said.last} < {real.first}", said.last < real.first, "the claimed time ends before the recorded date"
        )
        if early
        else working_line(
            f"{said.first} > {real.last}", said.first > real.last, "the claimed time starts after the recorded date"
        )
    )
    months = abs((said.first.year - real.first.year) * 12 + said.first.month - real.first.month)
    outcome = (
        f"; the claim was a plan, and the event came {'later' if early else 'earlier'} than planned" if plan else ""
    )
    return Judgement(
        verdict=Verdict.PLAUSIBLE if plan else Verdict.CONTRADICTED,
        reason=f"{_event_text(statement, real)}, {months} months {'after' if early else 'before'} the claimed "
        f"{said.written}{outcome}",
        workings=(line,),
        sources=(source,),
        true_if=f"it gave the date {real.written}",
        today=Verdict.CONTRADICTED if plan and real.first <= library.today else None,
    )


def _event_text(statement: DateStatement, real: ClaimedSpan) -> str:
    """Return a clause that says when an event happened."""
    single = real.first == real.last
    if statement.event.endswith("ed"):
        day = f"on {real.first}" if single else f"between {real.first} and {real.last}"
        return f"on record, {statement.subject} was {statement.event} {day}"
    day = f"{real.first}" if single else f"{real.first} to {real.last}"
    return f"the recorded date of '{statement.subject}: {statement.event}' is {day}"


def audit_mention(statement: MentionStatement, library: Library, said_on: date | None) -> Judgement:
    """Judge whether a text mentions a product before the product existed."""
    fact = library.facts.earliest(statement.subject)
    found = (
        (ClaimedSpan(first=fact.first, last=fact.last or fact.first, written=f"{fact.first}"), fact.cited)
        if fact is not None and fact.first is not None
        else _event_date(statement.subject, "launched", library)
    )
    if found is None or said_on is None:
        missing = "the day of the text" if found is not None else f"a sourced date of '{statement.subject}'"
        return Judgement(verdict=Verdict.UNDETERMINED, reason=f"{missing} is missing")
    real, source = found
    late = real.first > said_on
    line = working_line(f"{real.first} > {said_on}", late, "the first record of the product is later than the text")
    return Judgement(
        verdict=Verdict.CONTRADICTED if late else Verdict.CONFIRMED,
        reason=f"the first dated record of {statement.subject} is from {real.first}; the text is dated {said_on}",
        workings=(line,),
        sources=(source,),
        true_if=f"the text were dated {real.first} or later" if late else None,
        today=Verdict.CONFIRMED if late and real.first <= library.today else None,
    )


def audit_follows(statement: FollowsStatement) -> Judgement:
    """Judge a figure by recomputing its formula from the inputs that the text states."""
    names = dict(statement.inputs)
    value = evaluate(statement.formula, names)
    expression = _substitute(statement.formula, names)
    if statement.at_most and statement.amount.high <= value * _SAME:
        return _judge_by_bound(
            statement, value, working_line(expression, evaluate(expression), f"formula: {statement.formula}")
        )
    met, near = statement.amount.meets(value), statement.amount.nearly(value)
    shown = f"{value:.1%}" if statement.amount.measure == "share" else figure(float(f"{value:.4g}"))
    beside = "" if met else f", {'which is near' if near else 'not'} {statement.amount.written}"
    return Judgement(
        verdict=Verdict.CONFIRMED if met else Verdict.PLAUSIBLE if near else Verdict.CONTRADICTED,
        reason=f"the claim's own inputs give {shown}{beside}",
        workings=(working_line(expression, evaluate(expression), f"formula: {statement.formula}"),),
        true_if=None if near else f"it said {shown}",
    )


def _judge_by_bound(statement: FollowsStatement, value: float, line: Working) -> Judgement:
    """Judge a figure whose inputs give an upper bound.

    A figure close to the bound is confirmed. A figure below 10% of the bound is implausible.
    """
    share = statement.amount.high / value
    shown = figure(float(f"{value:.4g}"))
    if share >= 1 / _SAME:
        return Judgement(verdict=Verdict.CONFIRMED, reason=f"the claim's own inputs give {shown}", workings=(line,))
    far = share < _FAR_BELOW
    return Judgement(
        verdict=Verdict.IMPLAUSIBLE if far else Verdict.PLAUSIBLE,
        reason=f"the claim's own inputs allow up to {shown}; {statement.amount.written} is {share:.2g} of this limit, "
        + (
            "so a unit is wrong or very few requests are served"
            if far
            else "which is possible if waiting and prompts take the rest of the time"
        ),
        workings=(line,),
        true_if=f"it said up to {shown}" if far else None,
    )


def _substitute(formula: str, names: dict[str, float]) -> str:
    return re.sub(r"[A-Za-z_]\w*", lambda found: _bracket(names[found[0]]) if found[0] in names else found[0], formula)


def _bracket(value: float) -> str:
    return f"({plainly(value)})" if value < 0 else plainly(value)


def audit_uncheckable(statement: UncheckableStatement) -> Judgement:
    """Return the verdict undetermined with the missing evidence."""
    return Judgement(
        verdict=Verdict.UNDETERMINED, reason=f"no shipped source can check this claim; missing: {statement.needs}"
    )
