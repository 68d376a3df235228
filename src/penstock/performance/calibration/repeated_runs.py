"""Measures how much two measurements of one setup and load differ."""

from collections import defaultdict
from itertools import pairwise
from typing import Final

import numpy as np

from penstock.performance.calibration.error_summary import Logs
from penstock.performance.similarity.posterior import Measured
from penstock.performance.step.step_work import Array

_MAX_DAYS: Final = 10
"""Two measurements further apart than this differ by their software and not only by chance. Two measurements of one day
may be one run that two sources published."""


def repeat_spread(measured: Measured, seconds: Array) -> Logs:
    """Return P10 and P90 of newer over older time of one setup and load, as logarithms.

    `seconds` has one time per row, NaN if unknown. Pairs are consecutive dated serving rows, 1 to 10 days apart.
    """
    cases = measured.cases
    loads: dict[tuple[float, ...], list[int]] = defaultdict(list)
    for row, engine in enumerate(measured.engines):
        if engine.serving and not cases.undated[row] and np.isfinite(seconds[row]):
            lengths = round(cases.input_tokens[row]), round(cases.output_tokens[row])
            loads[int(cases.labels["setup"][row]), cases.users[row], *lengths].append(row)
    logs = [
        float(np.log(seconds[newer] / seconds[older]))
        for rows in loads.values()
        for older, newer in pairwise(sorted(rows, key=lambda row: float(cases.day[row])))
        if 1 <= cases.day[newer] - cases.day[older] <= _MAX_DAYS
    ]
    return float(np.quantile(logs, 0.1)), float(np.quantile(logs, 0.9))
