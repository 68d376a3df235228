"""What do six runs of a real engine tell about other loads? Calibrate from files, predict the others, and compare."""

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from engine.closed_loops import CALIBRATED, HELD_OUT, ClosedLoop
from penstock.api.calibrate import CalibrateAnswer, calibrate
from penstock.api.predict import PredictAnswer, predict

SETUP: dict[str, Any] = {"engine": "vllm", "precision": "bf16", "kv": "bf16"}
"""An engine that computes in float32 is described by the peaks of its accelerator file: the figures of 16-bit elements
that it reaches with elements of twice the bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Means of one run."""

    tpot_s: float
    ttft_s: float
    output_tokens_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One held-out load of one engine, as measured and as predicted."""

    loop: ClosedLoop
    measured: Times
    before: Times
    after: Times
    tpot_in_interval: bool

    def errors(self, name: str, *, before: bool = False) -> float:
        predicted: float = getattr(self.before if before else self.after, name)
        measured: float = getattr(self.measured, name)
        return abs(predicted / measured - 1)


def measured_times(path: Path) -> Times:
    result = json.loads(path.read_text(encoding="utf-8"))
    return Times(
        tpot_s=result["mean_tpot_ms"] / 1e3,
        ttft_s=result["mean_ttft_ms"] / 1e3,
        output_tokens_per_s=result["output_throughput"],
    )


def calibrated(folder: Path, dtype: str, model: Path) -> CalibrateAnswer:
    """Calibrate from the six files of one engine."""
    files = [folder / f"{dtype}-{loop.name}.json" for loop in CALIBRATED]
    return calibrate(files, str(folder / f"{dtype}.toml"), model=str(model), accept_doubtful=True, **SETUP)


def compare(folder: Path, dtype: str, model: Path, calibration: Path, measured: dict[str, Times]) -> list[Compared]:
    """Predict each held-out load with and without the calibration."""
    on = str(folder / f"{dtype}.toml")

    def asked(loop: ClosedLoop, calibration: str | None) -> tuple[Times, tuple[float, float]]:
        answer = predict(
            str(model),
            on,
            input_tokens=loop.input_tokens,
            output_tokens=loop.output_tokens,
            concurrency=loop.users,
            calibration=calibration,
            **SETUP,
        )
        assert isinstance(answer, PredictAnswer)
        (one,) = answer.predictions
        assert one.ttft_s is not None
        times = Times(
            tpot_s=one.tpot_s.value, ttft_s=one.ttft_s.value, output_tokens_per_s=one.output_tokens_per_s.value
        )
        return times, (one.tpot_s.low, one.tpot_s.high)

    found = []
    for loop in HELD_OUT:
        before, _ = asked(loop, None)
        after, (low, high) = asked(loop, str(calibration))
        seen = measured[loop.name]
        found.append(
            Compared(loop=loop, measured=seen, before=before, after=after, tpot_in_interval=low <= seen.tpot_s <= high)
        )
    return found


def median_error(compared: list[Compared], name: str, *, before: bool = False) -> float:
    return median(one.errors(name, before=before) for one in compared)
