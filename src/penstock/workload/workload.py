"""What will be served? Arrivals, lengths, sharing and promises together, drawn block by block."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np

from penstock.errors import UsageError
from penstock.workload.arrivals import Arrivals, ClosedLoop
from penstock.workload.lengths import Lengths
from penstock.workload.randomness import NATIVE_BLOCK, Stream, generator
from penstock.workload.requests import Float64s, Requests, Uint8s, concatenate
from penstock.workload.slo import SloClass

_MAX_CLASSES = 256


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Requests to come: how many at a time is the consumer's affair, which ones is the seed's."""

    name: str
    arrivals: Arrivals
    lengths: Lengths
    classes: tuple[SloClass, ...] = ()
    """Empty: one nameless class with nothing promised. Else shares that sum to 1."""
    source: str = "synthetic"
    """What to cite where a result from this workload is shown."""

    def __post_init__(self) -> None:
        total = sum(item.share_fraction for item in self.classes)
        if self.classes and abs(total - 1) > 1e-6:  # noqa: PLR2004 - rounding of typed shares
            raise UsageError(f"the shares of the classes sum to {total:g}; make them sum to 1")
        if len(self.classes) > _MAX_CLASSES:
            raise UsageError(f"{len(self.classes)} classes; at most {_MAX_CLASSES} are told apart")

    @property
    def users(self) -> int | None:
        """How many users a closed loop has; None where arrivals do not wait for answers."""
        return self.arrivals.users if isinstance(self.arrivals, ClosedLoop) else None

    @property
    def think_s(self) -> float:
        """How long a user of a closed loop waits before asking again."""
        return self.arrivals.think_s if isinstance(self.arrivals, ClosedLoop) else 0.0

    def blocks(
        self, *, seed: int, requests: int, rate_per_s: float | None = None, block_requests: int = NATIVE_BLOCK
    ) -> Iterator[Requests]:
        """Yield the first `requests` requests; neither their number nor the block size changes any of them."""
        if requests < 0 or block_requests < 1:
            raise UsageError("ask for 0 or more requests in blocks of at least 1")
        return _recut(self._native(seed, requests, self._rate(rate_per_s)), block_requests)

    def _rate(self, rate_per_s: float | None) -> float:
        if isinstance(self.arrivals, ClosedLoop):
            if rate_per_s is not None:
                raise UsageError("a closed loop has no rate of its own; leave the rate out or the users")
            return 0.0
        rate = self.arrivals.rate_per_s if rate_per_s is None else rate_per_s
        if rate is None or not 0 < rate < np.inf:
            raise UsageError(f"workload '{self.name}' needs a rate above 0 requests/s")
        return rate

    def _native(self, seed: int, requests: int, rate_per_s: float) -> Iterator[Requests]:
        times = self._times(seed, rate_per_s)
        for block in count():
            left = requests - block * NATIVE_BLOCK
            if left <= 0:
                return
            inputs, outputs = self.lengths.draw(generator(seed, Stream.LENGTHS, block), NATIVE_BLOCK)
            rows = Requests(
                arrival_s=next(times),
                input_tokens=inputs,
                output_tokens=outputs,
                slo_class=self._classes(seed, block),
            )
            yield rows if left >= NATIVE_BLOCK else rows.rows(0, left)

    def _times(self, seed: int, rate_per_s: float) -> Iterator[Float64s]:
        if isinstance(self.arrivals, ClosedLoop):
            while True:
                yield np.zeros(NATIVE_BLOCK)
        for unit_s in self.arrivals.unit_times(seed):
            yield unit_s / rate_per_s

    def _classes(self, seed: int, block: int) -> Uint8s:
        if len(self.classes) < 2:  # noqa: PLR2004 - nothing to choose from
            return np.zeros(NATIVE_BLOCK, np.uint8)
        bounds = np.cumsum([item.share_fraction for item in self.classes[:-1]])
        return np.searchsorted(bounds, generator(seed, Stream.CLASSES, block).random(NATIVE_BLOCK), "right").astype(
            np.uint8
        )


def _recut(blocks: Iterator[Requests], size: int) -> Iterator[Requests]:
    """Cut a stream of blocks into blocks of `size` rows; only the last may be shorter."""
    held: list[Requests] = []
    rows = 0
    for block in blocks:
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
