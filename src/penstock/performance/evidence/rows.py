"""What does a measurement say about a stack? Turns published rows into the work they did and the time it took."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

import numpy as np

from penstock.catalog.accelerator import Accelerator
from penstock.catalog.measurement import Measurement
from penstock.fleet.deployment import Deployment, Parallelism
from penstock.fleet.engine import engine_defaults
from penstock.model import CacheDtype, ModelSpec
from penstock.model.spec import model_as_measured
from penstock.model.weight import BF16, FORMATS
from penstock.performance.evidence.harness import harness_of
from penstock.performance.evidence.regression import Row, Software
from penstock.performance.memory.budget import fit
from penstock.performance.step.work import Load, ReplicaWork

_SATURATED_LIMIT: Final = {"trtllm": 2048, "vllm": 1024, "sglang": 1024}
"""The largest batch each engine forms by default when everything is queued at once."""
_SATURATED_CONTEXT: Final = 1024

ModelOf = Callable[[str], ModelSpec]
AcceleratorOf = Callable[[str], Accelerator]


def family_of(model: ModelSpec) -> str:
    """Name a shape: fine-tunes and point releases of one model are one family."""
    return f"{model.architecture} {model.hidden_size}x{len(model.layers)}"


def shape_of(model: ModelSpec) -> str:
    """Name a shape with its experts: a wider mixture of the same layers is another model."""
    experts = model.experts
    return family_of(model) + ("" if experts is None else f" {experts.routed}/{experts.per_token}")


def weights_label(model: ModelSpec) -> str:
    """The format most weight bytes are in, as measurements name it."""
    largest = next(iter(model.formats))
    return largest if largest in FORMATS else BF16.name


def configuration_of(scenario: str, family: str, weights: str, split: Parallelism) -> str:
    """Name an exact setup, whatever the lengths and the load."""
    return f"{scenario} {family} {weights} tp{split.tp} dp{split.dp} ep{int(split.expert_parallel)}"


def kin_path(accelerator: Accelerator, engine: str) -> tuple[str, ...]:
    """From the widest kin to the narrowest."""
    return (accelerator.architecture, accelerator.id, engine)


def measured_deployment(row: Measurement, model_of: ModelOf, accelerator_of: AcceleratorOf) -> Deployment:
    """Describe what a row measured."""
    part = accelerator_of(row.accelerator)
    settings = engine_defaults("vllm", part, version="0.19", tp=row.tp)
    return Deployment(
        model=model_as_measured(model_of(row.model), row.weights),
        accelerator=part,
        engine=replace(settings, memory_fraction=0.9, max_sequences=256),
        parallelism=Parallelism(tp=row.tp, dp=row.dp, expert_parallel=row.ep),
        cache_dtype=CacheDtype.FP8 if row.kv == "fp8" else None,
    )


def cache_tokens(deployment: Deployment) -> int:
    """Tokens the KV cache of the replica holds."""
    capacity = fit(deployment, _SATURATED_CONTEXT).capacity
    return 0 if capacity is None else capacity.tokens


def saturated_batch(held_tokens: int, engine: str, input_tokens: float, output_tokens: float) -> float:
    """Return how many requests run together when everything is queued: what the cache holds, up to the engine's limit.

    A running request holds its prompt and, on average, a little over half of its answer.
    """
    return min(held_tokens / (input_tokens + 0.6 * output_tokens), _SATURATED_LIMIT.get(engine, 1024))


def batched_tokens(row: Measurement) -> float:
    """Prompt tokens the measured replica took in one step."""
    return harness_of(row).batched_tokens * row.dp


def first_edition(measurements: Iterable[Measurement], withdrawn: Iterable[Measurement]) -> tuple[Measurement, ...]:
    """Return what the shipped efficiencies were fitted to, as it was known then.

    Rows that have been withdrawn since are in it, and nobody knew that some of the others drafted.
    """
    known = tuple(replace(row, drafted="") for row in measurements if row.edition == 1)
    return known + tuple(withdrawn)


def calibration_rows(
    measurements: Iterable[Measurement], model_of: ModelOf, accelerator_of: AcceleratorOf
) -> list[tuple[Measurement, Row]]:
    """Turn measurements of plain engines into calibration rows; a saturated one that would not fit is left out.

    Drafts and disaggregation are not in the model of a step yet, and the twin of a median is there itself.
    """
    compiled: dict[tuple[object, ...], tuple[Deployment, ReplicaWork, int]] = {}
    found = []
    for row in measurements:
        if not row.plain:
            continue
        key = (row.model, row.weights, row.accelerator, row.tp, row.dp, row.ep, row.kv)
        if key not in compiled:
            placed = measured_deployment(row, model_of, accelerator_of)
            compiled[key] = (placed, ReplicaWork(placed), cache_tokens(placed))
        placed, work, held_tokens = compiled[key]
        batch = _batch(row, held_tokens)
        seconds = _seconds_per_token(row, batch)
        if seconds is None:
            continue
        load = Load.closed_loop(
            np.array([batch]), np.array([row.input_tokens]), np.array([row.output_tokens]), batched_tokens(row)
        )
        family = family_of(placed.model)
        found.append(
            (
                row,
                Row(
                    light=work.light(load)[0],
                    seconds=seconds,
                    kin=kin_path(placed.accelerator, row.engine),
                    family=family,
                    software=Software(row.scenario, row.version, row.date),
                    configuration=configuration_of(row.scenario, family, row.weights, placed.parallelism),
                ),
            )
        )
    return found


def _batch(row: Measurement, held_tokens: int) -> float:
    if row.scenario != "saturated":
        return row.concurrency or 1.0
    batch = saturated_batch(held_tokens, row.engine, row.input_tokens, row.output_tokens)
    return min(batch, row.concurrency or batch)


def _seconds_per_token(row: Measurement, batch: float) -> float | None:
    """Seconds between two tokens of one request, the row's own or from its throughput."""
    if row.tpot_s is not None:
        return row.tpot_s
    if row.output_tokens_per_s is None or batch < 1:
        return None
    return batch / row.output_tokens_per_s
