"""What does the software cost? The share of the speed of light each stack delivered, month by month."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.performance.evidence.accuracy import Pair
from penstock.performance.evidence.regression import Calibration
from penstock.performance.step.work import roofline_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """One stack in one month: the median share of the roofline its measured steps reached."""

    accelerator: str
    engine: str
    month: str
    rows: int
    median_fraction: float
    low_fraction: float
    high_fraction: float
    relative_speed: float
    """Speed of this month's releases on the same work, over that of the stack's first month here."""

    @property
    def software_tax_fraction(self) -> float:
        """What is left on the table."""
        return 1 - self.median_fraction


def delivered_over_time(
    pairs: Sequence[Pair], calibration: Calibration, *, scenario: str = "online"
) -> list[Delivered]:
    """Group measurements by accelerator, engine and month; a stack with two months shows how its tax moved.

    Months differ in what was run, so the speed of the releases is taken from the fit, which holds the work fixed.
    """
    groups: dict[tuple[str, str, str], list[float]] = {}
    factors: dict[tuple[str, str, str], list[float]] = {}
    for measurement, row in pairs:
        if measurement.scenario != scenario:
            continue
        key = (measurement.accelerator, measurement.engine, f"{measurement.date:%Y-%m}")
        groups.setdefault(key, []).append(roofline_s(row.light) / row.seconds)
        _, fitted = calibration.nearest(row.kin)
        factors.setdefault(key, []).append(fitted.factors.software.get(row.software, 0.0))
    first: dict[tuple[str, str], float] = {}
    for key in sorted(factors):
        first.setdefault(key[:2], float(np.mean(factors[key])))
    return [
        Delivered(
            accelerator=accelerator,
            engine=engine,
            month=month,
            rows=len(shares),
            median_fraction=float(np.median(shares)),
            low_fraction=float(np.quantile(shares, 0.1)),
            high_fraction=float(np.quantile(shares, 0.9)),
            relative_speed=float(np.exp(first[accelerator, engine] - np.mean(factors[accelerator, engine, month]))),
        )
        for (accelerator, engine, month), shares in sorted(groups.items())
    ]
