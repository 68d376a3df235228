"""Finds reasons to doubt that runs measured the stated setup, or that one correction fits all of them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import exp, hypot, log
from typing import Final

from penstock.load_tools.load_run import LoadRun
from penstock.own_runs.fit_correction import ComparedRun, first_noise, sigma_of
from penstock.own_runs.replay_run import SimulatedRun
from penstock.performance.calibration.error_summary import Logs
from penstock.performance.similarity.load_errors import RUN_NOISE

_P99_SIGMAS: Final = 2.3263


@dataclass(frozen=True, slots=True, kw_only=True)
class _Time:
    """A time that runs measure, and the largest error after a correction that is not remarkable."""

    name: str
    measured_s: Callable[[LoadRun], float]
    simulated_s: Callable[[SimulatedRun], float]
    small: float


_TPOT: Final = _Time(
    name="TPOT", measured_s=lambda run: run.tpot.mean_s, simulated_s=lambda seen: seen.tpot_s, small=0.1
)
_TTFT: Final = _Time(
    name="TTFT", measured_s=lambda run: run.ttft.mean_s, simulated_s=lambda seen: seen.ttft_s, small=0.25
)


def implausible_runs(runs: Sequence[ComparedRun], prior: Logs, first_prior: Logs) -> Iterator[str]:
    """Yield a sentence for each run whose TPOT or TTFT lies outside the P1 and P99 of the uncorrected prediction."""
    for one in runs:
        yield from _outside(one, _TPOT, hypot(sigma_of(prior), RUN_NOISE))
        yield from _outside(one, _TTFT, hypot(sigma_of(first_prior), first_noise(one.run)))


def _outside(one: ComparedRun, time: _Time, sigma: float) -> Iterator[str]:
    measured_s, predicted_s = time.measured_s(one.run), time.simulated_s(one.before)
    limit = _P99_SIGMAS * sigma
    if measured_s <= 0 or abs(log(measured_s / predicted_s)) > limit:
        yield (
            f"{one.run.where}: {time.name} is {measured_s * 1e3:.3g} ms, outside the prediction's P1 to P99 of "
            f"{predicted_s * exp(-limit) * 1e3:.3g} to {predicted_s * exp(limit) * 1e3:.3g} ms. "
            "Check the model, the precision, the accelerator and drafting."
        )


def worsened_times(runs: Sequence[ComparedRun]) -> Iterator[str]:
    """Yield a sentence for each time whose largest error the correction increases."""
    for time in (_TPOT, _TTFT):
        before, after = (
            max(abs(time.simulated_s(seen) / time.measured_s(one.run) - 1) for one, seen in found)
            for found in ([(one, one.before) for one in runs], [(one, one.after) for one in runs])
        )
        if after > max(before, time.small):
            yield (
                f"The correction increases the largest error of {time.name} from {before:.1%} to {after:.1%}: "
                "no slower or faster steps and prompts explain all times of these runs."
            )


def stated_otherwise(
    runs: Sequence[LoadRun], engine: str, engine_version: str | None, accelerator: str | None, devices: int | None
) -> Iterator[str]:
    """Yield a sentence for each fact of the setup that a file states and that is another than the stated one.

    `accelerator` is the identifier of the catalog. Files name accelerators by identifiers too.
    """
    family = engine.partition("-")[0]
    stated = dict.fromkeys(
        (name, said, ours)
        for run in runs
        for name, said, ours in (
            ("the engine", run.engine, family),
            ("the engine's version", run.engine_version, engine_version),
            ("the accelerator", run.accelerator, accelerator),
            ("the number of accelerators", run.devices, devices),
        )
        if None not in (said, ours) and said != ours
    )
    for name, said, ours in stated:
        yield f"A file states {name} as {said}, not {ours}."
