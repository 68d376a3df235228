"""Declares the calibration file, which `calibrate` writes and every prediction accepts."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, log
from typing import Annotated, ClassVar, Final

import yaml

from penstock.own_runs.fit_correction import ComparedRun, FittedCorrection, load_errors
from penstock.performance.calibration.own_correction import OwnCorrection, SetupFingerprint
from penstock.reading.file_shape import FieldError, FileShape, file_config
from penstock.reading.scalars import Number, Text, number

CALIBRATION_VERSION: Final = 3
_DIGITS: Final = 6
_HEAD: Final = (
    "# Correction of Penstock's predictions by your own runs of exactly this setup. The `factor` of a run is its\n"
    "# measured over its predicted step time. It corrects its own load most, and near loads more than far ones.\n"
)
Factor = Annotated[float, number(low=0.01, high=100.0, digits=_DIGITS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedFactor:
    """Factor on a predicted time, and the P10 and P90 of a further run over the corrected prediction."""

    factor: Factor
    p10: Factor
    p90: Factor

    def __post_init__(self) -> None:
        if not self.p10 <= 1 <= self.p90:
            raise FieldError(f"p10 is {self.p10:g}; it is relative to the corrected time, so it is at most 1", "p10")


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedSetup:
    """The measured setup."""

    model: Text
    shape: Text
    weights: Text
    kv: Text
    accelerator: Text
    split: Text
    engine: Text
    engine_version: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRun:
    """One run that the correction was found from."""

    tool: Text
    file: Text
    load: Text
    tpot_ms: Number
    ttft_ms: Number
    users: Annotated[float, number(low=1.0, high=1e6, digits=_DIGITS)]
    """Number of requests in flight, per rank if ranks are independent. In an open loop it is the simulated one."""
    input_tokens: Annotated[float, number(low=1.0, high=1e8, digits=_DIGITS)]
    output_tokens: Annotated[float, number(low=1.0, high=1e8, digits=_DIGITS)]
    factor: Factor
    """Measured over predicted time of every step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedTimes:
    """The whole file."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = file_config()

    setup: CalibratedSetup
    uncorrected_sigma: Annotated[float, number(low=1e-6, high=10.0, digits=_DIGITS)]
    """Standard deviation of the logarithm of step times before the correction, over their prediction."""
    prompts: CalibratedFactor
    """Further factor on the time of prompt tokens. P10 and P90 are those of the time to first token."""
    runs: tuple[CalibrationRun, ...]
    version: Number = CALIBRATION_VERSION

    def __post_init__(self) -> None:
        if not self.runs:
            raise FieldError("a correction follows from at least one run", "runs")


CALIBRATION_FILE: Final = FileShape(
    of=CalibratedTimes,
    kind="calibration",
    written_by="penstock calibrate RESULTS --to calibration.yaml",
    title="A correction of predictions by own runs, as `penstock calibrate` writes it",
    version=CALIBRATION_VERSION,
)


def calibration_of(
    fitted: FittedCorrection, setup: SetupFingerprint, *, model: str, engine_version: str
) -> CalibratedTimes:
    """Return the file of a fitted correction."""
    return CalibratedTimes(
        setup=CalibratedSetup(
            model=model,
            shape=setup.shape,
            weights=setup.weights,
            kv=setup.kv,
            accelerator=setup.accelerator,
            split=setup.split,
            engine=setup.engine,
            engine_version=engine_version,
        ),
        uncorrected_sigma=fitted.steps.prior_sigma,
        prompts=_factor(fitted.prompts.log_factor, fitted.prompts.spread),
        runs=tuple(map(_run, fitted.runs)),
    )


def write_calibration(calibration: CalibratedTimes) -> str:
    """Return a calibration as YAML, which `read_correction` parses."""
    body: str = yaml.safe_dump(CALIBRATION_FILE.document(calibration), sort_keys=False, allow_unicode=True, width=110)
    return _HEAD + body


def read_correction(text: str, name: str) -> OwnCorrection:
    """Read a calibration file as the correction of its setup. `name` is the file name."""
    found = CALIBRATION_FILE.read(text, name)
    setup = found.setup
    return OwnCorrection(
        setup=SetupFingerprint(
            shape=setup.shape,
            weights=setup.weights,
            kv=setup.kv,
            accelerator=setup.accelerator,
            engine=setup.engine,
            split=setup.split,
        ),
        errors=load_errors(
            [(run.users, run.input_tokens, run.output_tokens) for run in found.runs],
            [log(run.factor) for run in found.runs],
            found.uncorrected_sigma,
        ),
        prompt_log=log(found.prompts.factor),
        first_spread=(log(found.prompts.p10), log(found.prompts.p90)),
        source=name,
    )


def _factor(log_factor: float, spread: tuple[float, float]) -> CalibratedFactor:
    low, high = spread
    return CalibratedFactor(factor=exp(log_factor), p10=exp(low), p90=exp(high))


def _run(compared: ComparedRun) -> CalibrationRun:
    run, (users, inputs, outputs) = compared.run, compared.load
    load = f"{run.users} users" if run.users is not None else f"{run.asked_rate_per_s or run.requests_per_s:.3g}/s"
    return CalibrationRun(
        tool=run.tool,
        file=run.where.rpartition("/")[2],
        load=f"{load}, {run.input_length.mean:.0f}/{run.output_length.mean:.0f} tokens",
        tpot_ms=round(run.tpot.mean_s * 1e3, 4),
        ttft_ms=round(run.ttft.mean_s * 1e3, 3),
        users=users,
        input_tokens=inputs,
        output_tokens=outputs,
        factor=exp(compared.log_factor),
    )
