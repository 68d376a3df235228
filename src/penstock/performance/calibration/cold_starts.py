"""Finds measured times to first token that contain a cold start, such as the compilation of kernels.

More load never makes a first token come earlier. So a time that is several times the time of the same setup at the same
or a higher load contains something other than the load.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from statistics import median_low
from typing import Final

from penstock.catalog.measurement import Measurement
from penstock.performance.calibration.benchmark_harness import sending_of

MAX_RATIO: Final = 4.0
"""Maximum ratio of a time to first token to that of the same setup at the same or a higher load. The start of a run, in
which all users send a prompt at once, makes a mean at most 1.8 times the median with 128 users and more."""


def without_cold_starts(rows: Iterable[Measurement], setup_of: Callable[[Measurement], Hashable]) -> list[Measurement]:
    """Return all rows in their order. Rows with a cold start have no time to first token.

    `setup_of` gives rows of one setup the same key. A load is represented by the median of its rows, separately for
    means and for medians over requests.
    """
    every = list(rows)
    curves: dict[Hashable, dict[float, dict[str, list[float]]]] = defaultdict(lambda: defaultdict(dict))
    for row in every:
        if _has_first_token(row):
            statistic = sending_of(row.source, row.input_tokens).statistic
            curves[_curve_of(row, setup_of)][row.concurrency or 1.0].setdefault(statistic, []).append(row.ttft_s or 0.0)
    limits = {curve: _limits(loads) for curve, loads in curves.items()}
    return [
        replace(row, ttft_s=None)
        if _has_first_token(row) and (row.ttft_s or 0.0) > limits[_curve_of(row, setup_of)][row.concurrency or 1.0]
        else row
        for row in every
    ]


def _has_first_token(row: Measurement) -> bool:
    return row.scenario == "online" and bool(row.ttft_s) and bool(row.concurrency)


def _curve_of(row: Measurement, setup_of: Callable[[Measurement], Hashable]) -> Hashable:
    return setup_of(row), row.drafted, row.draft_tokens, round(row.input_tokens), round(row.output_tokens)


def _limits(loads: dict[float, dict[str, list[float]]]) -> dict[float, float]:
    """Return the largest time to first token at each load that counts as evidence."""
    limits, lowest = {}, float("inf")
    for users in sorted(loads, reverse=True):
        lowest = min(lowest, *(median_low(times) for times in loads[users].values()))
        limits[users] = MAX_RATIO * lowest
    return limits
