"""Draws the uncertain inputs of a plan: prediction errors, demand, prices and everything else that has a range."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Final
from zlib import crc32

import numpy as np

from penstock.performance.prediction.predict_deployment import Range
from penstock.planning.candidates.replica_capacity import RateCurve
from penstock.planning.optimizer.refill_nodes import Array
from penstock.planning.uncertainty.uncertain_inputs import Knob

_SHARED: Final = 0.4
"""Assumed correlation of prediction errors between two accelerators of one vendor.

The correlation was measured over 67 pairs of accelerators that ran the same model with the same engine. Within a vendor
the correlation was 0.27 for unseen setups and 0.51 for unseen models. Across vendors the correlation was -0.05 for
unseen setups and 0.23 for unseen models.
"""
_NOT_DRAWN: Final = ("delivery",)
"""Kinds of input that are not drawn. A changed delivery date changes the optimization problem, so fleets are solved
again for each date."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnInputs:
    """Draws of the uncertain inputs; every array has one entry per draw."""

    knobs: tuple[Knob, ...]
    """The inputs that are drawn."""
    values: Mapping[str, Array]
    """Maps the id of an input to its values."""
    errors: Mapping[str, Array]
    """Maps accelerator to the prediction errors from which the values of its throughput follow."""


def draw_inputs(knobs: Sequence[Knob], seed: int, draws: int) -> DrawnInputs:
    """Draw each uncertain input from a separate random stream, so that a new input does not change the other draws."""
    uncertain = tuple(knob for knob in knobs if knob.input.uncertain and knob.kind not in _NOT_DRAWN)
    errors = _draw_errors(uncertain, seed, draws)
    values = {
        knob.id: _factor_at(knob, errors[knob.subject])
        if knob.kind == "throughput"
        else _draw_range(knob, _stream(seed, f"input {knob.id}"), draws)
        for knob in uncertain
    }
    return DrawnInputs(knobs=uncertain, values=values, errors=errors)


def _draw_errors(knobs: Sequence[Knob], seed: int, draws: int) -> dict[str, Array]:
    """Draw the prediction error of each accelerator, in standard deviations; negative is slower than predicted.

    The errors of two accelerators of one vendor are correlated.
    """
    uncertain = [knob for knob in knobs if knob.kind == "throughput" and knob.input.uncertain]
    shared = {
        stack: _stream(seed, f"stack {stack}").standard_normal(draws)
        for stack in {knob.stack for knob in uncertain if knob.stack}
    }
    found = {}
    for knob in uncertain:
        own = _stream(seed, f"input {knob.id}").standard_normal(draws)
        common = shared.get(knob.stack)
        found[knob.subject] = own if common is None else sqrt(_SHARED) * common + sqrt(1 - _SHARED) * own
    return found


def _stream(seed: int, name: str) -> np.random.Generator:
    """Return the random stream of this name, which is independent of the streams of other names."""
    return np.random.default_rng([seed, crc32(name.encode())])


def _factor_at(knob: Knob, errors: Array) -> Array:
    """Return an accelerator's capacity factor at each error, through the P10, the median and the P90 of the input."""
    entry = knob.input
    return RateCurve.through(Range(value=entry.value, low=entry.low, high=entry.high)).at(errors)


def _draw_range(knob: Knob, generator: np.random.Generator, draws: int) -> Array:
    """Draw values of one input from two triangular distributions that meet at its stated value.

    The stated value is the median. If the stated value were the mode instead, every draw from a range that starts at
    the stated value would exceed it.
    """
    entry = knob.input
    uniform = generator.random(draws)
    from_value = 1 - np.sqrt(2 * np.minimum(uniform, 1 - uniform))
    return np.asarray(
        entry.value + from_value * np.where(uniform < 1 / 2, entry.low - entry.value, entry.high - entry.value)
    )
