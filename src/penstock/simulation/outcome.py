"""The outcome of a simulation run: latencies, throughput, goodput, KV cache use, and whether the fleet kept up."""

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
    """A latency histogram with bins 0.1% wide. The histogram's size does not depend on the number of samples."""

    counts: Counts
    sum_s: float
    max_s: float

    @property
    def count(self) -> int:
        """Number of samples."""
        return int(self.counts.sum())

    @property
    def mean_s(self) -> float | None:
        """The exact mean in seconds, or None without samples."""
        return self.sum_s / self.count if self.count else None

    def quantile_s(self, fraction: float) -> float | None:
        """Return a latency quantile in seconds, accurate to half a bin. Return None if there are no samples."""
        total = self.count
        if not total:
            return None
        wanted = max(1, int(np.ceil(fraction * total)))
        place = int(np.searchsorted(np.cumsum(self.counts), wanted))
        return min(self.max_s, MIN_S * exp((place + 0.5) / BINS_PER_E))


@dataclass(frozen=True, kw_only=True)
class ClassOutcome:
    """The outcome of one SLO class."""

    name: str
    slo: Slo | None
    requests: int
    """Number of finished requests that were compared with their SLO."""
    met: int
    """Number of requests within every limit of their SLO. If the class has no SLO, all finished requests count."""
    output_tokens: int
    """Output tokens of all finished requests, including requests of the warm-up."""
    good_tokens: int
    """Output tokens of the requests that met their SLO."""
    ttft: Latency
    tpot: Latency
    e2e: Latency
    refused: int = 0
    """Requests refused by the router, or by an endpoint too small for them."""
    oversized: int = 0
    """Requests longer than any replica could hold."""
    lost: int = 0
    """Requests whose replica died after their first token, so that no retry is possible."""
    left: int = 0
    """Requests whose client left before the first token and did not return, or left again."""
    returns: int = 0
    """How often clients returned that were refused or had left."""
    held: int = 0
    """Requests that were held at the gateway, whether they were served or refused later."""
    cold: int = 0
    """Requests that arrived while their model slept or woke, on shared devices."""
    cold_missed: int = 0
    """Requests of `cold` that missed their SLO."""
    unjudged: int = 0
    """Finished requests of a closed loop's warm-up, in which not all users have begun.

    Only the tokens of these requests count; the requests are not compared with the SLO.
    """

    @property
    def asked(self) -> int:
        """Number of requests that were compared with their SLO, whether or not they were served."""
        return self.requests + self.refused + self.oversized + self.lost + self.left

    @property
    def met_fraction(self) -> float | None:
        """Share of requests that met their SLO, without requests of the warm-up.

        Refused, oversized and lost requests, and those whose client left, count as misses.
        """
        return self.met / self.asked if self.asked else None

    @property
    def attained(self) -> bool:
        """Whether the share of requests that met the SLO reaches its target.

        Without an SLO, whether all requests were served.
        """
        if self.slo is None or self.met_fraction is None:
            return self.asked == self.requests
        return self.met_fraction >= self.slo.attainment_fraction


@dataclass(frozen=True, kw_only=True)
class PoolOutcome:
    """The outcome of one pool of replicas."""

    name: str
    replicas: int
    finished: int
    """Number of requests that this pool completed.

    A prefill pool completes prompts, and a decode pool completes answers.
    """
    prefill_tokens: int
    """Number of prompt tokens computed, including recomputed tokens and excluding cache hits."""
    output_tokens: int
    engine_steps: int
    preemptions: int
    hit_tokens: int
    looked_up_tokens: int
    busy_fraction: float
    mean_batch: float
    """Mean requests in the batch of one replica while it is busy."""
    mean_waiting: float
    """Mean requests in the queues of all replicas, over the whole run."""
    kv_mean_fraction: float
    """Mean share of KV blocks in use while the replica is busy."""
    kv_peak_fraction: float
    itl: Latency
    """Inter-token latency: time between two tokens of a request."""
    usd: float | None
    cold_starts: int = 0
    """Number of times that a model of the pool was woken, on shared devices."""
    evictions: int = 0
    """Number of times that a model of the pool was put to sleep."""

    @property
    def mean_in_batches(self) -> float:
        """Mean requests in the batches of all replicas over the whole run, comparable with `mean_waiting`."""
        return self.mean_batch * self.busy_fraction * self.replicas

    @property
    def idle_fraction(self) -> float:
        """Share of the time that replicas are idle. At most this share of the capacity could be given back."""
        return 1.0 - self.busy_fraction

    @property
    def hit_fraction(self) -> float | None:
        """Share of prompt tokens found in the prefix cache."""
        return self.hit_tokens / self.looked_up_tokens if self.looked_up_tokens else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaOutcome:
    """The outcome of one replica. The outcomes of the replicas show where a router sends too many requests, or none."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceOutcome:
    """The outcome of one device that models share."""

    name: str
    capacity_bytes: int
    peak_bytes: int
    """Maximum memory of the models that were awake and of the engines that slept."""
    busy_fraction: float
    cold_starts: int
    evictions: int


@dataclass(frozen=True, kw_only=True)
class Saturation:
    """A queue that kept growing while requests arrived.

    The latencies of a saturated run reflect the length of the run, not the quality of the fleet.
    """

    growth_per_s: float
    """Growth of the queue in requests per second."""
    waiting: int
    """Requests in the queue at the last arrival, or when the run was stopped."""
    stopped: bool
    """Whether the run was stopped early because the queue exceeded `stop_waiting`."""


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
    """Times of every request in order of arrival. An outcome has these times only if the caller requested them."""

    number: NDArray[np.int64]
    """Index among all sent requests, from 0. The index also counts oversized requests."""
    arrival_s: NDArray[np.float64]
    waited_s: NDArray[np.float64]
    """Seconds in queues and in KV transfer before the first token."""
    ttft_s: NDArray[np.float64]
    """Time to first token in seconds; infinite for requests that were refused or lost, or whose client left."""
    e2e_s: NDArray[np.float64]
    input_tokens: NDArray[np.int32]
    output_tokens: NDArray[np.int32]
    hit_tokens: NDArray[np.int32]
    preemptions: NDArray[np.int32]
    replica: NDArray[np.int16]
    """Replica that finished the request; -1 if refused, -2 if lost, -3 if its client left."""
    picked: NDArray[np.int16]
    """Replica that received the prompt. `picked` and `replica` differ only if prefill is disaggregated."""
    slo_class: NDArray[np.uint8]

    @property
    def tpot_s(self) -> NDArray[np.float64]:
        """Seconds per output token after the first, for requests with more than one output token."""
        more = self.output_tokens > 1
        return (self.e2e_s[more] - self.ttft_s[more]) / (self.output_tokens[more] - 1)


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcome:
    """The outcome of one run."""

    requests: int
    """Finished requests."""
    oversized: int
    """Number of requests that exceed the model's context or the KV cache of every replica that may serve them."""
    beyond_context: int
    """Refused requests that exceed the model's context."""
    arrival_span_s: float
    makespan_s: float
    """Seconds from the first arrival to the last token seen by a client."""
    classes: tuple[ClassOutcome, ...]
    pools: tuple[PoolOutcome, ...]
    replicas: tuple[ReplicaOutcome, ...]
    timelines: Mapping[str, Timeline]
    saturation: Saturation | None
    served: Served | None
    log: NDArray[Any]
    """Engine steps in order, if a log was requested."""
    devices: tuple[DeviceOutcome, ...] = ()
    swaps: NDArray[Any] | None = None
    """Sleeps and wakes of models in order, if a log was requested."""

    @property
    def output_tokens(self) -> int:
        """Tokens generated for finished requests."""
        return sum(item.output_tokens for item in self.classes)

    @property
    def output_tokens_per_s(self) -> float:
        """Output tokens per second over the whole run."""
        return self.output_tokens / self.makespan_s if self.makespan_s else 0.0

    @property
    def requests_per_s(self) -> float:
        """Finished requests per second over the whole run."""
        return self.requests / self.makespan_s if self.makespan_s else 0.0

    @property
    def goodput_tokens_per_s(self) -> float:
        """Output tokens per second of requests that met their SLO."""
        good = sum(item.good_tokens for item in self.classes)
        return good / self.makespan_s if self.makespan_s else 0.0

    @property
    def asked(self) -> int:
        """All requests that arrived, served or not."""
        return sum(item.asked + item.unjudged for item in self.classes)

    @property
    def cold_missed_fraction(self) -> float | None:
        """Share of the missed SLOs whose model slept or woke at their arrival. None if no request missed its SLO."""
        missed = sum(item.asked - item.met for item in self.classes)
        return sum(item.cold_missed for item in self.classes) / missed if missed else None

    @property
    def refused(self) -> int:
        """Rejected requests."""
        return sum(item.refused for item in self.classes)

    @property
    def held(self) -> int:
        """Requests that were held at the gateway, whether they were served or refused later."""
        return sum(item.held for item in self.classes)

    @property
    def lost(self) -> int:
        """Requests lost after their first token because their replica died."""
        return sum(item.lost for item in self.classes)

    @property
    def left(self) -> int:
        """Requests whose client left before the first token and was not served later."""
        return sum(item.left for item in self.classes)

    @property
    def returns(self) -> int:
        """How often clients returned that were refused or had left."""
        return sum(item.returns for item in self.classes)

    @property
    def preemptions(self) -> int:
        """Preemptions over all pools."""
        return sum(pool.preemptions for pool in self.pools)

    @property
    def usd(self) -> float | None:
        """Cost of all replicas for the duration of the run, or None if a price is missing."""
        known = [pool.usd for pool in self.pools if pool.usd is not None]
        return sum(known) if len(known) == len(self.pools) else None

    @property
    def usd_per_output_mtok(self) -> float | None:
        """Total cost per million output tokens."""
        if self.usd is None or not self.output_tokens:
            return None
        return self.usd / self.output_tokens * 1e6

    @property
    def met(self) -> bool:
        """Whether every class attained its SLO and the fleet kept up with the arrivals.

        Unserved requests count as misses.
        """
        return self.saturation is None and all(item.attained for item in self.classes)
