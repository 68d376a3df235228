"""Converts each published measurement into the work of its average step and the time of that step."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log, nan
from statistics import median_low
from types import MappingProxyType
from typing import Final

import numpy as np

from penstock.catalog.accelerator import Accelerator
from penstock.catalog.measurement import Measurement
from penstock.fleet.deployment import Deployment, Parallelism
from penstock.fleet.engines import engine_defaults
from penstock.model import CacheDtype, ModelSpec
from penstock.model.model_spec import model_as_measured
from penstock.performance.calibration.benchmark_harness import average_step_tokens
from penstock.performance.calibration.cold_starts import without_cold_starts
from penstock.performance.memory.budget import fit
from penstock.performance.memory.running_requests import running_requests
from penstock.performance.similarity.cases import (
    WORDS,
    Cases,
    DrivenEngine,
    hash_strings,
    labels_of_run,
    noise_of_sources,
)
from penstock.performance.similarity.posterior import Measured
from penstock.performance.step.step_work import Array, Load, ReplicaWork, roofline_s

_SATURATED_LIMIT: Final = {"trtllm": 2048, "vllm": 1024, "sglang": 1024}
"""The largest batch that each engine forms by default when all requests are queued at once."""
_SATURATED_CONTEXT: Final = 1024
_SATURATED_FRACTION: Final = 0.6
"""Fraction of the answer for which the cache has blocks, on average. The offline rows are of TensorRT-LLM, which admits
a request only if its whole answer fits without eviction. With 0.5, the median error for models without measurements is
16.00% instead of 15.98%."""
_SERVED_ROWS: Final = 20
"""Offline rows of an accelerator are used only if the accelerator has fewer serving rows than this number."""
_LONE_RUN: Final = log(1.15)
"""Difference of the log time of one run from the median of all runs of its load, above which the median answers."""
_NIGHTLY: Final = "rocm-atom-nightly"

ModelOf = Callable[[str], ModelSpec]
AcceleratorOf = Callable[[str], Accelerator]


def measured_deployment(row: Measurement, model_of: ModelOf, accelerator_of: AcceleratorOf) -> Deployment:
    """Return the deployment that a row measured."""
    accelerator = accelerator_of(row.accelerator)
    settings = engine_defaults("vllm", accelerator, version="0.19", tp=row.tp)
    return Deployment(
        model=model_as_measured(model_of(row.model), row.weights),
        accelerator=accelerator,
        engine=replace(settings, memory_fraction=0.9, max_sequences=256),
        parallelism=Parallelism(tp=row.tp, dp=row.dp, expert_parallel=row.ep),
        cache_dtype=CacheDtype.FP8 if row.kv == "fp8" else None,
    )


def measured_engine(row: Measurement) -> str:
    """Return the label of a row's engine and scenario."""
    return DrivenEngine(row.engine, row.scenario).word


def cache_tokens(deployment: Deployment) -> int:
    """Return the number of tokens that the replica's KV cache holds."""
    capacity = fit(deployment, _SATURATED_CONTEXT).capacity
    return 0 if capacity is None else capacity.tokens


def saturated_batch(held_tokens: int, engine: str, input_tokens: float, output_tokens: float) -> float:
    """Return how many requests run at once if all requests are queued, limited by the KV cache and the engine.

    The result is below one if the cache does not hold one request.
    """
    limit = _SATURATED_LIMIT.get(engine, 1024)
    return running_requests(
        held_tokens, input_tokens, output_tokens, max_requests=limit, generated_fraction=_SATURATED_FRACTION
    )


def batched_tokens(row: Measurement) -> float:
    """Return the number of prompt tokens of one step with which the measured replica's average step is counted."""
    return average_step_tokens(row) * row.dp


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """Measured row with its deployment, its average step and the seconds between two tokens of a request."""

    row: Measurement
    words: dict[str, str]
    work: ReplicaWork
    users: float
    roofline: Array
    seconds: float

    @property
    def faster_than_roofline(self) -> bool:
        """Return whether the run was faster than the described hardware allows."""
        return faster_than_roofline(self.roofline, self.seconds)


def faster_than_roofline(roofline: Array, seconds: float) -> bool:
    """Return whether a step took less time than its bytes at full bandwidth or its FLOPs at peak."""
    return roofline_s(roofline) > seconds


def runs(measurements: Iterable[Measurement], model_of: ModelOf, accelerator_of: AcceleratorOf) -> Iterator[Run]:
    """Yield rows of single engines without drafts, except rows that are faster than their roofline.

    A row faster than its roofline is not evidence, because either the description of the run or the computed work is
    wrong.
    """
    return (run for run in described_runs(measurements, model_of, accelerator_of) if not run.faster_than_roofline)


def described_runs(
    measurements: Iterable[Measurement], model_of: ModelOf, accelerator_of: AcceleratorOf
) -> Iterator[Run]:
    """Yield rows of single engines without drafts, each with the work and the time of its average step.

    Saturated rows that would not fit in memory are left out. Rows with drafts and disaggregated rows are left out,
    because they are predicted from the yielded rows. If a run is published both as a dated row and as a median over
    runs, only the dated row is yielded.
    """
    compiled: dict[tuple[object, ...], tuple[ReplicaWork, int]] = {}
    for row in measurements:
        if not row.plain:
            continue
        key = setup_of(row)
        if key not in compiled:
            placed = measured_deployment(row, model_of, accelerator_of)
            compiled[key] = ReplicaWork(placed), cache_tokens(placed) if row.scenario == "saturated" else 0
        work, held_tokens = compiled[key]
        users = _batch(row, held_tokens)
        seconds = _seconds_per_token(row, users)
        if seconds is not None:
            load = Load.closed_loop(
                np.array([users]), np.array([row.input_tokens]), np.array([row.output_tokens]), batched_tokens(row)
            )
            yield Run(
                row=row,
                words=_labels(work.deployment, row),
                work=work,
                users=users,
                roofline=work.roofline(load)[0],
                seconds=seconds,
            )


def _labels(deployment: Deployment, row: Measurement) -> dict[str, str]:
    """Return the attributes of a run. A run with overlapping batches is no measurement of the setup without overlap."""
    words = labels_of_run(deployment, measured_engine(row))
    return words if not row.overlap else {**words, "split": f"{words['split']} {row.overlap}"}


def setup_of(row: Measurement) -> tuple[object, ...]:
    """Return the key of a row's exact setup. The key does not depend on the load."""
    split = row.tp, row.dp, row.ep, row.overlap
    return row.scenario, row.model, row.weights, row.accelerator, row.engine, *split, row.kv


def medians_of_runs(measurements: Iterable[Measurement]) -> dict[str, float]:
    """Return the median seconds per token over all runs of a load, by the id of the nearest dated run of that load."""
    return {row.twin: row.tpot_s for row in measurements if row.twin and row.tpot_s}


def as_columns(found: Sequence[Run], medians: Mapping[str, float] = MappingProxyType({})) -> Measured:
    """Return runs as columns, with one entry per run. `medians` are those of `medians_of_runs`."""
    texts = {word: tuple(run.words[word] for run in found) for word in WORDS}
    rows = [run.row for run in found]
    return Measured(
        cases=Cases(
            roofline=np.array([run.roofline for run in found]),
            words={word: hash_strings(spelt) for word, spelt in texts.items()},
            users=np.array([max(1.0, run.users) for run in found]),
            input_tokens=np.array([row.input_tokens for row in rows], np.float64),
            output_tokens=np.array([row.output_tokens for row in rows], np.float64),
            day=np.array([row.date.toordinal() for row in rows], np.float64),
            undated=np.array([row.dated == "up_to" for row in rows]),
            source_noise=noise_of_sources([row.source for row in rows]),
        ),
        seconds=np.array([run.seconds for run in found]),
        first_s=np.array([np.nan if row.ttft_s is None else row.ttft_s for row in rows], np.float64),
        median_s=np.array([_median_that_differs(run, medians.get(run.row.id)) for run in found], np.float64),
        texts={
            **texts,
            "version": tuple(row.version for row in rows),
            "model": tuple(row.model for row in rows),
            "devices": tuple(str(row.devices) for row in rows),
            "source": tuple(row.source for row in rows),
        },
    )


def _median_that_differs(run: Run, median_s: float | None) -> float:
    if median_s is None or abs(log(run.seconds / median_s)) <= _LONE_RUN:
        return nan
    return median_s


def usable_runs(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Return the rows to which the model is fitted.

    The result has all serving rows, all rows with fixed batches, and the offline rows of accelerators with few serving
    rows. Times to first token with a cold start are left out. Nightly repetitions of one setup and load are merged into
    one row per month, their median.
    """
    plain = [row for row in measurements if row.plain]
    served = Counter(row.accelerator for row in plain if row.scenario == "online")
    kept = (row for row in plain if row.scenario != "saturated" or served[row.accelerator] < _SERVED_ROWS)
    return merge_nightly(without_cold_starts(kept, setup_of))


def merge_nightly(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Replace nightly repetitions of one setup and load by one row per month, their median."""
    cells: dict[tuple[object, ...], list[Measurement]] = defaultdict(list)
    for row in measurements:
        day: object = f"{row.date:%Y-%m}" if row.source == _NIGHTLY else row.id
        load = (row.concurrency, row.input_tokens, row.output_tokens)
        cells[row.source, *setup_of(row), row.drafted, row.draft_tokens, *load, day].append(row)
    return [_middle(found) for found in cells.values()]


def _middle(found: Sequence[Measurement]) -> Measurement:
    """Return the run with the median time per token, with the median time to first token of all runs."""
    if len(found) == 1:
        return found[0]
    middle = median_low(row.tpot_s or 0.0 for row in found)
    first_s = [row.ttft_s for row in found if row.ttft_s is not None]
    chosen = next(row for row in found if (row.tpot_s or 0.0) == middle)
    return replace(chosen, ttft_s=median_low(first_s) if first_s else None)


def _batch(row: Measurement, held_tokens: int) -> float:
    if row.scenario != "saturated":
        return row.concurrency or 1.0
    batch = saturated_batch(held_tokens, row.engine, row.input_tokens, row.output_tokens)
    return min(batch, row.concurrency or batch)


def _seconds_per_token(row: Measurement, batch: float) -> float | None:
    """Return the seconds between two tokens of one request, as published or as computed from the throughput.

    None if neither the time nor the throughput is published. The result is also None if only the throughput is
    published and the computed batch is smaller than one request.
    """
    if row.tpot_s is not None:
        return row.tpot_s
    if row.output_tokens_per_s is None or batch < 1:
        return None
    return batch / row.output_tokens_per_s
