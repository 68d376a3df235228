"""What do six runs of a real engine tell about other loads? Calibrate from files, predict the others, and compare."""

import csv
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from engine.closed_loops import CALIBRATED, HELD_OUT, ClosedLoop
from penstock.api.calibrate import CalibrateAnswer, calibrate
from penstock.api.simulate import simulate

SETUP: Final[dict[str, Any]] = {"engine": "vllm", "precision": "bf16", "kv": "bf16"}
"""An engine that computes in float32 is described by the peaks of its accelerator file: the rates in 16-bit elements
that it reaches with elements of twice the bytes."""
NAMES: Final = ("tpot_s", "ttft_s", "output_tokens_per_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Medians over the requests of one run, and its throughput."""

    tpot_s: float
    ttft_s: float
    output_tokens_per_s: float

    def of(self, name: str) -> float:
        found: float = getattr(self, name)
        return found


def measured_times(folder: Path, dtype: str) -> dict[str, Times]:
    """Return the held-out loads of one engine as measured, by the name of the load."""
    with (folder / "held_out.csv").open(encoding="utf-8", newline="") as file:
        return {
            row["load"]: Times(**{name: float(row[name]) for name in NAMES})
            for row in csv.DictReader(file)
            if row["dtype"] == dtype
        }


def calibrated(folder: Path, dtype: str, model: Path, number: int) -> CalibrateAnswer:
    """Calibrate from the six files of one engine and round."""
    files = [folder / f"{dtype}-{loop.name}-{number}.json" for loop in CALIBRATED]
    return calibrate(files, str(folder / f"{dtype}.toml"), model=str(model), accept_doubtful=True, **SETUP)


def predicted_times(folder: Path, dtype: str, model: Path, calibration: Path | None) -> dict[str, Times]:
    """Simulate each held-out load, with or without a calibration."""
    return {loop.name: _simulated(folder / f"{dtype}.toml", model, loop, calibration) for loop in HELD_OUT}


def _simulated(on: Path, model: Path, loop: ClosedLoop, calibration: Path | None) -> Times:
    answer = simulate(
        str(model),
        str(on),
        users=loop.users,
        requests=loop.requests,
        input_tokens=loop.input_tokens,
        output_tokens=loop.output_tokens,
        slo="ttft=100s,tpot=10s",
        calibration=None if calibration is None else str(calibration),
        **SETUP,
    )
    (row,) = answer.rows()
    values = [row[name] for name in ("tpot_s_p50", "ttft_s_p50", "output_tokens_per_s")]
    assert all(isinstance(value, float) for value in values)
    return Times(**dict(zip(NAMES, values, strict=True)))  # type: ignore[arg-type]  # asserted above


def median_error(predicted: dict[str, Times], measured: dict[str, Times], name: str) -> float:
    return median(abs(predicted[load].of(name) / measured[load].of(name) - 1) for load in measured)
