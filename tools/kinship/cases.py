"""What is known about a measurement, as columns? Labels that make rows kin, load, day, and the work of a step."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from statistics import median_low
from typing import Final

import numpy as np
import numpy.typing as npt

from penstock.benchmark.shipped_rows import model_of
from penstock.catalog import load_accelerator
from penstock.catalog.measurement import Measurement
from penstock.model.spec import model_as_measured
from penstock.performance.evidence.rows import calibration_rows, shape_of
from penstock.performance.step.work import PARTS, Array

Codes = npt.NDArray[np.int64]
COLUMNS: Final = (*PARTS, "exchange", "exchanges", "matrices", "quantised")
"""The parts of a step, and what the trial adds: bytes and number of exchanges between data-parallel ranks, matrices a
step multiplies with, and those among them whose input is quantised first."""
REFERENCE: Final = np.array(
    [1.15, 1.1, 1.1, 1.5, 1.6, 2.0, 8e-6, 15e-6, 10e-6, 8e-6, 4e-4, 2.0, 10e-6, 2e-6, 2e-6], dtype=np.float64
)
"""Slowdowns of the physical columns and seconds per launch that any stack starts from."""
_NIGHTLY: Final = "rocm-atom-nightly"
_WIRE_BYTES: Final = 2
_SLOT_BYTES_PER_S: Final = 32e9
_NARROW_BITS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cases:
    """One entry per measurement everywhere."""

    rows: tuple[Measurement, ...]
    seconds: Array
    light: Array
    labels: dict[str, Codes]
    users: Array
    """Logarithms to base 2, as the two lengths."""
    inputs: Array
    outputs: Array
    month: Array
    undated: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.rows)


def cases(measurements: Iterable[Measurement]) -> Cases:
    """Turn the plain serving rows into columns; nightly repeats of a cell count once a month."""
    pairs = calibration_rows(_once_a_month(measurements), model_of, load_accelerator)
    rows = tuple(row for row, _ in pairs)
    more = np.array([_more_columns(row) for row in rows])
    return Cases(
        rows=rows,
        seconds=np.array([found.seconds for _, found in pairs]),
        light=np.column_stack([np.array([found.light for _, found in pairs]), more]),
        labels={name: _codes(texts) for name, texts in _labels(rows).items()},
        users=np.log2([max(1.0, row.concurrency or 1.0) for row in rows]),
        inputs=np.log2([row.input_tokens for row in rows]),
        outputs=np.log2([row.output_tokens for row in rows]),
        month=np.array([row.date.year * 12 + row.date.month + (row.date.day - 1) / 31 for row in rows]),
        undated=np.array([row.dated == "up_to" for row in rows]),
    )


def _once_a_month(measurements: Iterable[Measurement]) -> list[Measurement]:
    cells: dict[tuple[object, ...], list[Measurement]] = defaultdict(list)
    for row in measurements:
        if not row.plain or row.scenario != "online":
            continue
        day: object = f"{row.date:%Y-%m}" if row.source == _NIGHTLY else row.id
        split = (row.tp, row.dp, row.ep)
        load = (row.concurrency, row.input_tokens, row.output_tokens)
        cells[row.source, row.model, row.weights, row.kv, row.accelerator, row.engine, *split, *load, day].append(row)
    return [_middle(found) for found in cells.values()]


def _middle(found: Sequence[Measurement]) -> Measurement:
    middle = median_low(row.tpot_s or 0.0 for row in found)
    return next(row for row in found if (row.tpot_s or 0.0) == middle)


def _labels(rows: Sequence[Measurement]) -> dict[str, list[str]]:
    """Words two rows may share, alone and together."""
    vendor = [str(load_accelerator(row.accelerator).vendor) for row in rows]
    family, kind = [_family(row.model) for row in rows], [_kind(row.model) for row in rows]
    engine, part = [row.engine for row in rows], [row.accelerator for row in rows]
    weights, split = [row.weights for row in rows], [f"tp{row.tp} dp{row.dp} ep{row.ep:d}" for row in rows]
    alone = {"vendor": vendor, "part": part, "engine": engine, "kind": kind, "family": family}
    together = {
        "stack": (part, engine),
        "kind vendor": (kind, vendor),
        "kind engine": (kind, engine),
        "kind stack": (kind, part, engine),
        "family vendor": (family, vendor),
        "family part": (family, part),
        "family engine": (family, engine),
        "family stack": (family, part, engine),
        "weights vendor": (weights, vendor),
        "weights stack": (weights, part, engine),
        "split engine": (split, engine),
        "setup": (family, part, engine, weights, split),
    }
    joined = {name: ["|".join(words) for words in zip(*columns, strict=True)] for name, columns in together.items()}
    return {**alone, **joined, "shape": [f"{row.input_tokens:.0f}/{row.output_tokens:.0f}" for row in rows]}


def _codes(texts: Sequence[str]) -> Codes:
    """Numbers that are equal where the words are, whatever table they stand in."""
    return np.array([int.from_bytes(blake2b(text.encode(), digest_size=7).digest(), "big") for text in texts])


@cache
def _family(model: str) -> str:
    return shape_of(model_of(model))


@cache
def _kind(model: str) -> str:
    spec = model_of(model)
    mixers = sorted({layer.mixer.kind for layer in spec.layers if layer.mixer is not None})
    return f"{'+'.join(mixers)} {'dense' if spec.experts is None else 'mixture'}"


def _more_columns(row: Measurement) -> tuple[float, float, float, float]:
    seconds, count = _exchange(row.model, row.accelerator, row.tp, row.dp, whole_experts=row.ep)
    tokens = (row.concurrency or 1.0) * (1 + row.input_tokens / row.output_tokens)
    matrices, quantised = _matrices(row.model, row.weights)
    return seconds * tokens, float(count), float(matrices), float(quantised)


@cache
def _exchange(model: str, accelerator: str, tp: int, dp: int, *, whole_experts: bool) -> tuple[float, int]:
    """Seconds a token's activations take between ranks with their own attention, and how often they go."""
    spec, ranks = model_of(model), tp * dp
    if spec.experts is None or dp == 1:
        return 0.0, 0
    link = load_accelerator(accelerator).link
    one_way = None if link is None else link.aggregate_bytes_per_s_one_way
    layers = sum(layer.feed_forward == "moe" for layer in spec.layers)
    # Whole experts: to each rank that holds one of them and back. Sliced ones: gathered and scattered by everybody.
    visited = 1 - (1 - 1 / ranks) ** spec.experts.per_token if whole_experts else 1.0
    sent = 2 * spec.hidden_size * _WIRE_BYTES * visited * (ranks - 1) / ranks
    return layers * sent / (one_way or _SLOT_BYTES_PER_S), 2 * layers


@cache
def _matrices(model: str, weights: str) -> tuple[int, int]:
    spec = model_as_measured(model_of(model), weights)
    found = [weight for weight in spec.weights if weight.layer is not None and len(weight.shape) > 1]
    found = [weight for weight in found if weight.part.value not in {"vision", "mtp"}]
    return len(found), sum(weight.format.bits < _NARROW_BITS for weight in found)
