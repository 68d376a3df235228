"""Checks speeds.

A claim is checked against physical bounds first, then published rows of its setup and load, then the performance model.
"""

from collections.abc import Mapping
from datetime import date
from functools import partial
from typing import Final

from penstock.audit.checks.bound_check import judge_by_bounds, judge_request_count
from penstock.audit.checks.fit_check import attempt_fit
from penstock.audit.checks.spec_check import citation
from penstock.audit.claims.speed_claims import SpeedStatement
from penstock.audit.evidence.distribution import Distribution
from penstock.audit.evidence.physical_limits import PhysicalLimit, max_rate, physical_limits
from penstock.audit.evidence.published_rows import Interval, cite_rows, predict_figure, published_figures
from penstock.audit.evidence.weight_formats import possible_formats
from penstock.audit.judgement import Cited, Judgement, Verdict, Working, plainly, working_line
from penstock.audit.reference_library import Library
from penstock.catalog.accelerator import Accelerator
from penstock.catalog.measurement import Measurement
from penstock.model import CacheDtype, ModelSpec, Part
from penstock.units import GB

_REPEAT: Final = 1.1
"""Maximum ratio between the results of two runs of one setup under one load."""
_DRAFTED: Final = 2.8
"""Tokens per step with three drafted tokens that are mostly accepted, as in published rows with draft layers."""
_LATER: Final = 2.0
"""Assumed maximum factor by which engines became faster between the day of a claim and later published rows."""
_FAR: Final = 1.25
"""A figure is implausible if it lies beyond an end of the predicted interval by more than this factor."""


def audit_speed(statement: SpeedStatement, library: Library, said_on: date | None = None) -> Judgement:
    """Judge a rate, a latency or a number of requests.

    The claim is checked against physical bounds first, then rows published up to the day of the claim, then the
    performance model.
    """
    setup = statement.setup
    model, accelerator = library.model_of(setup.model), library.accelerator_of(setup.accelerator)
    found = _limits(statement, library)
    sources = [
        citation(accelerator, accelerator.source_of("memory.hbm_bytes_per_s")),
        Cited(title=f"config.json of {model.name}"),
    ]
    if not any(limit.holds_weights for limit in found):
        return _does_not_fit(statement, model, accelerator, found, tuple(sources))
    bound = judge_by_bounds(statement, found)
    if bound is not None and bound.verdict is Verdict.IMPOSSIBLE:
        return _with(bound, tuple(sources))
    if statement.metric == "requests":
        return _with(bound or judge_request_count(found), tuple(sources))
    rows = published_figures(setup, statement.metric, library, said_on)
    judged = _by_rows(statement, rows, library, said_on) or bound or _by_model(statement, rows, library)
    lines = () if judged.workings else (_lines(found)[-1:])
    return _with(judged, tuple(sources), lines)


def _limits(statement: SpeedStatement, library: Library) -> tuple[PhysicalLimit, ...]:
    """Return the limits of the widest split if that split allows the claim, else the limits of all splits.

    A claim is physically possible if at least one split allows it.
    """
    widest = physical_limits(statement.setup, library, widest=True)
    if any(limit.holds_weights for limit in widest) and judge_by_bounds(statement, widest) is None:
        return widest
    return physical_limits(statement.setup, library)


def _with(judged: Judgement, sources: tuple[Cited, ...], lines: tuple[Working, ...] = ()) -> Judgement:
    return Judgement(
        verdict=judged.verdict,
        reason=judged.reason,
        workings=(*judged.workings, *lines),
        sources=(*judged.sources, *sources),
        true_if=judged.true_if,
    )


def _does_not_fit(
    statement: SpeedStatement,
    model: ModelSpec,
    accelerator: Accelerator,
    found: tuple[PhysicalLimit, ...],
    sources: tuple[Cited, ...],
) -> Judgement:
    setup = statement.setup
    where = f"{setup.devices} x {accelerator.name}" if setup.devices > 1 else f"one {accelerator.name}"
    attempts = [attempt_fit(model, name, accelerator, setup.devices, 1) for name in possible_formats(setup.precision)]
    smallest = min(attempts, key=lambda attempt: attempt.weight_bytes)
    if smallest.holds_weights:
        return Judgement(
            verdict=Verdict.UNDETERMINED,
            reason=f"no known split of {where} holds {model.name}; state the tensor and data parallel ranks",
            workings=(smallest.line,),
            sources=sources,
        )
    del found
    bits = 8 * smallest.memory_bytes / model.total_params
    return Judgement(
        verdict=Verdict.IMPOSSIBLE,
        reason=f"{model.name} does not fit, so it cannot run at any speed: the {smallest.precision} weights take "
        f"{smallest.weight_bytes / GB:,.1f} x 10^9 bytes, but the memory of {where} is only "
        f"{smallest.memory_bytes / GB:,.1f} x 10^9 bytes",
        workings=(
            smallest.line,
            working_line(
                f"8 * {plainly(round(smallest.memory_bytes / GB, 1))} / {plainly(round(model.total_params / GB, 2))}",
                8 * round(smallest.memory_bytes / GB, 1) / round(model.total_params / GB, 2),
                "maximum bits per weight: memory in bits / number of weights",
            ),
        ),
        sources=sources,
        true_if=f"it named more devices, or weights of less than {bits:.1f} bits each",
    )


def _lines(found: tuple[PhysicalLimit, ...]) -> tuple[Working, ...]:
    best = max_rate(found)
    return () if best is None else best.rate_lines()


def _by_rows(
    statement: SpeedStatement, rows: Mapping[Measurement, float], library: Library, said_on: date | None
) -> Judgement | None:
    """Judge a claim by published rows of its setup and load. If the claim states no load, rows of any load are used."""
    setup, amount = statement.setup, statement.amount
    if not rows:
        return None
    stated = setup.concurrency and setup.input_tokens and setup.output_tokens
    cell = Distribution(
        values=tuple(rows.values()),
        noun=("published row", "published rows") if stated else ("published load", "published loads"),
        write=partial(_in_unit, statement=statement),
        repeat=_REPEAT,
        margin=_FAR if stated else _REPEAT,
        modest="low" if statement.metric == "throughput" else "high",
    )
    verdict, reason = cell.judge(amount)
    if not stated:
        if verdict is Verdict.IMPLAUSIBLE:
            return None
        verdict, reason = Verdict.PLAUSIBLE, f"{reason}; the claim states no load"
    values = rows.values()
    plain = verdict is Verdict.IMPLAUSIBLE and not any(row.drafted for row in rows)
    if plain and _by_drafts(statement, min(values), max(values), library):
        verdict, reason = (
            Verdict.PLAUSIBLE,
            f"{reason}; these rows are without drafted tokens, which could explain the claim",
        )
    if said_on is not None and all(row.date > said_on for row in rows):
        slower = amount.scaled(_LATER if statement.metric == "throughput" else 1 / _LATER)
        verdict = Verdict.PLAUSIBLE if cell.is_modest(amount) and not cell.is_modest(slower) else verdict
        reason += "; all of these figures were published after the claim"
    times, unit = (1.0, "") if statement.metric == "throughput" else (1e3, ", in ms")
    return Judgement(
        verdict=verdict,
        reason=reason,
        workings=(cell.line(amount, times, unit),),
        sources=cite_rows(list(rows), library),
    )


def _claim_over_value(statement: SpeedStatement, value: float, what: str) -> Working:
    """Return the line of arithmetic that divides a claim by a value. Rates are in tok/s, times in ms."""
    times = 1.0 if statement.metric == "throughput" else 1e3
    claimed, other = plainly(times * statement.amount.middle), plainly(times * value)
    return working_line(
        f"{claimed} / {other}", float(claimed) / float(other), what + ("" if times == 1.0 else ", in ms")
    )


def _no_room(statement: SpeedStatement, library: Library) -> Judgement | None:
    """Judge a setup whose weights fit but leave no room for a KV cache. Return None for any other setup."""
    setup = statement.setup
    model, accelerator = library.model_of(setup.model), library.accelerator_of(setup.accelerator)
    if library.efficiencies is None or setup.replicas > 1 or setup.data_parallel > 1:
        return None
    attempts = [
        attempt_fit(model, name, accelerator, setup.devices, 1, cache=CacheDtype.FP8)
        for name in possible_formats(setup.precision)
    ]
    held = [attempt for attempt in attempts if attempt.holds_weights]
    if not held or any(attempt.fits or attempt.best is None for attempt in held):
        return None
    nearest = min(held, key=lambda attempt: attempt.weight_bytes)
    return Judgement(
        verdict=Verdict.IMPLAUSIBLE,
        reason=f"the {nearest.precision} weights fit, but {nearest.lacks}",
        workings=(nearest.line,),
        true_if="it named more devices",
    )


def _by_model(statement: SpeedStatement, rows: Mapping[Measurement, float], library: Library) -> Judgement:
    found = None if library.efficiencies is None else predict_figure(statement.setup, statement.metric, library)
    if found is None:
        return _no_room(statement, library) or Judgement(
            verdict=Verdict.UNDETERMINED,
            reason=f"{statement.amount.noun_phrase} is within physical bounds, but there is no measurement or "
            "prediction of this setup",
        )
    line = _claim_over_value(statement, found.middle, "claimed / predicted")
    said = f"{_in_unit(found.low, statement)} to {_in_unit(found.high, statement)}"
    missing = "" if found.stated else f", over {found.loads} usual loads, because the claim states no load"
    verdict, where = _against(statement, found, list(rows.values()))
    if verdict is Verdict.IMPLAUSIBLE and _by_drafts(statement, found.low, found.high, library):
        verdict, where = Verdict.PLAUSIBLE, "within reach with drafted tokens, but without drafted tokens faster than"
    return Judgement(
        verdict=verdict,
        reason=f"{statement.amount.noun_phrase} is {where} the predicted {said} "
        f"(P10-P90, {found.tier}, {found.engine}){missing}",
        workings=(line,),
        sources=(Cited(title="Penstock's performance model, P10 to P90", url="docs/evidence.md"),),
        true_if=None if verdict is Verdict.PLAUSIBLE else f"it said {said}",
    )


def _by_drafts(statement: SpeedStatement, low: float, high: float, library: Library) -> bool:
    """Return whether speculative decoding explains a claim that is faster than figures without speculative decoding.

    Speculative decoding can explain the claim if the claim states it, or if the claim is silent and the model has draft
    layers.
    """
    drafted = statement.setup.drafted
    if drafted is None:
        drafted = Part.MTP in library.model_of(statement.setup.model).params_by_part
    if statement.metric == "throughput":
        return drafted and statement.amount.overlaps(low, high * _DRAFTED)
    return drafted and statement.metric == "tpot" and statement.amount.overlaps(low / _DRAFTED, high)


def _against(statement: SpeedStatement, found: Interval, rates: list[float]) -> tuple[Verdict, str]:
    amount = statement.amount
    if amount.overlaps(found.low, found.high):
        return Verdict.PLAUSIBLE, "within"
    if amount.overlaps(found.low / _FAR, found.high * _FAR):
        return Verdict.PLAUSIBLE, "just outside"
    if amount.overlaps(min([found.low, *rates]), max([found.high, *rates])):
        return Verdict.PLAUSIBLE, "between the published rows and"
    faster = (amount.low > found.high) == (statement.metric == "throughput")
    return Verdict.IMPLAUSIBLE, "faster than" if faster else "slower than"


def _in_unit(value: float, statement: SpeedStatement) -> str:
    if statement.metric == "throughput":
        return f"{float(f'{value:.3g}'):,g} tok/s"
    return f"{float(f'{value * 1e3:.3g}'):,g} ms"
