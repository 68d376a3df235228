"""Computes the share of the roofline that each stack delivered, month by month."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from penstock.performance.calibration.held_out import months_of
from penstock.performance.similarity.posterior import Evidence
from penstock.performance.step.step_work import rooflines_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """Share of the roofline that the measured steps of one stack reached in one month, as median, P10 and P90."""

    accelerator: str
    engine: str
    month: str
    rows: int
    median_fraction: float
    low_fraction: float
    high_fraction: float
    relative_speed: float
    """Speed of this month's releases, divided by the speed of the releases in the stack's first measured month. Both
    speeds are for equal work."""

    @property
    def software_tax_fraction(self) -> float:
        """Return the share of the roofline that the stack did not deliver."""
        return 1 - self.median_fraction


def delivered_over_time(evidence: Evidence) -> list[Delivered]:
    """Return the delivered share of the roofline by accelerator, engine and month, from dated serving rows.

    For a stack that was measured in several months, the result shows how the software tax changed.

    The measured workloads differ between months. So the relative speed of a month's releases is computed from the
    fitted effect of the release date.
    """
    cases, texts = evidence.cases, evidence.measured.texts
    groups: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    months = [str(month) for month in months_of(cases)]
    for number, (accelerator, engine, month) in enumerate(
        zip(texts["part"], evidence.measured.engines, months, strict=True)
    ):
        if engine.serving and not cases.undated[number]:
            groups[accelerator, engine.name, month].append(number)
    shares = rooflines_s(cases.roofline) / evidence.measured.seconds
    software = {key: float(np.mean(evidence.software(cases.take(np.array(rows))))) for key, rows in groups.items()}
    first = {key[:2]: software[key] for key in sorted(groups, reverse=True)}
    return [
        Delivered(
            accelerator=accelerator,
            engine=engine,
            month=month,
            rows=len(rows),
            median_fraction=float(np.median(shares[rows])),
            low_fraction=float(np.quantile(shares[rows], 0.1)),
            high_fraction=float(np.quantile(shares[rows], 0.9)),
            relative_speed=float(np.exp(first[accelerator, engine] - software[accelerator, engine, month])),
        )
        for (accelerator, engine, month), rows in sorted(groups.items())
    ]
