"""Checks the model of errors by load against shipped measurements, and the proposed run against random designs.

`python tools/check_next_run.py` prints two tables. The first predicts measured loads from other loads of the same setup
and day, and counts how many lie within P10-P90. The second measures simulated endpoints whose components are slower or
faster than predicted by hidden factors: a first run, then the proposed runs or a Latin-hypercube design of as many.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from penstock.api.arguments.choices import counted_targets
from penstock.api.arguments.deployment_argument import RequestedDeployment
from penstock.api.options.predict_options import PredictOptions
from penstock.catalog import load_held_out
from penstock.own_runs.next_run import RunLoad, propose_run
from penstock.performance.calibration.own_correction import log_loads
from penstock.performance.prediction.serving_stack import Stack, stack_of
from penstock.performance.shipped.shipped_runs import shipped_efficiencies
from penstock.performance.similarity.cases import LogLoad
from penstock.performance.similarity.load_errors import LoadErrors
from penstock.performance.similarity.slowdowns import closed_loop_case
from penstock.performance.step.step_work import COMPONENTS, ReplicaWork

Array = npt.NDArray[np.float64]
_SETUPS: Final = (("llama-3.1-70b", "h100:4"), ("llama-3.1-8b", "mi300x"), ("qwen3-32b", "h200"))
_LENGTHS: Final = ((512, 128), (2000, 400), (8000, 1000), (1000, 1000), (250, 250))
_MAX_DOUBLINGS: Final = (5, 9)
_P90_SIGMAS: Final = 1.2816
_RUN_NOISE: Final = 0.02
_COMPONENT_SIGMA, _COMMON_SIGMA = 0.3, 0.1
"""Standard deviations of the hidden log factors: of each component of a step, and of all together."""
_FAR: Final = 0.1
"""Doublings below which two measurements are of the same load."""


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """How well a number of measured loads predicts the other loads of a setup."""

    runs: int
    loads: int
    in_interval: float
    median_error: float
    median_error_uncorrected: float
    in_interval_far: float
    """Share within the interval of the loads that are at least 3.2 doublings away from every measured one."""


def coverage(runs: int, seed: int = 0) -> Coverage:
    """Predict loads of shipped setups, which the shipped prediction did not see, from some of their other loads."""
    measured, held = shipped_efficiencies().evidence.measured, load_held_out()
    errors = np.log(measured.seconds) - np.log(held["setup_predicted_s"].astype(np.float64))
    sigmas, logs = held["setup_doubt"].astype(np.float64), np.column_stack(measured.cases.log_load)
    setups: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row in np.flatnonzero(np.isfinite(errors)).tolist():
        setups[int(measured.cases.labels["setup"][row]), int(measured.cases.day[row])].append(row)
    draw, left, whole, deviations, nearest = np.random.default_rng(seed), [], [], [], []
    for rows in map(np.array, setups.values()):
        if len(rows) < runs + 2:
            continue
        known = draw.choice(rows, runs, replace=False)
        apart = np.sqrt(np.square(logs[rows][:, None] - logs[known][None]).sum(axis=2)).min(axis=1)
        asked, distance = rows[apart > _FAR], apart[apart > _FAR]
        found = LoadErrors(prior_sigma=float(sigmas[rows].mean()), loads=_loads(logs[known]), errors=errors[known])
        error = errors[asked] - found.mean(_loads(logs[asked]))
        left += error.tolist()
        whole += errors[asked].tolist()
        deviations += (error / found.sigma(_loads(logs[asked]))).tolist()
        nearest += distance.tolist()
    inside, far = np.abs(deviations) < _P90_SIGMAS, np.array(nearest) >= 3.2
    return Coverage(
        runs=runs,
        loads=len(left),
        in_interval=float(inside.mean()),
        median_error=float(np.median(np.abs(left))),
        median_error_uncorrected=float(np.median(np.abs(whole))),
        in_interval_far=float(inside[far].mean()),
    )


def _loads(logs: Array) -> LogLoad:
    users, inputs, outputs = logs.T
    return users, inputs, outputs


@cache
def setup(number: int) -> tuple[ReplicaWork, Stack, float]:
    """Return the work, the predicted stack and the standard deviation of the prediction of a setup."""
    model, on = _SETUPS[number % len(_SETUPS)]
    placing = RequestedDeployment(PredictOptions(model, on, engine="vllm", precision="fp8", kv="fp8"))
    work = ReplicaWork(placing.predict(*counted_targets(on)[0], (1000, 1000, 16)).deployment)
    stack = stack_of(work, "vllm", shipped_efficiencies())
    low, high = stack.spread
    return work, stack, (high - low) / (2 * _P90_SIGMAS)


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Endpoint of a setup whose components are slower or faster than predicted by hidden factors."""

    number: int
    hidden: Array
    noise: Array

    def errors(self, loads: Sequence[RunLoad]) -> Array:
        """Return the logarithm of true over predicted time per token at each load."""
        work, stack, _ = setup(self.number)
        asked = tuple((float(load.users), float(load.input_tokens), float(load.output_tokens)) for load in loads)
        roofline = closed_loop_case(work, "vllm", asked, shipped_efficiencies().evidence.newest).roofline
        return np.asarray(np.log(roofline @ (stack.slowdowns * self.hidden)) - np.log(roofline @ stack.slowdowns))

    def measured(self, loads: Sequence[RunLoad]) -> LoadErrors:
        """Return what runs at these loads tell. The noise of a run depends on its place in the list."""
        errors = self.errors(loads) + self.noise[: len(loads)]
        return LoadErrors(prior_sigma=setup(self.number)[2], loads=_logs(loads), errors=errors)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Interval and true error at the loads that matter, after runs of each design."""

    sigma_proposed: float
    sigma_random: float
    error_proposed: float
    error_random: float


def trial(seed: int, runs: int) -> Trial:
    """Measure one endpoint with a first run and then `runs` proposed runs, or a Latin-hypercube design of as many.

    The loads that matter are one length and 1 to 32 or up to 256 users. The first run has random users.
    """
    draw = np.random.default_rng(seed)
    hidden = _COMMON_SIGMA * draw.standard_normal() + _COMPONENT_SIGMA * draw.standard_normal(len(COMPONENTS))
    server = Endpoint(number=seed, hidden=np.exp(hidden), noise=_RUN_NOISE * draw.standard_normal(runs + 1))
    lengths, doublings = _LENGTHS[int(draw.integers(len(_LENGTHS)))], int(draw.integers(*_MAX_DOUBLINGS))
    matters = [RunLoad(2**users, *lengths) for users in range(doublings + 1)]
    first = matters[int(draw.integers(len(matters)))]
    proposed = [first]
    for _ in range(runs):
        found = propose_run(server.measured(proposed), matters, matters)
        proposed += [] if found is None else [found.load]
    strata = (draw.permutation(runs) + draw.random(runs)) / runs
    design = [first, *(RunLoad(max(1, round(2.0 ** (doublings * users))), *lengths) for users in strata.tolist())]
    at, truth = _logs(matters), server.errors(matters)
    own, other = server.measured(proposed), server.measured(design)
    return Trial(
        sigma_proposed=_rms(own.sigma(at)),
        sigma_random=_rms(other.sigma(at)),
        error_proposed=_rms(truth - own.mean(at)),
        error_random=_rms(truth - other.mean(at)),
    )


def _logs(loads: Sequence[RunLoad]) -> LogLoad:
    return log_loads([(np.log2(one.users), np.log2(one.input_tokens), np.log2(one.output_tokens)) for one in loads])


def _rms(values: Array) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def main() -> None:
    """Print both tables."""
    print("| runs of a setup | other loads | in P10-P90 | in P10-P90, far away | median error | uncorrected |")
    for runs in (1, 2, 3, 6):
        one = coverage(runs)
        print(
            f"| {one.runs} | {one.loads:,} | {one.in_interval:.0%} | {one.in_interval_far:.0%} "
            f"| {one.median_error:.1%} | {one.median_error_uncorrected:.1%} |"
        )
    print("\n| further runs | trials | interval narrower | true error smaller | median interval | median true error |")
    for runs in (1, 2, 3, 4):
        trials = [trial(seed, runs) for seed in range(100)]
        narrower = np.mean([one.sigma_proposed < one.sigma_random for one in trials])
        smaller = np.mean([one.error_proposed < one.error_random for one in trials])
        intervals = [np.median([getattr(one, f"sigma_{kind}") for one in trials]) for kind in ("proposed", "random")]
        errors = [np.median([getattr(one, f"error_{kind}") for one in trials]) for kind in ("proposed", "random")]
        print(
            f"| {runs} | {len(trials)} | {narrower:.0%} | {smaller:.0%} "
            f"| {intervals[0]:.1%} against {intervals[1]:.1%} | {errors[0]:.1%} against {errors[1]:.1%} |"
        )


if __name__ == "__main__":
    main()
