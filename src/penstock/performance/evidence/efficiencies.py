"""How is what was fitted kept? As a document of plain values, written once and read by every later command."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Literal, cast

import numpy as np

from penstock.performance.evidence.accuracy import FOLDS, HeldOut, Pair, refits, spread
from penstock.performance.evidence.regression import Calibration, Factors, FittedKin, Software
from penstock.performance.evidence.setups import Setups
from penstock.performance.evidence.waits import FIRST, Waited, fit_both
from penstock.performance.step.work import PARTS

_DIGITS = 6

Novelty = Literal["shape", "configuration", "model", "accelerator"]
"""What about a prediction was never measured; errors held out in the same way give its interval."""
Logs = tuple[float, float]
"""P10 and P90 of measured over predicted, as logarithms."""


@dataclass(frozen=True, kw_only=True)
class Efficiencies:
    """What was fitted, and how wrong it was where it had not looked."""

    calibration: Calibration
    spreads: Mapping[Novelty, Logs]
    """By what was held out."""
    first: Calibration
    """What a first token takes beyond the steps it waits for: `waits.FIRST`."""
    first_spreads: Mapping[Novelty, Logs]
    fitted_on: str
    rows: int
    near_spread: Logs = (0.0, 0.0)
    """Where the very setup was measured at other loads or lengths."""
    setups: Setups = field(default_factory=Setups)
    """What was measured, to bend to; none where only kin shall speak."""


def fit_efficiencies(pairs: Sequence[Pair], waits: Sequence[Waited], *, fitted_on: date) -> Efficiencies:
    """Fit everything: slowdowns and factors on all rows, intervals from rows held out in each way."""
    fitted = fit_both([row for _, row in pairs], waits)
    spreads: dict[Novelty, Logs] = {}
    first_spreads: dict[Novelty, Logs] = {}
    for name, fold in FOLDS.items():
        steps: list[HeldOut] = []
        first_tokens: list[HeldOut] = []
        for refit in refits(pairs, waits, fold):
            steps += refit.steps()
            first_tokens += refit.first_tokens()
        online = [entry for entry in steps if entry.measurement.scenario == "online"]
        spreads[cast("Novelty", name)] = spread(online or steps)
        first_spreads[cast("Novelty", name)] = spread(first_tokens)
    return Efficiencies(
        calibration=fitted.step,
        spreads=spreads,
        first=fitted.first,
        first_spreads=first_spreads,
        fitted_on=fitted_on.isoformat(),
        rows=len(pairs),
    )


def to_document(efficiencies: Efficiencies) -> dict[str, Any]:
    """Write plain values, rounded to what they are worth."""
    return {
        "fitted_on": efficiencies.fitted_on,
        "rows": efficiencies.rows,
        "spreads": {name: [_round(value) for value in span] for name, span in efficiencies.spreads.items()},
        "near_spread": [_round(value) for value in efficiencies.near_spread],
        "first_spreads": {name: [_round(value) for value in span] for name, span in efficiencies.first_spreads.items()},
        "pools": _kin(efficiencies.calibration, "slowdowns", PARTS),
        "first": _kin(efficiencies.first, "beyond", FIRST),
    }


def _kin(calibration: Calibration, called: str, columns: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {
            "path": list(path),
            "rows": fitted.rows,
            called: {name: _round(value) for name, value in zip(columns, fitted.slowdowns.tolist(), strict=True)},
            "factors": {
                "family": _table(fitted.factors.family),
                "software": _table({str(key): value for key, value in fitted.factors.software.items()}),
                "configuration": _table(fitted.factors.configuration),
            },
        }
        for path, fitted in sorted(calibration.by_kin.items())
    ]


def _table(logs: Mapping[str, float]) -> dict[str, float]:
    return {key: _round(value) for key, value in sorted(logs.items())}


def from_document(document: Mapping[str, Any]) -> Efficiencies:
    """Read what `to_document` wrote."""
    return Efficiencies(
        calibration=_calibration(document["pools"], "slowdowns", PARTS),
        spreads={name: (span[0], span[1]) for name, span in document["spreads"].items()},
        first=_calibration(document["first"], "beyond", FIRST),
        first_spreads={name: (span[0], span[1]) for name, span in document["first_spreads"].items()},
        near_spread=(document["near_spread"][0], document["near_spread"][1]),
        fitted_on=document["fitted_on"],
        rows=document["rows"],
    )


def _calibration(entries: Sequence[Mapping[str, Any]], called: str, columns: Sequence[str]) -> Calibration:
    return Calibration(
        by_kin={
            tuple(entry["path"]): FittedKin(
                slowdowns=np.array([entry[called][name] for name in columns]),
                rows=entry["rows"],
                factors=_factors(entry["factors"]),
            )
            for entry in entries
        }
    )


def _factors(tables: Mapping[str, Mapping[str, float]]) -> Factors:
    return Factors(
        family=tables["family"],
        software={_software(key): value for key, value in tables["software"].items()},
        configuration=tables["configuration"],
    )


def _software(text: str) -> Software:
    """Read `online 0.19.0 2026-03-01`: a release may be unknown or hold spaces, the kind of run and the day do not."""
    scenario, _, rest = text.partition(" ")
    version, _, day = rest.rpartition(" ")
    return Software(scenario, version, date.fromisoformat(day))


def _round(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
