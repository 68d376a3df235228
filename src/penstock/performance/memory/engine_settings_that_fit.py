"""Finds the engine settings nearest to the defaults that fit, with a larger memory fraction or smaller steps."""

from collections.abc import Collection, Iterator
from dataclasses import replace
from math import floor, inf
from typing import Final, Literal

from penstock.fleet.deployment import Deployment
from penstock.fleet.engines import Engine
from penstock.fleet.serving_engines import profile_of, usual_settings
from penstock.performance.memory.budget import MemoryFit, fit
from penstock.performance.memory.sharding import redundant_experts

MAX_HUNDREDTHS: Final = 95
"""The largest memory fraction in published recipes, in hundredths (InferenceX: dsr1_fp8_b200.sh for SGLang,
dsv4_fp8_h200.sh for vLLM). A larger fraction leaves too little memory for drivers and other processes."""
_MIN_STEP_TOKENS: Final = 512
"""The smallest number of tokens per step in published recipes (InferenceX: dsv4_fp8_h200.sh)."""

Tunable = Literal["memory_fraction", "max_batched_tokens"]
TUNABLE: Final[frozenset[Tunable]] = frozenset({"memory_fraction", "max_batched_tokens"})


def with_room(
    deployment: Deployment, context_tokens: int, *, requests: int = 1, free: Collection[Tunable] = TUNABLE
) -> Deployment:
    """Return the deployment with the nearest engine settings that have room for the requests.

    The deployment is returned unchanged if it fits or if no settings help. If no settings are guaranteed to have room
    for all requests, those with room for the most requests are chosen. Only the settings in `free` can change.
    """
    found = fit(deployment, context_tokens)
    if found.fits or not _curable(found):
        return deployment
    best, held = deployment, 0.0
    for step in _steps(deployment.engine, free):
        before = held
        for share in _shares(deployment.engine, free):
            engine = replace(deployment.engine, memory_fraction=share, max_batched_tokens=step)
            tuned = replace(deployment, engine=engine)
            result = fit(tuned, context_tokens)
            holds = _concurrent_requests(result)
            if holds >= requests and result.certain:
                return tuned
            if holds > held:
                best, held = tuned, holds
        if held and held == before:
            # A smaller step does not hold more requests.
            return best
    return best


def engine_flags(deployment: Deployment) -> tuple[str, ...]:
    """List the engine's own flags for all settings of a deployment that differ from the engine's defaults."""
    engine, split = deployment.engine, deployment.parallelism
    usual = usual_settings(engine, deployment.accelerator, tp=split.tp, pp=split.pp)
    names = profile_of(engine).tuning_flags
    flags = []
    if engine.memory_fraction != usual.memory_fraction and "memory_fraction" in names:
        flags.append(f"--{names['memory_fraction']} {engine.memory_fraction:g}")
    if engine.max_batched_tokens != usual.max_batched_tokens:
        flags.append(f"--{names['max_batched_tokens']} {engine.max_batched_tokens}")
    if engine.name == "sglang" and (copies := redundant_experts(deployment)):
        flags.append(f"--ep-num-redundant-experts {copies}")
    return tuple(flags)


def _curable(found: MemoryFit) -> bool:
    return found.obstacle_is("weights") or found.obstacle_is("context") or found.obstacle_is("fraction")


def _concurrent_requests(found: MemoryFit) -> float:
    if not found.fits or found.capacity is None:
        return 0
    holds = found.capacity.concurrent_requests
    return inf if holds is None else holds


def _shares(engine: Engine, free: Collection[Tunable]) -> list[float]:
    """List the engine's memory fraction, then every larger fraction in steps of one hundredth."""
    larger = range(floor(engine.memory_fraction * 100) + 1, MAX_HUNDREDTHS + 1)
    return [engine.memory_fraction, *(each / 100 for each in larger if "memory_fraction" in free)]


def _steps(engine: Engine, free: Collection[Tunable]) -> Iterator[int]:
    """Yield the engine's tokens per step, then half as many, then a quarter, and so on down to `_MIN_STEP_TOKENS`."""
    tokens = engine.max_batched_tokens
    yield tokens
    while "max_batched_tokens" in free and tokens // 2 >= _MIN_STEP_TOKENS:
        tokens //= 2
        yield tokens
