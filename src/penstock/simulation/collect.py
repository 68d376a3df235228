"""Collects finished requests into histograms during the run, so that memory does not grow with the length of a run."""

import math
from collections.abc import Sequence
from dataclasses import fields
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.compiled.interface import exported
from penstock.compiled.marks import compiled
from penstock.compiled.tables import ArrayOf
from penstock.simulation.loop.events import settled
from penstock.simulation.loop.observe import bin_of, client_lag_s, count_queues
from penstock.simulation.loop.world import (
    BINS,
    BINS_PER_E,
    BUSY,
    LEFT,
    LOST,
    MIN_S,
    NONE,
    OUTPUT,
    PROMPT,
    QUEUED,
    RUNNING,
    TIMELINE,
    USED,
    World,
)
from penstock.simulation.model_swapping import SwappingDevice
from penstock.simulation.outcome import (
    ClassOutcome,
    DeviceOutcome,
    Latency,
    Outcome,
    PoolOutcome,
    ReplicaOutcome,
    Saturation,
    Served,
    Timeline,
)
from penstock.simulation.replica import ReplicaPool
from penstock.workload import SloClass

_TTFT, _TPOT, _E2E = range(3)
_REQUESTS, _MET, _TOKENS, _GOOD, _REJECTED, _LOST, _UNJUDGED, _COLD, _COLD_MISSED, _HELD, _LEFT, _RETURNS = range(12)
_GROWTH_FRACTION = 0.02
"""Queue growth, as a share of the arrival rate, above which the fleet does not keep up with the arrivals."""
_QUEUE_PER_REPLICA = 8
"""Queue length per replica below which growth of the queue counts as a random fluctuation."""
_MIN_COLUMNS = 5
"""Minimum number of timeline points for a line fit."""


class ClassTables(NamedTuple):
    """Arrays of sums and counts per SLO class, which the compiled code updates."""

    limits: Annotated[Any, ArrayOf(np.float64, 2)]
    bins: Annotated[Any, ArrayOf(np.int64, 3)]
    sums: Annotated[Any, ArrayOf(np.float64, 2)]
    peaks: Annotated[Any, ArrayOf(np.float64, 2)]
    counts: Annotated[Any, ArrayOf(np.int64, 2)]
    by_replica: Annotated[Any, ArrayOf(np.int64, 2)]
    """The same counts as in `counts`, by replica instead of by SLO class."""
    last_seen_s: Annotated[Any, ArrayOf(np.float64)]
    """Time at which a client saw the last token of the run, as an array of length one."""
    observed_s: Annotated[Any, ArrayOf(np.float64, 2)]
    """Result: seconds from each request's arrival until the client sees its first token and its last token."""


@exported
def tally(w: World, tables: ClassTables, base: int, warm_up: int) -> None:
    """Record when the client sees each request's first and last token, and compare both with the SLO of the class."""
    mask, observed_s = len(w.rows) - 1, tables.observed_s
    for place in range(len(observed_s)):
        row = w.rows[(base + place) & mask]
        group = min(row.slo_class, len(tables.limits) - 1)
        tables.counts[group, _HELD] += row.held
        tables.counts[group, _RETURNS] += row.tries
        if row.replica < 0:
            tables.counts[group, _end_of(row.replica)] += 1
            observed_s[place, 0] = observed_s[place, 1] = math.inf
            continue
        ttft_s = row.first_s - row.arrival_s + client_lag_s(w, row.replica, base + place)
        e2e_s = ttft_s + (row.last_s - row.first_s)
        observed_s[place, 0], observed_s[place, 1] = ttft_s, e2e_s
        tables.last_seen_s[0] = max(tables.last_seen_s[0], row.arrival_s + e2e_s)
        judged = base + place >= warm_up
        if judged:
            _count(tables, group, _TTFT, ttft_s)
            _count(tables, group, _E2E, e2e_s)
        met = ttft_s <= tables.limits[group, _TTFT] and e2e_s <= tables.limits[group, _E2E]
        if row.output_tokens > 1:
            tpot_s = (e2e_s - ttft_s) / (row.output_tokens - 1)
            if judged:
                _count(tables, group, _TPOT, tpot_s)
            met = met and tpot_s <= tables.limits[group, _TPOT]
        for counts in (tables.counts[group], tables.by_replica[row.replica]):
            counts[_REQUESTS if judged else _UNJUDGED] += 1
            counts[_TOKENS] += row.output_tokens
            if row.cold and judged:
                counts[_COLD] += 1
                counts[_COLD_MISSED] += not met
            if met:
                counts[_MET] += judged
                counts[_GOOD] += row.output_tokens


@compiled
def _end_of(replica: int) -> int:
    """Return the count of requests that ended as a request did that no replica finished."""
    if replica == LOST:
        return _LOST
    return _LEFT if replica == LEFT else _REJECTED


@compiled
def _count(tables: ClassTables, group: int, what: int, seconds: float) -> None:
    tables.bins[group, what, bin_of(seconds)] += 1
    tables.sums[group, what] += seconds
    tables.peaks[group, what] = max(tables.peaks[group, what], seconds)


class Collected:
    """The finished requests of a run so far."""

    def __init__(self, classes: Sequence[SloClass], *, replicas: int, keep: bool, warm_up: int = 0) -> None:
        self.classes = tuple(classes) or (SloClass(name="all", share_fraction=1.0),)
        self.base = 0
        self.warm_up = warm_up
        self.beyond_context = 0
        self.first_arrival_s: float | None = None
        self.kept: list[Served] | None = [] if keep else None
        count = len(self.classes)
        self.oversized_by_class = np.zeros(count, np.int64)
        limits = np.full((count, 3), np.inf)
        for index, item in enumerate(self.classes):
            promised = (item.slo.ttft_s, item.slo.tpot_s, item.slo.e2e_s) if item.slo is not None else (None,) * 3
            limits[index] = [np.inf if limit is None else limit for limit in promised]
        self.tables = ClassTables(
            limits=limits,
            bins=np.zeros((count, 3, BINS), np.int64),
            sums=np.zeros((count, 3)),
            peaks=np.zeros((count, 3)),
            counts=np.zeros((count, 12), np.int64),
            by_replica=np.zeros((replicas, 12), np.int64),
            last_seen_s=np.zeros(1),
            observed_s=np.zeros((0, 2)),
        )

    @property
    def requests(self) -> int:
        """Number of settled requests."""
        return int(self.tables.counts[:, [_REQUESTS, _UNJUDGED]].sum())

    @property
    def oversized(self) -> int:
        """Number of requests that no replica could hold."""
        return int(self.oversized_by_class.sum())

    def leave_out(self, slo_class: NDArray[np.uint8]) -> None:
        """Count requests that no replica could hold, by SLO class."""
        last = len(self.classes) - 1
        self.oversized_by_class += np.bincount(np.minimum(slo_class, last), minlength=last + 1)

    def settle(self, world: World) -> None:
        """Add the finished requests that arrived before the oldest request that is still in flight."""
        upto = settled(world, self.base)
        if self.first_arrival_s is None and upto > self.base:
            self.first_arrival_s = float(world.rows[self.base & (len(world.rows) - 1)]["arrival_s"])
        observed_s = np.empty((upto - self.base, 2))
        tally(world, self.tables._replace(observed_s=observed_s), self.base, self.warm_up)
        if self.kept is not None:
            self.kept.append(_serve(world, self.base, observed_s))
        self.base = upto

    def outcome(
        self,
        world: World,
        pools: Sequence[ReplicaPool],
        *,
        stopped: bool,
        devices: Sequence[SwappingDevice] = (),
    ) -> Outcome:
        """Build the outcome of a run that has ended."""
        count_queues(world)
        control = world.control[0]
        start_s = self.first_arrival_s or 0.0
        last = max(0, int(control["next_row"]) - 1)
        span_s = float(control["arrived_s"]) - start_s
        # Clients see the last token slightly after the engine produces it. A stopped run ends at its current time.
        makespan_s = max(float(control["now_s"]), float(self.tables.last_seen_s[0])) - start_s
        timelines = {pool.name: _timeline(world, index, pool) for index, pool in enumerate(pools)}
        return Outcome(
            requests=self.requests,
            oversized=self.oversized,
            beyond_context=self.beyond_context,
            arrival_span_s=span_s,
            makespan_s=makespan_s,
            classes=tuple(self._class(index) for index in range(len(self.classes))),
            pools=tuple(_pool(world, index, pool, makespan_s) for index, pool in enumerate(pools)),
            replicas=tuple(self._replica(world, head, pools, makespan_s) for head in world.heads),
            timelines=timelines,
            saturation=None if control["closed"] else _saturation(world, start_s, span_s, last, stopped=stopped),
            served=_join(self.kept) if self.kept is not None else None,
            log=world.log[: int(control["log_size"])],
            devices=_devices(world, devices, makespan_s),
            swaps=world.swaps[: int(control["swaps"])] if len(world.swaps) else None,
        )

    def _replica(self, world: World, head: int, pools: Sequence[ReplicaPool], makespan_s: float) -> ReplicaOutcome:
        """Sum the counters over all ranks of one engine."""
        pool = pools[int(world.replicas[head]["pool"])]
        ranks = slice(head, head + pool.replica.ranks)
        mine, done = world.replicas[ranks], self.tables.by_replica[ranks].sum(axis=0)
        busy_s = float(mine["busy_s"].sum())
        return ReplicaOutcome(
            pool=pool.name,
            finished=int(mine["finished"].sum()),
            met=int(done[_MET]),
            output_tokens=int(mine["decode_total"].sum()),
            good_tokens=int(done[_GOOD]),
            preemptions=int(mine["preemptions"].sum()),
            busy_fraction=busy_s / (makespan_s * pool.replica.ranks) if makespan_s else 0.0,
            mean_waiting=float(mine["waiting_s"].sum()) / makespan_s if makespan_s else 0.0,
            kv_mean_fraction=float(mine["used_s"].sum()) / (busy_s * pool.replica.kv_blocks) if busy_s else 0.0,
            kv_peak_fraction=float(mine["peak_used"].max()) / pool.replica.kv_blocks,
        )

    def _class(self, index: int) -> ClassOutcome:
        item, tables = self.classes[index], self.tables
        latencies = [
            Latency(
                counts=tables.bins[index, what],
                sum_s=float(tables.sums[index, what]),
                max_s=float(tables.peaks[index, what]),
            )
            for what in range(3)
        ]
        requests, met, tokens, good, refused, lost, unjudged, cold, cold_missed, held, left, returns = (
            int(value) for value in tables.counts[index]
        )
        return ClassOutcome(
            name=item.name,
            slo=item.slo,
            requests=requests,
            refused=refused,
            lost=lost,
            held=held,
            left=left,
            returns=returns,
            unjudged=unjudged,
            cold=cold,
            cold_missed=cold_missed,
            oversized=int(self.oversized_by_class[index]),
            met=met,
            output_tokens=tokens,
            good_tokens=good,
            ttft=latencies[_TTFT],
            tpot=latencies[_TPOT],
            e2e=latencies[_E2E],
        )


def _serve(world: World, base: int, observed_s: NDArray[np.float64]) -> Served:
    places = np.arange(base, base + len(observed_s)) & (len(world.rows) - 1)

    def column(field: str) -> NDArray[Any]:
        """Return one field. A copy of whole rows would be twice as large, and kept as long as the outcome."""
        values: NDArray[Any] = world.rows[field][places]
        return values

    replica = picked = column("replica")
    if world.control[0]["routed"]:
        picked = np.where(replica != NONE, world.flights["endpoint"][places], replica).astype(replica.dtype)
    return Served(
        number=column("number"),
        arrival_s=column("arrival_s"),
        waited_s=column("waited_s"),
        ttft_s=observed_s[:, 0],
        e2e_s=observed_s[:, 1],
        input_tokens=column("input_tokens"),
        output_tokens=column("output_tokens"),
        hit_tokens=column("hit_tokens"),
        preemptions=column("preempted"),
        replica=replica,
        picked=picked,
        slo_class=column("slo_class"),
    )


def _join(parts: Sequence[Served]) -> Served:
    names = [item.name for item in fields(Served)]
    return Served(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


def _pool(world: World, index: int, pool: ReplicaPool, makespan_s: float) -> PoolOutcome:
    mine = world.replicas[world.replicas["pool"] == index]
    busy_s, blocks = float(mine["busy_s"].sum()), pool.replica.kv_blocks
    gaps = world.tokens_between[index]
    seen = np.flatnonzero(gaps)
    middles = MIN_S * np.exp((seen + 0.5) / BINS_PER_E)
    ranks, available_s = pool.replica.ranks, makespan_s * pool.replicas
    price = pool.usd_per_hour
    return PoolOutcome(
        name=pool.name,
        replicas=pool.replicas,
        finished=int(mine["finished"].sum()),
        prefill_tokens=int(mine["prefill_total"].sum()),
        output_tokens=int(mine["decode_total"].sum()),
        engine_steps=int(mine["engine_steps"].sum()),
        preemptions=int(mine["preemptions"].sum()),
        hit_tokens=int(mine["hit_total"].sum()),
        looked_up_tokens=int(mine["looked_up_total"].sum()),
        busy_fraction=busy_s / (available_s * ranks) if available_s else 0.0,
        mean_batch=float(mine["running_s"].sum()) * ranks / busy_s if busy_s else 0.0,
        mean_waiting=float(mine["waiting_s"].sum()) / makespan_s if makespan_s else 0.0,
        kv_mean_fraction=float(mine["used_s"].sum()) / (busy_s * blocks) if busy_s else 0.0,
        kv_peak_fraction=float(mine["peak_used"].max()) / blocks,
        itl=Latency(counts=gaps, sum_s=float((gaps[seen] * middles).sum()), max_s=float(middles.max(initial=0.0))),
        usd=None if price is None else price * available_s / 3600,
        cold_starts=int(mine["cold_starts"].sum()),
        evictions=int(mine["evictions"].sum()),
    )


def _devices(world: World, shared: Sequence[SwappingDevice], makespan_s: float) -> tuple[DeviceOutcome, ...]:
    found = []
    for index, device in enumerate(shared):
        mine = world.replicas[world.replicas["on_device"] == index]
        least_free = int(world.devices[index]["least_free_bytes"])
        found.append(
            DeviceOutcome(
                name=device.name,
                capacity_bytes=device.capacity_bytes,
                peak_bytes=device.capacity_bytes - least_free,
                busy_fraction=float(mine["busy_s"].sum()) / makespan_s if makespan_s else 0.0,
                cold_starts=int(mine["cold_starts"].sum()),
                evictions=int(mine["evictions"].sum()),
            )
        )
    return tuple(found)


def _timeline(world: World, index: int, pool: ReplicaPool) -> Timeline:
    width_s = float(world.control[0]["width_s"])
    columns = world.timeline[index, : min(TIMELINE, int(world.control[0]["now_s"] / width_s) + 1)]
    available_s = width_s * pool.schedulers
    return Timeline(
        width_s=width_s,
        busy_fraction=columns[:, BUSY] / available_s,
        running=columns[:, RUNNING] / width_s,
        waiting=columns[:, QUEUED] / width_s,
        kv_used_fraction=columns[:, USED] / (available_s * pool.replica.kv_blocks),
        prefill_tokens_per_s=columns[:, PROMPT] / width_s,
        output_tokens_per_s=columns[:, OUTPUT] / width_s,
    )


def _saturation(world: World, start_s: float, span_s: float, last: int, *, stopped: bool) -> Saturation | None:
    """Return a Saturation if the fleet did not keep up with the arrivals, or else None.

    A fleet does not keep up if its queue grows over the later half of the arrivals, or takes longer to drain than to
    fill.
    """
    control = world.control[0]
    width_s = float(control["width_s"])
    begin, end = int((start_s + span_s / 2) / width_s), int((start_s + span_s) / width_s)
    queue = world.timeline[:, begin : end + 2, QUEUED].sum(axis=0) / width_s
    waiting = int(world.replicas["waiting"].sum()) if stopped else round(float(queue[-3:].max(initial=0.0)))
    growth = waiting / span_s if span_s else 0.0
    if len(queue) > _MIN_COLUMNS and not stopped:
        growth = float(np.polyfit(np.arange(len(queue) - 1) * width_s, queue[:-1], 1)[0])
    rate = last / span_s if span_s else 0.0
    grows = growth > _GROWTH_FRACTION * rate or float(control["now_s"]) - start_s > 2 * span_s
    if not (stopped or (grows and waiting > _QUEUE_PER_REPLICA * len(world.replicas))):
        return None
    return Saturation(growth_per_s=growth, waiting=waiting, stopped=stopped)
