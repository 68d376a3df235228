"""Checks claimed figures against every value that the data sheet may mean, then against products with similar names."""

from collections.abc import Sequence

from penstock.audit.claims.amount import Amount
from penstock.audit.claims.hardware_claims import SpecStatement
from penstock.audit.evidence.data_sheet import SpecReading, spec_readings
from penstock.audit.evidence.lookalikes import matching_lookalikes, mistaken_spec
from penstock.audit.judgement import Cited, Judgement, Verdict, Working, plainly, working_line
from penstock.audit.reference_library import Library
from penstock.catalog.accelerator import Accelerator, Basis, Source
from penstock.units import GB, TERA

_SCALES = {"bytes": (GB, "GB"), "bytes/s": (TERA, "TB/s"), "flops/s": (TERA, "TFLOPS"), "watts": (1.0, "W")}


def audit_spec(statement: SpecStatement, library: Library) -> Judgement:
    """Judge a claimed figure by every value that the data sheet may mean."""
    accelerator = library.accelerator_of(statement.accelerator)
    found = spec_readings(accelerator, statement.quantity, statement.scope, statement.basis)
    if not found:
        return _judge_unlisted(statement, accelerator)
    if statement.sustained:
        return _judge_sustained(statement, accelerator, found)
    amount = statement.amount
    for reading in found:
        if amount.meets(reading.value) if reading is found[0] or not reading.plain else amount.closely(reading.value):
            return _judge_match(statement, accelerator, reading, found)
    return _judge_mismatch(statement, accelerator, found, library)


def _judge_unlisted(statement: SpecStatement, accelerator: Accelerator) -> Judgement:
    """Judge a claimed figure for which the catalog has no value.

    Either the accelerator does not support the format, or the catalog is incomplete.
    """
    dialects = {"fp8": accelerator.fp8_dialect, "fp4": accelerator.fp4_formats}
    source = accelerator.source_of(f"dense_flops_per_s.{next(iter(accelerator.dense_flops_per_s))}")
    if statement.quantity not in dialects or dialects[statement.quantity] or source.basis is Basis.UNVERIFIED:
        return Judgement(
            verdict=Verdict.UNDETERMINED,
            reason=f"the catalog has no {statement.quantity} figure of {accelerator.name}; "
            "a sourced data sheet is missing",
        )
    return Judgement(
        verdict=Verdict.CONTRADICTED,
        reason=f"{accelerator.name} does not support {statement.quantity} arithmetic: its data sheet lists no "
        f"{statement.quantity} rate",
        sources=(citation(accelerator, source),),
        true_if=f"the accelerator supported {statement.quantity}",
    )


def _judge_match(
    statement: SpecStatement, accelerator: Accelerator, reading: SpecReading, found: Sequence[SpecReading]
) -> Judgement:
    lines = (_claim_over_reading(statement.amount, reading, statement.amount.measure),)
    sources = (citation(accelerator, reading.source),)
    if reading.plain:
        sure = reading.source.basis is not Basis.UNVERIFIED
        return Judgement(
            verdict=Verdict.CONFIRMED if sure else Verdict.PLAUSIBLE,
            reason=_match_text(statement.amount, reading, accelerator)
            + ("" if sure else "; no stored source confirms the data sheet figure"),
            workings=lines,
            sources=sources,
        )
    right = found[0]
    return Judgement(
        verdict=Verdict.CONTRADICTED,
        reason=f"{statement.amount.written} is {reading.name} of {accelerator.name}, not {right.name}, which is "
        f"{value_text(right.value, statement.amount.measure)}; no LLM engine uses 2:4 sparsity",
        workings=(*lines, _claim_over_reading(statement.amount, right, statement.amount.measure)),
        sources=(*sources, citation(accelerator, right.source)),
        true_if=f"it named {reading.name}",
    )


def _match_text(amount: Amount, reading: SpecReading, accelerator: Accelerator) -> str:
    """Return a clause that says which data sheet figure the claim matches.

    The clause states the data sheet value if the value differs from the claim by 0.5% or more. If the claim agrees with
    the data sheet only after rounding, the clause says so.
    """
    off = abs(amount.middle / reading.value - 1)
    whose = f"{reading.name} of {accelerator.name}"
    if off < 0.005:  # too small to be called a difference
        return f"{amount.written} is {whose}"
    value = f"{amount.written} matches {whose}, which is {value_text(reading.value, amount.measure)}"
    rounded = not (amount.closely(reading.value) or amount.at_least or amount.at_most)
    return f"{value}; the difference of {off:.0%} is within the rounding of {amount.written}" if rounded else value


def _judge_mismatch(
    statement: SpecStatement, accelerator: Accelerator, found: Sequence[SpecReading], library: Library
) -> Judgement:
    amount, right = statement.amount, found[0]
    line = _claim_over_reading(amount, right, amount.measure)
    sources = (citation(accelerator, right.source),)
    if amount.nearly(right.value):
        return Judgement(
            verdict=Verdict.PLAUSIBLE,
            reason=f"{amount.noun_phrase} differs by {amount.off_by(right.value)} from {right.name} of "
            f"{accelerator.name}, which is {value_text(right.value, amount.measure)}",
            workings=(line,),
            sources=sources,
        )
    whose = matching_lookalikes(statement, accelerator, library)
    if whose is not None and whose.plain:
        return Judgement(
            verdict=Verdict.PLAUSIBLE,
            reason=f"{amount.written} is {whose.name}; {right.name} of {accelerator.name} is "
            f"{value_text(right.value, amount.measure)}",
            workings=(_claim_over_reading(amount, whose, amount.measure), line),
            sources=(citation(accelerator, whose.source), *sources),
            true_if=f"it meant {whose.name}",
        )
    other = whose.name if whose is not None else mistaken_spec(statement, accelerator)
    sure = right.source.basis is not Basis.UNVERIFIED
    return Judgement(
        verdict=Verdict.CONTRADICTED if sure else Verdict.IMPLAUSIBLE,
        reason=f"{right.name} of {accelerator.name} is {value_text(right.value, amount.measure)}, not {amount.written}"
        + (f"; {amount.written} is {other}" if other else ""),
        workings=(line,),
        sources=sources,
        true_if=f"it said {value_text(right.value, amount.measure)}" + (f", or if it meant {other}" if other else ""),
    )


def _judge_sustained(statement: SpecStatement, accelerator: Accelerator, found: Sequence[SpecReading]) -> Judgement:
    """Judge a claim about a sustained rate. Any rate up to the dense peak is possible."""
    amount, peak = statement.amount, found[0]
    share = amount.low / peak.value
    line = working_line(
        f"{plainly(amount.low / TERA)} / {plainly(peak.value / TERA)}", share, f"claimed / {peak.short_name}, in TFLOPS"
    )
    if share > 1 and not amount.meets(peak.value):
        sparse = next((reading for reading in found if not reading.plain and amount.meets(reading.value)), None)
        return Judgement(
            verdict=Verdict.CONTRADICTED if sparse else Verdict.IMPOSSIBLE,
            reason=f"a sustained rate cannot exceed the peak: {peak.name} of {accelerator.name} is "
            f"{value_text(peak.value, amount.measure)}" + (f"; {amount.written} is {sparse.name}" if sparse else ""),
            workings=(line,),
            sources=(citation(accelerator, peak.source),),
            true_if=f"it said at most {value_text(peak.value, amount.measure)}",
        )
    return Judgement(
        verdict=Verdict.PLAUSIBLE,
        reason=f"{amount.noun_phrase} is {share:.0%} of {peak.name} of {accelerator.name}; "
        "matrix benchmarks reach that share, but the result of this benchmark is not on record",
        workings=(line,),
        sources=(citation(accelerator, peak.source),),
    )


def citation(accelerator: Accelerator, source: Source) -> Cited:
    """Return the citation of a source of the accelerator's catalog entry."""
    return Cited(title=source.title or f"{accelerator.name}, {source.basis}", url=source.url)


def value_text(value: float, measure: str) -> str:
    """Format a value in the customary unit of its measure."""
    size, unit = _SCALES.get(measure, (1.0, ""))
    return f"{float(f'{value / size:.4g}'):,g} {unit}".strip()


def _claim_over_reading(amount: Amount, reading: SpecReading, measure: str) -> Working:
    size, unit = _SCALES.get(measure, (1.0, ""))
    ratio = amount.middle / reading.value
    return working_line(
        f"{plainly(amount.middle / size)} / {plainly(reading.value / size)}",
        ratio,
        f"claimed / {reading.short_name}" + (f", in {unit}" if unit else ""),
    )
