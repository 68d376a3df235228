"""Evidence about a claimed setup: published rows of that setup and load, and predicted intervals."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from math import exp, log
from typing import Final, TypeAlias

from penstock.audit.claims.speed_claims import Metric, ServedSetup
from penstock.audit.evidence.physical_limits import splits
from penstock.audit.evidence.weight_formats import formats_tried, in_format
from penstock.audit.judgement import Cited
from penstock.audit.reference_library import Library
from penstock.catalog.measurement import Measurement
from penstock.errors import DeploymentError, UnsupportedPrecision
from penstock.fleet import Parallelism
from penstock.model.cache_dtypes import cache_dtype
from penstock.performance.calibration.measured_runs import setup_of
from penstock.performance.prediction.choose_engine import BEST, predict_on
from penstock.performance.prediction.predict_deployment import Prediction, Range

_SAME_LENGTHS: Final = 0.2
"""Two lengths count as equal if their natural logarithms differ by at most this amount.

The allowance is needed because the mean length in InferenceX is 0.9 times the nominal length.
"""
_SAME_USERS: Final = 0.06
_LENGTHS: Final = ((1024, 1024), (128, 128), (128, 2048), (4096, 512))
_MANY: Final = 1024
"""Maximum number of users that is tried if a claim states no concurrency.

One user is tried, and as many as fit in memory.
"""
_BITS_ALIKE: Final = {"fp16": "bf16", "int8": "fp8", "q4_k_m": "int4", "nvfp4": "mxfp4"}
"""Formats with equal weight bytes. Published rows of one format apply to the other format."""
_UNSURE_PART: Final = ("gpu_ambiguous", "gpu_unnamed")
"""Flags of rows whose accelerator is ambiguous or not named."""


_Asked: TypeAlias = tuple[str | None, int, tuple[int, int, int]]
"""A weight format, the index of a load, and the load as input tokens, output tokens and users."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """The predicted figure with its P10 and P90, over all loads that the claim may mean."""

    low: float
    high: float
    middle: float
    tier: str
    engine: str
    loads: int
    stated: bool
    """Whether the claim states the load, so that there is only one load."""


def published_figures(
    setup: ServedSetup, metric: Metric, library: Library, said_on: date | None = None, *, by_source: bool = False
) -> dict[Measurement, float]:
    """Return the published figures of the claimed model, format, accelerator, number of devices and load, by row.

    A property that the claim does not state matches any row. For each engine, split and load (and each source, if
    `by_source`), the newest row up to the day of the claim is used. If all rows are later, the newest later row is
    used.
    """
    accelerator = library.accelerator_of(setup.accelerator)
    shape = library.shape_of(library.model_of(setup.model).name)
    found = {
        row: value * setup.replicas
        for row in library.measurements_of(accelerator.id)
        if _same(row, setup) and library.shape_of(row.model) == shape and (value := figure_of(row, metric))
    }
    known = [row for row in found if said_on is None or row.date <= said_on] or found
    newest = {
        (*setup_of(row), load_of(row), by_source and row.source): row
        for row in sorted(known, key=lambda row: (row.date, row.id))
    }
    return {row: found[row] for row in newest.values()}


def load_of(row: Measurement) -> tuple[object, ...]:
    """Return the properties that comparable rows have in common: scenario, format, drafts, users and lengths."""
    weights = _BITS_ALIKE.get(row.weights, row.weights)
    lengths = round(row.input_tokens, -2), round(row.output_tokens, -2)
    return row.scenario, weights, row.drafted, row.concurrency, *lengths


def _same(row: Measurement, setup: ServedSetup) -> bool:
    if row.scenario == "disaggregated" or row.devices != setup.devices // max(1, setup.replicas):
        return False
    alike = (_BITS_ALIKE.get(weights, weights) for weights in (setup.precision or row.weights, row.weights))
    if row.flag in _UNSURE_PART or len(set(alike)) > 1:
        return False
    if setup.engine is not None and row.engine != setup.engine:
        return False
    if setup.drafted is not None and bool(row.drafted) != setup.drafted:
        return False
    return _near(row.concurrency, setup.concurrency, _SAME_USERS) and all(
        _near(mine, asked, _SAME_LENGTHS)
        for mine, asked in ((row.input_tokens, setup.input_tokens), (row.output_tokens, setup.output_tokens))
    )


def cite_rows(rows: Sequence[Measurement], library: Library) -> tuple[Cited, ...]:
    """List the sources of the rows. Each source comes with its row id, or with its number of rows."""
    found = []
    for name in dict.fromkeys(row.source for row in rows):
        here = sorted((row for row in rows if row.source == name), key=lambda row: row.date)
        source = library.sources.get(name)
        which = here[0].id if len(here) == 1 else f"{len(here)} rows"
        days = " to ".join(dict.fromkeys(f"{row.date}" for row in (here[0], here[-1])))
        title = source.title if source else name
        found.append(Cited(title=f"{title}, {which}, {days}", url=source.url if source else None))
    return tuple(found)


def _near(value: float | None, asked: float | None, within: float) -> bool:
    return asked is None or (value is not None and abs(log(value / asked)) <= within)


def figure_of(row: Measurement, metric: Metric) -> float | None:
    """Return a row's value of a metric. A rate that is not published is computed from the row's latencies."""
    if metric == "tpot":
        return row.tpot_s
    if metric == "ttft":
        return row.ttft_s
    if row.output_tokens_per_s is not None:
        return row.output_tokens_per_s
    if row.concurrency is None or row.tpot_s is None:
        return None
    first = row.ttft_s or 0.0
    return row.concurrency * row.output_tokens / (first + row.output_tokens * row.tpot_s)


@lru_cache(maxsize=1024)
def predict_figure(setup: ServedSetup, metric: Metric, library: Library) -> Interval | None:
    """Predict the claimed figure over every load that the claim may mean. Return None if nothing can be predicted."""
    found = list(_predictions(setup, library))
    ranges = [(_range(one, metric, copies), one) for one, copies, _ in found if one.memory.fits]
    kept = [(spread, one) for spread, one in ranges if spread is not None]
    if not kept:
        return None
    logs = [log(spread.value) for spread, _ in kept]
    last = kept[0][1]
    return Interval(
        low=min(spread.low for spread, _ in kept),
        high=max(spread.high for spread, _ in kept),
        middle=exp(sum(logs) / len(logs)),
        tier=last.tier,
        engine=last.measured_engine,
        loads=len(kept),
        stated=bool(setup.concurrency and setup.input_tokens and setup.output_tokens),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RatePair:
    """The predicted token rates of two setups under one load, and the range of the ratio of these rates."""

    mine: float
    yours: float
    low: float
    high: float
    load: str


@lru_cache(maxsize=256)
def predict_pairs(setup: ServedSetup, over: ServedSetup, library: Library) -> tuple[RatePair, ...]:
    """Predict the rates of both setups, each with its widest split, under every load that the claim may mean."""
    if library.efficiencies is None:
        return ()
    ours, theirs = _rates(setup, library), _rates(over, library)
    pairs = [(*ours[key], theirs[key][0]) for key in ours if key in theirs]
    return tuple(
        RatePair(
            mine=mine.value,
            yours=yours.value,
            low=mine.low / yours.high,
            high=mine.high / yours.low,
            load=f"{users:,} user{'' if users == 1 else 's'}, {inputs:,} input tokens and {outputs:,} output tokens",
        )
        for mine, (inputs, outputs, users), yours in pairs
    )


def _rates(setup: ServedSetup, library: Library) -> dict[tuple[str | None, int], tuple[Range, tuple[int, int, int]]]:
    """Return the predicted rate and the load, keyed by weight format and load index.

    The rates of two setups are paired by key.
    """
    found: dict[tuple[str | None, int], tuple[Range, tuple[int, int, int]]] = {}
    for one, copies, (name, number, load) in _predictions(setup, library):
        if one.memory.fits:
            found.setdefault((name, number), (one.output_tokens_per_s.scaled(copies), load))
    return found


def _range(prediction: Prediction, metric: Metric, copies: int) -> Range | None:
    if metric == "tpot":
        return prediction.tpot_s
    return prediction.ttft_s if metric == "ttft" else prediction.output_tokens_per_s.scaled(copies)


def _predictions(setup: ServedSetup, library: Library) -> Iterator[tuple[Prediction, int, _Asked]]:
    accelerator = library.accelerator_of(setup.accelerator)
    model = library.model_of(setup.model)
    for name in formats_tried(setup.precision)[:2]:
        for split, copies in _usual_splits(setup, library):
            engine = _engine(setup, library)
            for number, load in enumerate(_loads(setup, copies)):
                try:
                    found = predict_on(
                        in_format(model, name),
                        accelerator,
                        split,
                        cache_dtype=None if setup.cache is None else cache_dtype(setup.cache),
                        measured_engine=engine,
                        load=load,
                        efficiencies=library.efficiencies,
                    )
                except (DeploymentError, UnsupportedPrecision):
                    break
                engine = found.measured_engine
                yield found, copies, (name, number, load)


def _usual_splits(setup: ServedSetup, library: Library) -> list[tuple[Parallelism, int]]:
    """Return the widest split. If the claim states no concurrency, also return the narrowest split."""
    found = list(splits(setup, library.accelerator_of(setup.accelerator)))
    return [found[0]] if setup.concurrency is not None or len(found) == 1 else [found[0], found[-1]]


def _engine(setup: ServedSetup, library: Library) -> str:
    accelerator = library.accelerator_of(setup.accelerator)
    known = () if library.efficiencies is None else library.efficiencies.engines(accelerator.id)
    return setup.engine if setup.engine in known else BEST


def _loads(setup: ServedSetup, copies: int) -> Iterator[tuple[int, int, int]]:
    lengths = [
        (setup.input_tokens or inputs, setup.output_tokens or outputs)
        for inputs, outputs in (_LENGTHS[:1] if setup.input_tokens and setup.output_tokens else _LENGTHS)
    ]
    users = _MANY if setup.concurrency is None else max(1, setup.concurrency // copies)
    for inputs, outputs in dict.fromkeys(lengths):
        yield inputs, outputs, users
    if setup.concurrency is None:
        yield *lengths[0], 1
