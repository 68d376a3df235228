"""Combines arrivals, lengths, sharing and SLO classes into a workload, drawn block by block."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from math import isclose
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from penstock.errors import UsageError
from penstock.workload.randomness import NATIVE_BLOCK, RandomStream, generator
from penstock.workload.recorded.recording import Recording, mean_rate_per_s
from penstock.workload.recorded.splice import repeat
from penstock.workload.requests import MAX_CLASSES, Int32s, Prefixes, Requests, Uint8s, concatenate
from penstock.workload.slo import SloClass
from penstock.workload.synthetic.arrivals import Arrivals, AsRecorded, ClosedLoop, OpenLoop
from penstock.workload.synthetic.lengths import Empirical, Lengths
from penstock.workload.synthetic.sharing import Sharing, SystemPrompts, begin_with_prompts
from penstock.workload.synthetic.turns import Turns

Scalar = TypeVar("Scalar", bound=np.generic)
Clock = OpenLoop | ClosedLoop
Extend = Callable[[int, Int32s, Int32s], tuple[Int32s, Prefixes | None]]
"""Function from a block number, unshared prompt lengths and answer lengths to whole prompt lengths and prefixes."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Workload:
    """A stream of requests. The seed determines the requests; the consumer chooses the block size."""

    name: str
    arrivals: Arrivals
    lengths: Lengths | Recording
    """Distribution of lengths to draw from, or a recording, which yields its own requests with shared prefixes and
    classes."""
    sharing: Sharing | None = None
    classes: tuple[SloClass, ...] = ()
    """SLO classes of requests, with shares that sum to 1; empty if no request has an SLO."""
    source: str = "synthetic"
    """Citation to show with any result from this workload."""

    def __post_init__(self) -> None:
        total = sum(item.share_fraction for item in self.classes)
        if self.classes and not isclose(total, 1, abs_tol=1e-6):
            raise UsageError(f"the shares of the classes sum to {total:g}; make them sum to 1")
        if len(self.classes) > MAX_CLASSES:
            raise UsageError(f"the workload has {len(self.classes)} classes, but at most {MAX_CLASSES} are supported")
        recording = self._recording
        if recording is not None and self.sharing is not None:
            raise UsageError(f"'{recording.name}' is a recording; synthetic prefix sharing cannot be added to it")
        if recording is not None and recording.classes and len(self.classes) != len(recording.classes):
            raise UsageError(
                f"recording '{recording.name}' has {len(recording.classes)} classes; give the workload as many classes"
            )

    @property
    def users(self) -> int | None:
        """Number of users of a closed loop; None if arrivals do not wait for answers."""
        return self.arrivals.users if isinstance(self.arrivals, ClosedLoop) else None

    @property
    def think_s(self) -> float:
        """Mean think time of a user in a closed loop, in seconds."""
        return self.arrivals.think_s if isinstance(self.arrivals, ClosedLoop) else 0.0

    @property
    def rate_per_s(self) -> float | None:
        """Default mean rate in requests per second; None in a closed loop, or if the caller must give a rate."""
        if isinstance(self.arrivals, ClosedLoop):
            return None
        if isinstance(self.arrivals, AsRecorded):
            return None if self._recording is None else mean_rate_per_s(self._recording)
        return self.arrivals.rate_per_s

    def blocks(
        self, *, seed: int, requests: int, rate_per_s: float | None = None, block_requests: int = NATIVE_BLOCK
    ) -> Iterator[Requests]:
        """Yield the first `requests` requests.

        The requests themselves depend neither on this number nor on the block size.
        """
        if requests < 0 or block_requests < 1 or seed < 0:
            raise UsageError("the seed and the number of requests must be 0 or more, and the block size at least 1")
        rate = self._rate(rate_per_s)
        if not isinstance(self.lengths, Lengths):
            endless = self._replay(self.lengths, seed, rate)
        elif not isinstance(self.arrivals, AsRecorded):
            endless = self._draw(self.lengths, self.arrivals, self._sharer(seed, rate), seed, rate)
        else:
            raise UsageError(f"workload '{self.name}' has recorded arrivals but no recording; name a recording")
        return _recut(_take(endless, requests), block_requests)

    @property
    def _recording(self) -> Recording | None:
        return None if isinstance(self.lengths, Lengths) else self.lengths

    def _rate(self, rate_per_s: float | None) -> float:
        if isinstance(self.arrivals, ClosedLoop):
            if rate_per_s is not None:
                raise UsageError("the users of a closed loop determine its rate; leave the rate out")
            return 0.0
        rate = self.rate_per_s if rate_per_s is None else rate_per_s
        if isinstance(self.arrivals, AsRecorded) and self.rate_per_s is None and self._recording is not None:
            if rate_per_s is None:
                return 1.0  # All at once, as in an offline batch: there is no time to stretch.
            raise UsageError(
                f"all requests of recording '{self._recording.name}' arrive at the same time; leave the rate out"
            )
        if rate is None or not 0 < rate < np.inf:
            raise UsageError(f"workload '{self.name}' needs a rate above 0 requests/s")
        return rate

    def _draw(
        self, lengths: Lengths, arrivals: Clock, extend: Extend, seed: int, rate_per_s: float
    ) -> Iterator[Requests]:
        for block, arrival_s in enumerate(arrivals.times(seed, rate_per_s)):
            inputs, outputs = lengths.draw(generator(seed, RandomStream.LENGTHS, block), NATIVE_BLOCK)
            inputs, prefixes = extend(block, inputs, outputs)
            yield Requests(
                arrival_s=arrival_s,
                input_tokens=inputs,
                output_tokens=outputs,
                slo_class=self._drawn_classes(lengths, seed, block),
                prefixes=prefixes,
            )

    def _sharer(self, seed: int, rate_per_s: float) -> Extend:
        sharing = self.sharing
        if sharing is None:
            return lambda _block, inputs, _outputs: (inputs, None)
        if isinstance(sharing, SystemPrompts):
            return lambda block, inputs, _outputs: begin_with_prompts(
                sharing, generator(seed, RandomStream.SHARING, block), inputs
            )
        slots = self.users or max(1, round(rate_per_s * sharing.turn_gap_s))
        return Turns(sharing, seed=seed, slots=slots, shuffled=self.users is None).extend

    def _replay(self, recording: Recording, seed: int, rate_per_s: float) -> Iterator[Requests]:
        times = None if isinstance(self.arrivals, AsRecorded) else _Feed(self.arrivals.times(seed, rate_per_s))
        classes = None if recording.classes else _Feed(self._classes(seed, block) for block in count())
        stretch = (mean_rate_per_s(recording) or 1.0) / rate_per_s if times is None else 0.0
        for block in repeat(recording):
            yield replace(
                block,
                arrival_s=block.arrival_s * stretch if times is None else times.take(len(block)),
                slo_class=block.slo_class if classes is None else classes.take(len(block)),
            )

    def _drawn_classes(self, lengths: Lengths, seed: int, block: int) -> Uint8s:
        own = None
        if isinstance(lengths, Empirical):
            own = lengths.draw_classes(generator(seed, RandomStream.LENGTHS, block), NATIVE_BLOCK)
        return self._classes(seed, block) if own is None else own

    def _classes(self, seed: int, block: int) -> Uint8s:
        if len(self.classes) < 2:  # nothing to choose from
            return np.zeros(NATIVE_BLOCK, np.uint8)
        bounds = np.cumsum([item.share_fraction for item in self.classes[:-1]])
        drawn = generator(seed, RandomStream.CLASSES, block).random(NATIVE_BLOCK)
        return np.searchsorted(bounds, drawn, "right").astype(np.uint8)


class _Feed(Generic[Scalar]):
    """A column that is produced in native blocks and consumed in pieces of any size."""

    def __init__(self, blocks: Iterator[NDArray[Scalar]]) -> None:
        self._blocks = blocks
        self._held = next(blocks)

    def take(self, rows: int) -> NDArray[Scalar]:
        while len(self._held) < rows:
            self._held = np.concatenate([self._held, next(self._blocks)])
        taken, self._held = self._held[:rows], self._held[rows:]
        return taken


def _take(blocks: Iterator[Requests], requests: int) -> Iterator[Requests]:
    while requests > 0:
        block = next(blocks)
        yield block if len(block) <= requests else block.rows(0, requests)
        requests -= len(block)


def _recut(blocks: Iterator[Requests], size: int) -> Iterator[Requests]:
    """Cut a stream of blocks into blocks of `size` rows. Only the last block may be shorter."""
    held: list[Requests] = []
    rows = 0
    for block in blocks:
        if not held and len(block) == size:
            yield block
            continue
        held.append(block)
        rows += len(block)
        if rows < size:
            continue
        joined = concatenate(held)
        whole = rows - rows % size
        for start in range(0, whole, size):
            yield joined.rows(start, start + size)
        rows -= whole
        held = [joined.rows(whole, whole + rows)] if rows else []
    if held:
        yield concatenate(held)
