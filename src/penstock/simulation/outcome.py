"""What came out of a run? Latencies, throughput, goodput, what the KV cache did, and whether the queue kept up."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.simulation.loop.world import BINS_PER_E, MIN_S
from penstock.workload import Slo

Counts = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Latency:
    """A distribution of times in bins 0.1% wide, so that its size does not depend on how many there are."""

    counts: Counts
    sum_s: float
    max_s: float

    @property
    def count(self) -> int:
        """How many times were counted."""
        return int(self.counts.sum())

    @property
    def mean_s(self) -> float | None:
        """The mean, which is exact."""
        return self.sum_s / self.count if self.count else None

    def quantile_s(self, fraction: float) -> float | None:
        """Return the time that this fraction does not exceed, to half a bin."""
        total = self.count
        if not total:
            return None
        wanted = max(1, int(np.ceil(fraction * total)))
        place = int(np.searchsorted(np.cumsum(self.counts), wanted))
        return min(self.max_s, MIN_S * exp((place + 0.5) / BINS_PER_E))


@dataclass(frozen=True, kw_only=True)
class ClassOutcome:
    """How the requests of one class fared."""

    name: str
    slo: Slo | None
    requests: int
    """Finished, and judged."""
    met: int
    """Requests within every limit of their SLO; all of them where nothing is promised."""
    output_tokens: int
    """Of all that finished, judged or not."""
    good_tokens: int
    """Of those that met their SLO."""
    ttft: Latency
    tpot: Latency
    e2e: Latency
    rejected: int = 0
    """Turned away by the router, or by an endpoint too small for them."""
    refused: int = 0
    """Longer than any replica could ever hold."""
    lost: int = 0
    """Broken off when their replica died after the first token: nobody can send those again."""
    unjudged: int = 0
    """Finished, but of the beginning of a closed loop, when not all users had begun: only their tokens count."""

    @property
    def asked(self) -> int:
        """All that came to be judged, served or not."""
        return self.requests + self.rejected + self.refused + self.lost

    @property
    def met_fraction(self) -> float | None:
        """Share of all that came that met the SLO: whoever was turned away, fits nowhere or was broken off did not."""
        return self.met / self.asked if self.asked else None

    @property
    def attained(self) -> bool:
        """Whether enough of them did; where nothing is promised, whether all were served."""
        if self.slo is None or self.met_fraction is None:
            return self.asked == self.requests
        return self.met_fraction >= self.slo.attainment_fraction


@dataclass(frozen=True, kw_only=True)
class PoolOutcome:
    """What the replicas of one pool did."""

    name: str
    replicas: int
    finished: int
    """Requests whose part here ended: of a pool that prefills, prompts; of one that decodes, their answers."""
    prefill_tokens: int
    """Prompt tokens computed, recomputed ones included, hit ones not."""
    output_tokens: int
    engine_steps: int
    preemptions: int
    hit_tokens: int
    looked_up_tokens: int
    busy_fraction: float
    mean_running: float
    """Requests in the batch of one replica while it is busy."""
    mean_waiting: float
    """Requests in the queues of all replicas, over the whole run."""
    kv_mean_fraction: float
    """Over time while it is busy."""
    kv_peak_fraction: float
    itl: Latency
    """Time between two tokens of a request."""
    usd: float | None

    @property
    def mean_in_batches(self) -> float:
        """Requests in the batches of all replicas, over the whole run: on the basis of `mean_waiting`."""
        return self.mean_running * self.busy_fraction * self.replicas

    @property
    def idle_fraction(self) -> float:
        """Share of the time that its replicas are without work: at most so much of it could be given back."""
        return 1.0 - self.busy_fraction

    @property
    def hit_fraction(self) -> float | None:
        """Share of prompt tokens found in the prefix cache."""
        return self.hit_tokens / self.looked_up_tokens if self.looked_up_tokens else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaOutcome:
    """What one replica did: shows where a router sends too much, or nothing."""

    pool: str
    finished: int
    met: int
    output_tokens: int
    good_tokens: int
    preemptions: int
    busy_fraction: float
    mean_waiting: float
    kv_mean_fraction: float
    kv_peak_fraction: float


@dataclass(frozen=True, kw_only=True)
class Saturation:
    """The queue grows as long as requests come: the latencies of such a run say how long it was, not how good."""

    growth_per_s: float
    """Requests by which the queue grows every second."""
    waiting: int
    """Requests in the queue when the last one came, or when the run was stopped."""
    stopped: bool
    """Whether the run was cut short because the queue was longer than anyone would wait for."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Timeline:
    """A pool over time, in columns of equal width."""

    width_s: float
    busy_fraction: NDArray[np.float64]
    running: NDArray[np.float64]
    waiting: NDArray[np.float64]
    kv_used_fraction: NDArray[np.float64]
    prefill_tokens_per_s: NDArray[np.float64]
    output_tokens_per_s: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Served:
    """Every request's own times, where they were asked for; in order of arrival."""

    number: NDArray[np.int64]
    """Place among the requests that were sent, from 0; refused ones have one too."""
    arrival_s: NDArray[np.float64]
    waited_s: NDArray[np.float64]
    """In queues and for its KV on the way, before its first token."""
    ttft_s: NDArray[np.float64]
    """Infinite where it was turned away or broken off."""
    e2e_s: NDArray[np.float64]
    input_tokens: NDArray[np.int32]
    output_tokens: NDArray[np.int32]
    hit_tokens: NDArray[np.int32]
    preemptions: NDArray[np.int32]
    replica: NDArray[np.int16]
    """Where it ended; -1 where it was turned away, -2 where its answer was broken off."""
    picked: NDArray[np.int16]
    """Where its prompt was sent: the same, unless prompts and answers are computed apart."""
    slo_class: NDArray[np.uint8]

    @property
    def tpot_s(self) -> NDArray[np.float64]:
        """Seconds per token after the first, of the requests with more than one."""
        more = self.output_tokens > 1
        return (self.e2e_s[more] - self.ttft_s[more]) / (self.output_tokens[more] - 1)


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcome:
    """One run."""

    requests: int
    """Finished."""
    refused: int
    """Longer than the model's context or the KV cache of every replica that may serve them: an engine refuses those."""
    beyond_context: int
    """Of those, longer than the model allows."""
    arrival_span_s: float
    makespan_s: float
    """From the first arrival to the last token, as its client sees it."""
    classes: tuple[ClassOutcome, ...]
    pools: tuple[PoolOutcome, ...]
    replicas: tuple[ReplicaOutcome, ...]
    timelines: Mapping[str, Timeline]
    saturation: Saturation | None
    served: Served | None
    log: NDArray[Any]
    """Steps of the engine as they happened, where a log was asked for."""

    @property
    def output_tokens(self) -> int:
        """Tokens generated for finished requests."""
        return sum(item.output_tokens for item in self.classes)

    @property
    def output_tokens_per_s(self) -> float:
        """Throughput over the whole run."""
        return self.output_tokens / self.makespan_s if self.makespan_s else 0.0

    @property
    def requests_per_s(self) -> float:
        """Finished requests over the whole run."""
        return self.requests / self.makespan_s if self.makespan_s else 0.0

    @property
    def goodput_tokens_per_s(self) -> float:
        """Output tokens a second of requests that met their SLO."""
        good = sum(item.good_tokens for item in self.classes)
        return good / self.makespan_s if self.makespan_s else 0.0

    @property
    def asked(self) -> int:
        """All requests that came, served or not."""
        return sum(item.asked + item.unjudged for item in self.classes)

    @property
    def rejected(self) -> int:
        """Requests that were turned away."""
        return sum(item.rejected for item in self.classes)

    @property
    def lost(self) -> int:
        """Requests whose answer was broken off."""
        return sum(item.lost for item in self.classes)

    @property
    def preemptions(self) -> int:
        """Over all pools."""
        return sum(pool.preemptions for pool in self.pools)

    @property
    def usd(self) -> float | None:
        """What the replicas cost for as long as the run took; None where a price is missing."""
        known = [pool.usd for pool in self.pools if pool.usd is not None]
        return sum(known) if len(known) == len(self.pools) else None

    @property
    def usd_per_output_mtok(self) -> float | None:
        """Everything spent, over the output tokens."""
        if self.usd is None or not self.output_tokens:
            return None
        return self.usd / self.output_tokens * 1e6

    @property
    def met(self) -> bool:
        """Whether every class attained its SLO, with those nobody served as misses, and the queue kept up."""
        return self.saturation is None and all(item.attained for item in self.classes)
