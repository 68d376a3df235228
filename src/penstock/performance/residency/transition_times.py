"""Predicts the seconds of a sleep, a wake or a start from bytes, the host link and the disk."""

from dataclasses import dataclass
from statistics import median, quantiles
from typing import Final, Literal

from penstock.catalog.accelerator import Accelerator
from penstock.performance.residency.host_loads import HostLoads
from penstock.performance.residency.published_times import PUBLISHED, PublishedTime, Transition

_PCIE_BYTES_PER_S_PER_LANE: Final = {"3.0": 0.985e9, "4.0": 1.969e9, "5.0": 3.938e9, "6.0": 7.563e9}
"""One-way peak of a PCIe lane after its line code (PCI-SIG base specifications: 128b/130b, from 6.0 FLIT mode)."""
_WAKE_START_S: Final = 0.05
"""Seconds of a wake before bytes move: half of the shortest published wake, of which the copy is the other half."""
_DISK_START_S: Final = 0.5
"""Seconds of a wake from disk before bytes move: the intercept of the two smallest published wakes from disk."""
_ENGINES: Final = ("vllm", "sglang")
"""Engines that can release their memory while their process lives: vLLM by sleep mode, SGLang by
`release_memory_occupation`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransitionSeconds:
    """Predicted duration of a transition, as the P10, median and P90 over published rates."""

    low_s: float
    median_s: float
    high_s: float
    tier: Literal["measured", "calibrated", "transferred"]
    """`measured` from times of the user's host, `calibrated` for vLLM on the accelerator of the published times, else
    `transferred`."""
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """P10, median and P90 of an amount."""

    low: float
    median: float
    high: float


def host_link_bytes_per_s(accelerator: Accelerator) -> float | None:
    """Return the one-way peak of the link to the host in bytes per second. None if the catalog states no such link."""
    if accelerator.node.pcie is None:
        return None
    return pcie_bytes_per_s(accelerator.node.pcie)


def pcie_bytes_per_s(link: str) -> float:
    """Return the one-way peak of a PCIe link such as `5.0 x16`."""
    generation, lanes = link.split(" x")
    return _PCIE_BYTES_PER_S_PER_LANE[generation] * int(lanes)


def wake_from_host(accelerator: Accelerator, engine: str, bytes_per_rank: float) -> TransitionSeconds | None:
    """Return the time to copy a rank's weights from host memory. None if undetermined.

    The engine's process, graphs and kernels are kept, as in vLLM's sleep level 1.
    """
    return _over_link(Transition.WAKE_FROM_HOST, accelerator, engine, bytes_per_rank)


def sleep_to_host(accelerator: Accelerator, engine: str, bytes_per_rank: float) -> TransitionSeconds | None:
    """Return the time to copy a rank's weights to host memory. None if undetermined."""
    return _over_link(Transition.SLEEP_TO_HOST, accelerator, engine, bytes_per_rank)


def discard(accelerator: Accelerator, engine: str) -> TransitionSeconds | None:
    """Return the time to discard weights and KV cache. None if undetermined."""
    if engine not in _ENGINES:
        return None
    seconds = _spread([row.seconds for row in _rows(Transition.DISCARD)])
    return _answer(seconds, accelerator, engine, Transition.DISCARD)


def wake_from_disk(
    accelerator: Accelerator, engine: str, weight_bytes: float, *, host: HostLoads | None = None
) -> TransitionSeconds | None:
    """Return the time to read the weights of all ranks again while the engine lives. None if undetermined.

    All ranks read one disk. Without loads of the host, its rate is that of published loads from NVMe by one rank.
    """
    if engine not in _ENGINES:
        return None
    if host is not None:
        return _of_host(host, weight_bytes)
    seconds = _reading_s(weight_bytes, start_s=_DISK_START_S)
    return _answer(seconds, accelerator, engine, Transition.WAKE_FROM_DISK)


def start(
    accelerator: Accelerator, engine: str, weight_bytes: float, *, host: HostLoads | None = None
) -> TransitionSeconds | None:
    """Return the time to start a new engine process with its weights, graphs and kernels. None if undetermined.

    Starts of the host replace the published times. Those differ by the host more than by anything else.
    """
    if engine not in _ENGINES:
        return None
    if host is not None:
        return _of_host(host, weight_bytes)
    rate = disk_rate().median
    set_up = _spread([row.seconds - row.bytes_per_rank / rate for row in _rows(Transition.START)])
    reading = _reading_s(weight_bytes, start_s=0.0)
    seconds = Spread(
        low=set_up.low + reading.low, median=set_up.median + reading.median, high=set_up.high + reading.high
    )
    return _answer(seconds, accelerator, engine, Transition.START)


def disk_rate() -> Spread:
    """Return the published rates of reading weights from NVMe into a device, in bytes per second."""
    return _spread([row.bytes_per_rank / (row.seconds - _DISK_START_S) for row in _rows(Transition.WAKE_FROM_DISK)])


def link_fraction(transition: Transition) -> Spread:
    """Return the share of the host link's peak that published copies of weights reached."""
    return _spread(
        [row.bytes_per_rank / (row.seconds - _WAKE_START_S) / pcie_bytes_per_s(row.pcie) for row in _rows(transition)]
    )


def _over_link(
    transition: Transition, accelerator: Accelerator, engine: str, bytes_per_rank: float
) -> TransitionSeconds | None:
    peak = host_link_bytes_per_s(accelerator)
    if peak is None or engine not in _ENGINES:
        return None
    reached, at_peak_s = link_fraction(transition), bytes_per_rank / peak
    seconds = Spread(
        low=_WAKE_START_S + at_peak_s / reached.high,
        median=_WAKE_START_S + at_peak_s / reached.median,
        high=_WAKE_START_S + at_peak_s / reached.low,
    )
    return _answer(seconds, accelerator, engine, transition)


def _of_host(host: HostLoads, weight_bytes: float) -> TransitionSeconds:
    seconds = host.seconds(weight_bytes)
    return TransitionSeconds(
        low_s=seconds, median_s=seconds, high_s=seconds, tier="measured", source="times of your host"
    )


def _reading_s(weight_bytes: float, *, start_s: float) -> Spread:
    rate = disk_rate()
    return Spread(
        low=start_s + weight_bytes / rate.high,
        median=start_s + weight_bytes / rate.median,
        high=start_s + weight_bytes / rate.low,
    )


def _answer(seconds: Spread, accelerator: Accelerator, engine: str, transition: Transition) -> TransitionSeconds:
    rows = _rows(transition)
    measured = engine == "vllm" and accelerator.id.startswith("a100")
    return TransitionSeconds(
        low_s=seconds.low,
        median_s=seconds.median,
        high_s=seconds.high,
        tier="calibrated" if measured else "transferred",
        source=", ".join(dict.fromkeys(row.url for row in rows)),
    )


def _rows(transition: Transition) -> list[PublishedTime]:
    return [row for row in PUBLISHED if row.transition is transition]


def _spread(values: list[float]) -> Spread:
    tenths = quantiles(values, n=10, method="inclusive")
    return Spread(low=tenths[0], median=median(values), high=tenths[-1])
