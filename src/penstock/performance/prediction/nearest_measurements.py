"""Finds the public measurements closest to a prediction, so that users can compare the two."""

from collections.abc import Callable, Iterable
from math import inf, log
from typing import Final

import numpy as np

from penstock.catalog.measurement import QUEUED, Measurement
from penstock.fleet.deployment import Deployment
from penstock.performance.calibration.benchmark_harness import drafted_tokens
from penstock.performance.prediction.predict_deployment import Prediction
from penstock.performance.similarity.cases import weights_label

_CLOSE: Final = 0.05
"""Relative difference of two times up to which no reason is needed."""


def nearest_measurements(
    prediction: Prediction,
    measurements: Iterable[Measurement],
    family_of_row: Callable[[Measurement], str],
    *,
    family: str,
    count: int = 3,
) -> list[Measurement]:
    """Return the `count` nearest serving rows of the same accelerator and model family.

    The distance of a row depends on token lengths, load, number of devices, engine and drafted tokens. The nearest row
    comes first. Among equally near rows, the newest comes first. A prediction with drafts is compared with rows without
    drafts only if there are no rows with drafts.
    """
    wanted, load, drafts = prediction.deployment, prediction.load, prediction.speculation

    def distance(row: Measurement) -> float:
        if row.concurrency is None or row.tpot_s is None:
            return inf
        return (
            abs(log(row.input_tokens / load.input_tokens))
            + abs(log(row.output_tokens / load.output_tokens))
            + abs(log(row.concurrency / load.users))
            + 2 * abs(log(row.devices / wanted.parallelism.devices))
            + (0 if row.engine == prediction.measured_engine else 1)
            + (0 if row.weights == weights_label(wanted.model) else 1)
            + (0 if same_split(row, wanted) else 0.5)
            + (0.5 if row.overlap else 0)
            + (0 if drafts is None or drafted_tokens(row) == drafts.drafted_tokens else 0.5)
        )

    served = [
        row
        for row in measurements
        if row.scenario == "online"
        and not row.twin
        and QUEUED not in row.flags
        and row.accelerator == wanted.accelerator.id
        and family_of_row(row) == family
    ]
    drafting = [row for row in served if row.drafted and drafts is not None]
    similar = drafting or [row for row in served if not row.drafted]
    # A median over months never ranks as the newest.
    ranked = sorted(similar, key=lambda row: (round(distance(row), 2), row.dated, -row.date.toordinal(), row.id))
    return [row for row in ranked[:count] if distance(row) < inf]


def reasons_to_differ(prediction: Prediction, row: Measurement) -> tuple[str, ...]:
    """Return the reasons why a row's time differs from the predicted time, or nothing if both are within 5%."""
    if row.tpot_s is None or abs(row.tpot_s / prediction.tpot_s.value - 1) <= _CLOSE:
        return ()
    wanted, software, drafts = prediction.deployment, prediction.software, prediction.speculation
    users, inputs, outputs = (
        np.log2([value]) for value in (row.concurrency or 1.0, row.input_tokens, row.output_tokens)
    )
    reasons = {
        "engine": row.engine == prediction.measured_engine,
        "weight format": row.weights == weights_label(wanted.model),
        "split": same_split(row, wanted),
        "drafts": (drafted_tokens(row) or 0) == (0 if drafts is None else drafts.drafted_tokens),
        "overlap of batches": not row.overlap,
        "load": prediction.load.is_among((users, inputs, outputs)),
        "software": row.dated == "day" and (software is None or row.date >= software.date),
    }
    return tuple(reason for reason, same in reasons.items() if not same)


def same_split(row: Measurement, wanted: Deployment) -> bool:
    """Return whether a row was measured with the split of a deployment."""
    split = wanted.parallelism
    return (row.tp, row.dp, row.ep) == (split.tp, split.dp, split.expert_parallel)
