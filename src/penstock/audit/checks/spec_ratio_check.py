"""Checks ratios between the data sheet figures of two accelerators.

Two figures are compared only if they are of the same kind, such as dense with dense.
"""

from penstock.audit.checks.spec_check import citation
from penstock.audit.claims.hardware_claims import LimitStatement, RatioStatement
from penstock.audit.evidence.data_sheet import SpecReading, spec_readings
from penstock.audit.judgement import Cited, Judgement, Verdict, Working, figure, plainly, working_line
from penstock.audit.reference_library import Library
from penstock.catalog.accelerator import Accelerator, Basis
from penstock.units import GB, TERA

_BITS = {"fp64": 64, "fp32": 32, "tf32": 19, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "fp6": 6, "fp4": 4}


def audit_ratio(statement: RatioStatement, library: Library) -> Judgement:
    """Judge a claimed ratio of two data sheet figures, for each reading (such as dense or sparse) of both figures.

    If only two different readings give the claimed ratio, for example dense and sparse, the reason names both.
    """
    accelerator, other = library.accelerator_of(statement.accelerator), library.accelerator_of(statement.over)
    ours = spec_readings(accelerator, statement.quantity, statement.scope, statement.basis)
    theirs = spec_readings(other, statement.over_quantity or statement.quantity, statement.scope, statement.basis)
    if not ours or not theirs:
        lacking = accelerator.name if not ours else other.name
        return Judgement(
            verdict=Verdict.UNDETERMINED,
            reason=f"the catalog has no {statement.quantity} figure of {lacking}; a sourced data sheet is missing",
        )
    amount = statement.amount
    sources = (citation(accelerator, ours[0].source), citation(other, theirs[0].source))
    alike = [(mine, yours) for mine, yours in zip(ours, theirs, strict=False) if mine.plain and yours.plain]
    for mine, yours in alike:
        if amount.meets(mine.value / yours.value):
            sure = Basis.UNVERIFIED not in {mine.source.basis, yours.source.basis}
            return Judgement(
                verdict=Verdict.CONFIRMED if sure else Verdict.PLAUSIBLE,
                reason=_ratio_text(accelerator, mine, other, yours),
                workings=(_ratio_line(accelerator, mine, other, yours),),
                sources=sources,
            )
    for mine, yours in alike:
        if amount.nearly(mine.value / yours.value):
            return Judgement(
                verdict=Verdict.PLAUSIBLE,
                reason=f"{_ratio_text(accelerator, mine, other, yours)}; {amount.noun_phrase} differs by "
                f"{amount.off_by(mine.value / yours.value)}",
                workings=(_ratio_line(accelerator, mine, other, yours),),
                sources=sources,
            )
    mine, yours = alike[0] if alike else (ours[0], theirs[0])
    lines = [_ratio_line(accelerator, mine, other, yours)]
    mixed = _mixed_readings(statement, ours, theirs)
    if mixed:
        lines.append(_ratio_line(accelerator, mixed[0], other, mixed[1]))
    right = _times(mine, yours)
    return Judgement(
        verdict=Verdict.CONTRADICTED,
        reason=f"like for like, {_ratio_text(accelerator, mine, other, yours)}, not {amount.written}"
        + (
            f"; {amount.written} is {mixed[0].name} of {accelerator.name} divided by {mixed[1].name} of {other.name}"
            if mixed
            else ""
        ),
        workings=tuple(lines),
        sources=sources,
        true_if=f"it said {right}",
    )


def _mixed_readings(
    statement: RatioStatement, ours: tuple[SpecReading, ...], theirs: tuple[SpecReading, ...]
) -> tuple[SpecReading, SpecReading] | None:
    for mine in ours:
        for yours in theirs:
            if mine.plain != yours.plain and statement.amount.meets(mine.value / yours.value):
                return mine, yours
    return None


def _times(mine: SpecReading, yours: SpecReading) -> str:
    return f"{figure(float(f'{mine.value / yours.value:.3g}'))}x"


def _ratio_text(accelerator: Accelerator, mine: SpecReading, other: Accelerator, yours: SpecReading) -> str:
    """Return a clause that names the quantity, both accelerators and the ratio of their figures."""
    times = _times(mine, yours)
    if mine.name == yours.name:
        return f"{accelerator.name} has {times} {mine.name} of {other.name}"
    return f"{mine.name} of {accelerator.name} is {times} {yours.name} of {other.name}"


def _ratio_line(accelerator: Accelerator, mine: SpecReading, other: Accelerator, yours: SpecReading) -> Working:
    size = TERA if mine.value >= TERA else GB if mine.value >= GB else 1.0
    return working_line(
        f"{plainly(mine.value / size)} / {plainly(yours.value / size)}",
        mine.value / yours.value,
        f"{mine.short_name} of {accelerator.id} / {yours.short_name} of {other.id}",
    )


def audit_limit(statement: LimitStatement, library: Library) -> Judgement:
    """Judge whether an accelerator is below a limit of total processing performance.

    Total processing performance is dense TOPS times bits, as export rules define it.
    """
    accelerator, limit = library.accelerator_of(statement.accelerator), library.facts.limit(statement.limit)
    if limit is None:
        known = ", ".join(known.id for known in library.facts.limits)
        return Judgement(
            verdict=Verdict.UNDETERMINED, reason=f"no rule '{statement.limit}' is on record; known: {known}"
        )
    tpp, rate, kind = max(
        (rate / TERA * _BITS[kind], rate / TERA, kind.value) for kind, rate in accelerator.dense_flops_per_s.items()
    )
    below = tpp < limit.min_tpp
    line = working_line(
        f"{plainly(rate)} * {_BITS[kind]}",
        float(plainly(rate)) * _BITS[kind],
        f"total processing performance (TPP) of {accelerator.name}: dense {kind} TOPS * bits",
    )
    beside = working_line(
        f"{plainly(round(tpp, 1))} < {plainly(limit.min_tpp)}", below, f"TPP of {accelerator.name} < threshold"
    )
    return Judgement(
        verdict=Verdict.CONFIRMED if below == statement.below else Verdict.CONTRADICTED,
        reason=f"{limit.says} applies from a total processing performance (TPP) of {limit.min_tpp:,.0f}; "
        f"{accelerator.name} has a TPP of {tpp:,.0f}, {tpp / limit.min_tpp:.1f} times the threshold",
        workings=(line, beside),
        sources=(
            Cited(title=limit.title, url=limit.url),
            citation(accelerator, accelerator.source_of(f"dense_flops_per_s.{kind}")),
        ),
        true_if=None
        if below == statement.below
        else f"it said that the accelerator is {'below' if below else 'above'} the threshold",
    )
