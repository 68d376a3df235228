"""Which rows cannot be? Weights that do not fit the devices stated, and steps faster than the roofline."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from measurements.ledger import Ledger
from penstock.catalog import load_accelerator
from penstock.catalog.measurement import QUEUED, Measurement
from penstock.performance.calibration.measured_runs import batched_tokens, measured_deployment
from penstock.performance.shipped.shipped_runs import model_of
from penstock.performance.step.step_work import COMPONENTS, Array, Load, ReplicaWork, roofline_s

_MAX_DRAFTS: Final = 3
"""Most drafts of a step in a benchmark that does not state them."""
_MANY: Final = 16
"""Users from which a rate that is a few requests short is a queue, and not the start and the end of a run."""
_LONGEST_PROMPT_S: Final = 10.0


class Physics:
    """The bounds of every deployment measured, worked out once for each."""

    def __init__(self) -> None:
        self._works: dict[tuple[object, ...], ReplicaWork] = {}

    def passed(
        self, rows: Iterable[Measurement], ledger: Ledger, *, with_queued: bool = False
    ) -> Iterator[Measurement]:
        """Pass on the rows that physics allows.

        If `with_queued`, rows whose users mostly waited pass with the flag `queued`. How many ran is then unknown, so
        that such a row is not held against the roofline.
        """
        for row in rows:
            if any(self._free_bytes(engine) <= 0 for engine in _engines(row)):
                ledger.enter("does_not_fit", row)
                continue
            if with_queued and _waits(row):
                others = [flag for flag in row.flags if flag != QUEUED]
                yield replace(row, flag=";".join([*others, QUEUED]))
                continue
            share = self.share_of_light(row)
            if share > 1:
                ledger.enter("faster_than_light", row, f"{described(row)} | {share:.0%}")
            elif _queued(row):
                ledger.enter("queued", row)
            else:
                yield row

    def share_of_light(self, row: Measurement) -> float:
        """Return the least time a step can take over the time it took; the split of a disaggregated load is unknown."""
        if row.scenario in {"disaggregated", "prefill"}:
            return 0.0
        requests = row.concurrency if row.scenario != "saturated" else None
        requests = requests or max(1.0, self._most_requests(row))
        seconds = row.tpot_s or requests / (row.output_tokens_per_s or 1.0)
        light = self._light(row, requests)
        drafts = (row.draft_tokens or _MAX_DRAFTS) if row.drafted else 0
        return roofline_s(light) / (seconds * (1 + drafts))

    def _most_requests(self, row: Measurement) -> float:
        """Return how many requests the memory holds when nothing but weights and cache is in it."""
        one_per_rank = self._light(row, float(row.dp))
        work = self._work(row)
        return row.dp * self._free_bytes(row) / (float(one_per_rank[COMPONENTS.index("cache")]) * work.bytes_per_s)

    def _free_bytes(self, row: Measurement) -> float:
        work = self._work(row)
        memory = work.deployment.accelerator.memory
        return memory.hbm_bytes - work.dense_bytes - work.expert_bytes

    def _light(self, row: Measurement, requests: float) -> Array:
        lengths = np.array([row.input_tokens]), np.array([row.output_tokens])
        load = Load.closed_loop(np.array([requests]), *lengths, batched_tokens(row))
        light: Array = self._work(row).roofline(load)[0]
        return light

    def _work(self, row: Measurement) -> ReplicaWork:
        key = (row.model, row.weights, row.kv, row.accelerator, row.tp, row.dp, row.ep)
        if key not in self._works:
            # Where a row does not say how its cache is stored, the smallest format gives the loosest bound.
            smallest = row if row.kv else replace(row, kv="fp8")
            self._works[key] = ReplicaWork(measured_deployment(smallest, model_of, load_accelerator))
        return self._works[key]


def described(row: Measurement) -> str:
    """Describe a row in the cells of a table: what ran, under which load, how fast."""
    engine = f"{row.engine} tp{row.tp}" + (f" dp{row.dp}" if row.dp > 1 else "") + (" ep" if row.ep else "")
    load = f"{row.concurrency or 0:,.0f} x {row.input_tokens:,.0f} / {row.output_tokens:,.0f}"
    tpot_s = row.tpot_s or (row.concurrency or 0.0) / (row.output_tokens_per_s or 1.0)
    first = "" if row.ttft_s is None else f"{row.ttft_s:,.1f}"
    return f"{row.model} {row.weights} | {row.accelerator} {engine} | {load} | {tpot_s * 1e3:.1f} | {first}"


def _waits(row: Measurement) -> bool:
    """Whether users waited, as the row says, as its server's limit says, or as its times say."""
    limited = row.max_running is not None and (row.concurrency or 0.0) > row.max_running
    return QUEUED in row.flags or limited or _queued(row)


def _queued(row: Measurement) -> bool:
    """Whether most users were waiting: by the time to the first token, or by the rate and the time of the others.

    By Little's law the requests that decode are the rate times the time of a token.
    """
    if row.scenario != "online" or row.tpot_s is None:
        return False
    if row.ttft_s is not None and row.ttft_s > max(_LONGEST_PROMPT_S, row.output_tokens * row.tpot_s):
        return True
    if row.output_tokens_per_s is None or row.concurrency is None or row.concurrency < _MANY:
        return False
    return row.output_tokens_per_s * row.tpot_s < row.concurrency / 2


def _engines(row: Measurement) -> Iterator[Measurement]:
    """Describe each kind of engine of a deployment as a row of its own."""
    yield row
    if row.prefill is not None:
        yield replace(row, tp=row.prefill.tp, dp=row.prefill.dp, ep=row.prefill.ep)
