"""Answers the rate and the energy of a measured load with the measurement.

A prediction derives the rate from its times, without the start and the end of the benchmark, and the energy from a
power model. Where exactly this setup was measured at this load, the published figures are the answer. Between measured
loads the rate follows them.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from penstock.catalog.measurement import QUEUED, Measurement
from penstock.performance.calibration.benchmark_harness import drafted_tokens
from penstock.performance.prediction.energy_per_token import Energy
from penstock.performance.prediction.measured_load import RequestedLoad
from penstock.performance.prediction.nearest_measurements import same_split
from penstock.performance.prediction.predict_deployment import Prediction, Range
from penstock.performance.similarity.cases import weights_label
from penstock.performance.similarity.own_measurements import OwnMeasurements

_SAME_SPEED: Final = 0.05
"""Maximum relative difference of a row's time per token from the answer, for its other figures to be the answer too."""
_NEAREST_LOADS: Final = 4
"""Number of measured loads, nearest to the requested one, whose rates are used."""


def rows_of_setup(
    prediction: Prediction,
    measurements: Iterable[Measurement],
    family_of_row: Callable[[Measurement], str],
    family: str,
) -> list[Measurement]:
    """Return the serving rows of exactly this setup, newest first. Empty if no load near the requested one is measured.

    Among rows of one day, a dated run comes before a median over months.
    """
    if prediction.tier not in {"measured", "interpolated"}:
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
        and family_of_row(row) == family
    ]
    return sorted(found, key=lambda row: (row.date, row.dated == "day", row.id), reverse=True)


def rows_of_cell(prediction: Prediction, rows: Iterable[Measurement]) -> list[Measurement]:
    """Return those of a setup's rows that were measured at this load and speed."""
    if prediction.tier != "measured":
        return []
    return [row for row in rows if _has_speed(prediction, row) and _load_of(row, prediction.load) == prediction.load]


def _has_speed(prediction: Prediction, row: Measurement) -> bool:
    return abs((row.tpot_s or 0.0) / prediction.tpot_s.value - 1) <= _SAME_SPEED


def _load_of(row: Measurement, asked: RequestedLoad) -> RequestedLoad:
    """Return the load of a row, with the requested lengths if its own count as the same."""
    users = row.concurrency or 1.0
    own = RequestedLoad(users, row.input_tokens, row.output_tokens)
    same = RequestedLoad(users, asked.input_tokens, asked.output_tokens)
    return same if same.is_among(own.logs) else own


def with_measured_rate(
    prediction: Prediction, rows: Sequence[Measurement], predict_at: Callable[[RequestedLoad], Prediction]
) -> Prediction:
    """Return the prediction with the output tokens per second that the nearest measured loads of its setup imply.

    At a measured load, the newest measured rate is the answer. What a benchmark adds to the times, mostly its start and
    its end, changes little from load to load: the ratio of the measured rate to the predicted one is interpolated.
    """
    asked = prediction.load
    measured: dict[RequestedLoad, list[Measurement]] = defaultdict(list)
    for row in rows:
        measured[_load_of(row, asked)].append(row)
    ratios = {}
    for load in sorted(measured, key=lambda load: _apart(load, asked))[:_NEAREST_LOADS]:
        again = prediction if load == asked else predict_at(load)
        rates = (
            row.output_tokens_per_s for row in measured[load] if row.output_tokens_per_s and _has_speed(again, row)
        )
        if (rate := next(rates, None)) is not None:
            ratios[load] = rate / again.output_tokens_per_s.value
    if not ratios:
        return prediction
    users, inputs, outputs = (np.concatenate(each) for each in zip(*(load.logs for load in ratios), strict=True))
    logs = np.log(np.array(list(ratios.values())))
    own = OwnMeasurements(loads=(users, inputs, outputs), log_seconds=logs, drift=np.zeros(len(logs)))
    factor = float(np.exp(own.interpolate(asked.logs, logs)[0]))
    return replace(prediction, output_tokens_per_s=prediction.output_tokens_per_s.scaled(factor))


def _apart(one: RequestedLoad, other: RequestedLoad) -> float:
    return float(sum((mine - yours)[0] ** 2 for mine, yours in zip(one.logs, other.logs, strict=True)))


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
