"""Finds the public measurements closest to a prediction, so that users can compare the two."""

from collections.abc import Callable, Iterable
from math import inf, log

from penstock.catalog.measurement import Measurement
from penstock.performance.prediction.predict_deployment import Prediction


def nearest_measurements(
    prediction: Prediction,
    measurements: Iterable[Measurement],
    family_of_row: Callable[[Measurement], str],
    *,
    family: str,
    input_tokens: float,
    output_tokens: float,
    count: int = 3,
) -> list[Measurement]:
    """Return the `count` nearest serving rows of the same accelerator and model family.

    The distance of a row depends on token lengths, load, number of devices and engine. The nearest row comes first.
    Among equally near rows, the newest comes first.
    """
    wanted = prediction.deployment

    def distance(row: Measurement) -> float:
        if row.concurrency is None or row.tpot_s is None:
            return inf
        return (
            abs(log(row.input_tokens / input_tokens))
            + abs(log(row.output_tokens / output_tokens))
            + abs(log(row.concurrency / prediction.concurrency))
            + 2 * abs(log(row.devices / wanted.parallelism.devices))
            + (0 if row.engine == prediction.measured_engine else 1)
        )

    similar = [
        row
        for row in measurements
        if row.plain
        and row.scenario == "online"
        and row.accelerator == wanted.accelerator.id
        and family_of_row(row) == family
    ]
    # A median over months never ranks as the newest.
    ranked = sorted(similar, key=lambda row: (round(distance(row), 2), row.dated, -row.date.toordinal(), row.id))
    return [row for row in ranked[:count] if distance(row) < inf]
