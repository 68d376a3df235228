"""Answers the rate and the energy of a measured load with the measurement.

A prediction derives the rate from its times, without the start and the end of the benchmark, and the energy from a
power model. Where exactly this setup was measured at this load, the published figures are the answer.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from penstock.catalog.measurement import QUEUED, Measurement
from penstock.performance.calibration.benchmark_harness import drafted_tokens
from penstock.performance.prediction.energy_per_token import Energy
from penstock.performance.prediction.nearest_measurements import same_split
from penstock.performance.prediction.predict_deployment import Prediction, Range
from penstock.performance.similarity.cases import weights_label

_SAME_SPEED: Final = 0.05
"""Maximum relative difference of a row's time per token from the answer, for its other figures to be the answer too."""


def rows_of_cell(
    prediction: Prediction,
    measurements: Iterable[Measurement],
    family_of_row: Callable[[Measurement], str],
    family: str,
) -> list[Measurement]:
    """Return the serving rows of exactly this setup, load and speed, newest first. Empty if the load is not measured.

    Among rows of one day, a dated run comes before a median over months.
    """
    if prediction.tier != "measured":
        return []
    placed, drafts = prediction.deployment, prediction.speculation
    found = [
        row
        for row in measurements
        if row.scenario == "online"
        and row.accelerator == placed.accelerator.id
        and row.engine == prediction.measured_engine
        and row.weights == weights_label(placed.model)
        and same_split(row, placed)
        and not row.overlap
        and QUEUED not in row.flags
        and (drafted_tokens(row) or 0) == (0 if drafts is None else drafts.drafted_tokens)
        and row.tpot_s is not None
        and abs(row.tpot_s / prediction.tpot_s.value - 1) <= _SAME_SPEED
        and _is_load(prediction, row)
        and family_of_row(row) == family
    ]
    return sorted(found, key=lambda row: (row.date, row.dated == "day", row.id), reverse=True)


def _is_load(prediction: Prediction, row: Measurement) -> bool:
    users, inputs, outputs = (
        np.log2([value]) for value in (row.concurrency or 1.0, row.input_tokens, row.output_tokens)
    )
    return prediction.load.is_among((users, inputs, outputs))


def with_measured_rate(prediction: Prediction, rows: Sequence[Measurement]) -> Prediction:
    """Return the prediction with the measured output tokens per second of its cell, if one of `rows` states them."""
    rates = (row.output_tokens_per_s for row in rows if row.output_tokens_per_s)
    rate, predicted = next(rates, None), prediction.output_tokens_per_s
    if rate is None:
        return prediction
    return replace(prediction, output_tokens_per_s=predicted.scaled(rate / predicted.value))


def measured_energy(energy: Energy | None, prediction: Prediction, rows: Sequence[Measurement]) -> Energy | None:
    """Return the measured energy of a prediction's cell, or `energy` if none of `rows` states it.

    The interval is that of repeated runs, as for the time per output token.
    """
    stated = next((row for row in rows if row.joules_per_output_token), None)
    if energy is None or stated is None:
        return energy
    joules, tpot = stated.joules_per_output_token or 0.0, prediction.tpot_s
    span = Range(value=joules, low=joules * tpot.low / tpot.value, high=joules * tpot.high / tpot.value)
    return replace(
        energy,
        device_watts=span.scaled(prediction.output_tokens_per_s_per_device),
        joules_per_output_token=span,
        tier="measured",
        source=f"this setup and load, {stated.source}, {stated.date}",
    )
