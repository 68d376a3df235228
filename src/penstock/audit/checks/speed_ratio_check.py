"""Checks speed ratios between two setups, or between two dates of one setup.

Published pairs are used first, then the performance model.
"""

from collections import defaultdict
from datetime import date
from math import log
from typing import Final

from penstock.audit.claims.record_claims import ChangeStatement
from penstock.audit.claims.speed_claims import ServedSetup, SpeedRatioStatement
from penstock.audit.evidence.distribution import Distribution
from penstock.audit.evidence.published_rows import cite_rows, figure_of, load_of, predict_pairs, published_figures
from penstock.audit.judgement import Cited, Judgement, Verdict, plainly, working_line
from penstock.audit.reference_library import Library
from penstock.catalog.measurement import Measurement
from penstock.performance.calibration.measured_runs import setup_of

_REPEAT: Final = 1.1
"""Maximum ratio between two runs of one setup.

A claim is implausible if it lies outside the published range by more than this ratio.
"""
_FAR: Final = 1.25
_MODEL: Final = Cited(title="Penstock's performance model, P10 to P90", url="docs/evidence.md")


def audit_speed_ratio(statement: SpeedRatioStatement, library: Library, said_on: date | None = None) -> Judgement:
    """Judge the ratio of two setups' rates under the same load.

    Published rates are used for every load that the claim may mean. Without published rates, predicted rates are used.
    """
    pairs = _published_pairs(statement, library, said_on)
    if pairs:
        return _by_pairs(statement, pairs, library)
    predicted = predict_pairs(statement.setup, statement.over, library)
    if not predicted:
        return Judgement(
            verdict=Verdict.UNDETERMINED,
            reason="no load is published for both setups, and the performance model cannot predict both; "
            "measurements of both setups are missing",
        )
    low, high = min(pair.low for pair in predicted), max(pair.high for pair in predicted)
    nearest = min(predicted, key=lambda pair: abs(log(pair.mine / pair.yours / max(statement.amount.middle, 1e-9))))
    line = working_line(
        f"{plainly(nearest.mine)} / {plainly(nearest.yours)}",
        float(plainly(nearest.mine)) / float(plainly(nearest.yours)),
        f"predicted tok/s of the first setup / of the second setup, both with {nearest.load}",
    )
    inside = statement.amount.overlaps(low, high)
    stated = _load_stated(statement.setup)
    reason = (
        f"no load is published for both setups; the performance model predicts a ratio of "
        f"{_times(low)} to {_times(high)}"
    ) + ("" if stated else " over usual loads, because the claim does not state its load in full")
    far = not statement.amount.overlaps(low / _FAR, high * _FAR)
    verdict = Verdict.IMPLAUSIBLE if far else Verdict.PLAUSIBLE if stated and inside else Verdict.UNDETERMINED
    return Judgement(verdict=verdict, reason=reason, workings=(line,), sources=(_MODEL,))


def _by_pairs(
    statement: SpeedRatioStatement, pairs: list[tuple[Measurement, Measurement]], library: Library
) -> Judgement:
    ratios = [(figure_of(mine, "throughput") or 0.0) / (figure_of(yours, "throughput") or 1.0) for mine, yours in pairs]
    loads = Distribution(values=ratios, noun=("published load", "published loads"), write=_times, margin=_REPEAT)
    verdict, reason = loads.judge(statement.amount)
    return Judgement(
        verdict=verdict,
        reason=reason,
        workings=(loads.line(statement.amount),),
        sources=cite_rows([row for pair in pairs for row in pair], library),
        true_if=None if verdict is not Verdict.IMPLAUSIBLE else f"it said {_times(loads.median)}",
    )


def _times(ratio: float) -> str:
    return f"{float(f'{ratio:.3g}'):g}x"


def _published_pairs(
    statement: SpeedRatioStatement, library: Library, said_on: date | None
) -> list[tuple[Measurement, Measurement]]:
    """For each load that both setups have, return a pair of published rows, one of each setup.

    The newest pair from a single source is used. If no source has both setups, the fastest row of each setup is used.
    """
    ours, theirs = (_fastest(setup, library, said_on) for setup in (statement.setup, statement.over))
    pairs = []
    for load in ours.keys() & theirs.keys():
        mine, yours = ours[load], theirs[load]
        same = [(mine[source], yours[source]) for source in mine.keys() & yours.keys()]
        any_two = next(iter(mine.values())), next(iter(yours.values()))
        pairs.append(max(same, key=lambda pair: (min(row.date for row in pair), pair[0].id), default=any_two))
    return sorted(pairs, key=lambda pair: pair[0].id)


def _fastest(
    setup: ServedSetup, library: Library, said_on: date | None
) -> dict[tuple[object, ...], dict[str, Measurement]]:
    """Return the fastest row of each load and source, over all engines and splits.

    For each load, the sources are sorted by the rate of their fastest row, fastest first.
    """
    rates = published_figures(setup, "throughput", library, said_on, by_source=True)
    found: dict[tuple[object, ...], dict[str, Measurement]] = defaultdict(dict)
    for row in sorted(rates, key=lambda row: rates[row], reverse=True):
        found[load_of(row)].setdefault(row.source, row)
    return found


def _load_stated(setup: ServedSetup) -> bool:
    return bool(setup.concurrency and setup.input_tokens and setup.output_tokens)


def audit_change(statement: ChangeStatement, library: Library) -> Judgement:
    """Judge a speed-up over time.

    The judgement compares the oldest and the newest dated row of every setup and load that was measured on two days.
    """
    accelerator = library.accelerator_of(statement.accelerator)
    runs: dict[tuple[object, ...], list[Measurement]] = defaultdict(list)
    for row in library.measurements_of(accelerator.id):
        if _counts(row, statement, library):
            runs[*setup_of(row), row.concurrency, row.input_tokens, row.output_tokens].append(row)
    ratios = []
    for rows in runs.values():
        ordered = sorted(rows, key=lambda row: row.date)
        first, last = ordered[0], ordered[-1]
        old, new = figure_of(first, "throughput"), figure_of(last, "throughput")
        if first.date < last.date and old and new:
            ratios.append((first, last, old, new))
    if not ratios:
        return Judgement(
            verdict=Verdict.UNDETERMINED,
            reason=f"no setup of {accelerator.name} with this software was measured on two days; "
            "measurements of both days are missing",
        )
    cells = Distribution(
        values=[new / old for _, _, old, new in ratios],
        noun=("setup measured twice", "setups measured twice"),
        write=_times,
        repeat=_REPEAT,
    )
    verdict, reason = cells.judge(statement.amount)
    return Judgement(
        verdict=verdict,
        reason=reason,
        workings=(cells.line(statement.amount),),
        sources=cite_rows([row for first, last, _, _ in ratios for row in (first, last)], library),
    )


def _counts(row: Measurement, statement: ChangeStatement, library: Library) -> bool:
    if row.dated != "day" or not row.plain:
        return False
    if statement.engine is not None and row.engine != statement.engine:
        return False
    if statement.model is not None and library.shape_of(row.model) != library.shape_of(
        library.model_of(statement.model).name
    ):
        return False
    return (statement.since or date.min) <= row.date <= (statement.until or date.max)
