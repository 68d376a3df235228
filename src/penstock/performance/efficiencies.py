"""How is what was fitted kept? As a document of plain values, written once and read by every later command."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, cast

import numpy as np

from penstock.performance.accuracy import FOLDS, HeldOut, Pair, hold_out, spread
from penstock.performance.calibration import Calibration, Pool, calibrate, factor
from penstock.performance.evidence import AcceleratorOf, ModelOf, measured_deployment
from penstock.performance.predict import Efficiencies, Novelty, prompt_step_s
from penstock.performance.work import PARTS, ReplicaWork

_DIGITS = 6


def fit_efficiencies(
    pairs: Sequence[Pair],
    model_of: ModelOf,
    accelerator_of: AcceleratorOf,
    *,
    fitted_on: date,
    held_out: Mapping[str, Sequence[HeldOut]] | None = None,
) -> Efficiencies:
    """Fit everything: slowdowns and factors on all rows, intervals from rows held out in each way."""
    calibration = calibrate([row for _, row in pairs])
    held = held_out or {name: list(hold_out(pairs, fold)) for name, fold in FOLDS.items()}
    online = {name: [entry for entry in rows if entry.measurement.scenario == "online"] for name, rows in held.items()}
    return Efficiencies(
        calibration=calibration,
        spreads={cast("Novelty", name): spread(rows or held[name]) for name, rows in online.items()},
        first_token=first_token_ratios(pairs, calibration, model_of, accelerator_of),
        fitted_on=fitted_on.isoformat(),
        rows=len(pairs),
    )


def first_token_ratios(
    pairs: Sequence[Pair], calibration: Calibration, model_of: ModelOf, accelerator_of: AcceleratorOf
) -> dict[str, tuple[float, float, float]]:
    """Measured time to first token over the step that carries the prompt, per accelerator and engine."""
    ratios: dict[str, list[float]] = {}
    compiled: dict[tuple[object, ...], ReplicaWork] = {}
    for measurement, row in pairs:
        if measurement.scenario != "online" or not measurement.ttft_s or measurement.concurrency is None:
            continue
        key = (measurement.model, measurement.weights, measurement.accelerator, measurement.tp, measurement.dp)
        if key not in compiled:
            compiled[key] = ReplicaWork(measured_deployment(measurement, model_of, accelerator_of))
        _, pool = calibration.nearest(row.pool)
        slowdowns = pool.slowdowns * float(np.exp(factor(pool, row)))
        base = prompt_step_s(
            compiled[key], slowdowns, measurement.concurrency, measurement.input_tokens, measurement.output_tokens
        )
        label = f"{measurement.accelerator} {measurement.engine}"
        ratios.setdefault(label, []).append(measurement.ttft_s / base)
    return {
        label: (float(np.quantile(seen, 0.1)), float(np.median(seen)), float(np.quantile(seen, 0.9)))
        for label, seen in sorted(ratios.items())
    }


def to_document(efficiencies: Efficiencies) -> dict[str, Any]:
    """Write plain values, rounded to what they are worth."""
    pools = []
    for path, pool in sorted(efficiencies.calibration.pools.items()):
        pools.append(
            {
                "path": list(path),
                "rows": pool.rows,
                "slowdowns": {name: _round(value) for name, value in zip(PARTS, pool.slowdowns.tolist(), strict=True)},
                "factors": {
                    kind: {key: _round(value) for key, value in sorted(table.items())}
                    for kind, table in pool.factors.items()
                },
            }
        )
    return {
        "fitted_on": efficiencies.fitted_on,
        "rows": efficiencies.rows,
        "spreads": {name: [_round(value) for value in span] for name, span in efficiencies.spreads.items()},
        "first_token": {name: [_round(value) for value in span] for name, span in efficiencies.first_token.items()},
        "pools": pools,
    }


def from_document(document: Mapping[str, Any]) -> Efficiencies:
    """Read what `to_document` wrote."""
    pools = {
        tuple(entry["path"]): Pool(
            slowdowns=np.array([entry["slowdowns"][name] for name in PARTS]),
            rows=entry["rows"],
            factors=entry["factors"],
        )
        for entry in document["pools"]
    }
    return Efficiencies(
        calibration=Calibration(pools=pools),
        spreads={name: (span[0], span[1]) for name, span in document["spreads"].items()},
        first_token={name: (span[0], span[1], span[2]) for name, span in document["first_token"].items()},
        fitted_on=document["fitted_on"],
        rows=document["rows"],
    )


def _round(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
