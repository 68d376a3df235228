"""Selects the few disaggregated units worth simulating, with their kinds and numbers of prefill and decode replicas."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import ceil, exp, gcd, inf
from typing import Final

from penstock.fleet.deployment import Deployment, Parallelism
from penstock.fleet.disaggregated_replica import NETWORK_BYTES_PER_S, Disaggregated
from penstock.model import ModelSpec
from penstock.planning.candidates.deployment_options import (
    WorkloadOnAccelerator,
    emulated_format,
    weight_formats,
)
from penstock.planning.candidates.disaggregated_screen import UnitScreen
from penstock.planning.candidates.replica_capacity import Option, mixed_rate, way_of
from penstock.planning.candidates.splits import splits_of

_MAX_DEVICES: Final = 64
"""Maximum devices of a unit: eight nodes of eight devices, so that one node may prefill for seven decode nodes."""
_MAX_REPLICAS: Final = 8
"""Maximum number of prefill replicas in a unit, and maximum number of decode replicas."""
_WORKING: Final = 0.85
"""Utilisation of prefill replicas at which the prompt queue is short enough for most SLOs."""
_SHORTLIST, _UNITS = 24, 3
"""Maximum number of units estimated with queueing before prefill, and maximum number of units simulated."""

_Needs = tuple[float, float, float]
UnitsOf = Callable[[ModelSpec, WorkloadOnAccelerator], Sequence[Option]]
"""Function that returns the units worth simulating for a workload on an accelerator; empty without measurements."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Pair:
    """One prefill replica and one decode replica that run the same engine."""

    unit: Disaggregated
    weights: str
    engine: str


def find_units(model: ModelSpec, placing: WorkloadOnAccelerator, screen: UnitScreen) -> list[Option]:
    """Return the units that need the fewest devices for the workload's peak, if each unit has the P10 of its rate.

    If units were ranked by estimated rate instead, the best of hundreds of units would be the unit with the most
    favourable prediction error. The rank by P10 favours measured setups, which have smaller errors.
    """
    pairs = list(_pairs(model, placing, screen))
    sized = [
        _size_unit(pair, rates, placing, screen)
        for pair, rates in zip(pairs, _rates(pairs, placing, screen), strict=True)
    ]
    promising = sorted((entry for entry in sized if entry is not None), key=lambda entry: entry[0])[:_SHORTLIST]
    judged = []
    for number, (_, option) in enumerate(promising):
        needs = _needs(placing, option, screen)
        judged += [(needs, number, option)] if needs[1] < inf else []
    return [option for _, _, option in sorted(judged, key=lambda entry: entry[:2])[:_UNITS]]


def _pairs(model: ModelSpec, placing: WorkloadOnAccelerator, screen: UnitScreen) -> Iterator[_Pair]:
    named = tuple(Parallelism(tp=tp) for tp in placing.planned.tp)
    prompts = min(share.bucket.input_tokens for share in placing.workload.shares)
    for weights, spec in weight_formats(placing.workload, model):
        if emulated_format(placing, model, spec) is not None:
            continue
        for engine in _engines(spec, placing, screen):
            splits = named or splits_of(spec, placing.accelerator)
            replicas = [placing.deployment(spec, split, engine, drafts=False) for split in splits]
            ahead = [each for each in replicas if screen.loop.memory(each, prompts).fits]
            after = [each for each in replicas if screen.loop.memory(each, placing.shortest_tokens).fits]
            for prefill, decode in product(ahead, after):
                yield _Pair(unit=_unit(prefill, 1, decode, 1), weights=weights, engine=engine)


def _engines(spec: ModelSpec, placing: WorkloadOnAccelerator, screen: UnitScreen) -> list[str]:
    """Return the engines measured in disaggregated deployments on the accelerator.

    If the plan requests engines, only requested engines are returned. Otherwise engines measured with this model format
    are preferred.
    """
    asked, accelerator = placing.workload.engines, placing.accelerator.id
    measured = screen.phase_factors.engines(accelerator, None if asked else spec) or screen.phase_factors.engines(
        accelerator
    )
    return [name for name in measured if not asked or name in asked]


def _unit(prefill: Deployment, ahead: int, decode: Deployment, after: int) -> Disaggregated:
    """Build a unit that sends its KV cache over the network, because its replicas are rarely on one machine."""
    return Disaggregated(
        prefill=prefill,
        prefill_replicas=ahead,
        decode=decode,
        decode_replicas=after,
        kv_bytes_per_s=NETWORK_BYTES_PER_S * prefill.parallelism.devices,
    )


def _rates(
    pairs: Sequence[_Pair], placing: WorkloadOnAccelerator, screen: UnitScreen
) -> list[tuple[float, float, float]]:
    """Return, for each pair, the share of requests that the pair serves, its prefill rate and its decode rate."""
    workload = placing.workload
    asked = [(pair.unit, pair.engine) for pair in pairs]
    by_length = [screen.rates(asked, share.bucket, workload.slo) for share in workload.shares]
    found = []
    for each in zip(*by_length, strict=True):
        served = [rates.prefill_per_s > 0 and rates.decode_per_s > 0 for rates in each]
        fractions = tuple(share.fraction * kept for share, kept in zip(workload.shares, served, strict=True))
        ahead = mixed_rate(fractions, tuple(rates.prefill_per_s for rates in each)) if any(served) else 0.0
        after = mixed_rate(fractions, tuple(rates.decode_per_s for rates in each)) if any(served) else 0.0
        found.append((sum(fractions), ahead, after))
    return found


def _size_unit(
    pair: _Pair, rates: tuple[float, float, float], placing: WorkloadOnAccelerator, screen: UnitScreen
) -> tuple[_Needs, Option] | None:
    """Choose the numbers of prefill and decode replicas with the fewest devices; None if the pair serves no length.

    Either one unit fills whole nodes, or a whole number of units fills one node.
    """
    served, ahead, after = rates
    if not served:
        return None
    node, peak = placing.accelerator.node.devices, placing.workload.peak_requests_per_s
    low_factor = exp(min(0.0, screen.spread(pair.unit, pair.engine).rate[0]))
    best: tuple[_Needs, Disaggregated] | None = None
    for prefills, decodes in _ratios():
        unit = replace(pair.unit, prefill_replicas=prefills, decode_replicas=decodes)
        times = _times(unit.devices, node)
        if times is None or times * max(prefills, decodes) > _MAX_REPLICAS:
            continue
        unit = replace(unit, prefill_replicas=times * prefills, decode_replicas=times * decodes)
        rate = min(_WORKING * ahead * unit.prefill_replicas, after * unit.decode_replicas)
        needs = _devices(unit, rate, low_factor * rate, peak * served, served)
        if best is None or needs < best[0]:
            best = needs, unit
    if best is None:
        return None
    return best[0], _option(best[1], pair, placing)


def _ratios() -> Iterator[tuple[int, int]]:
    counts = range(1, _MAX_REPLICAS + 1)
    return ((ahead, after) for ahead, after in product(counts, counts) if gcd(ahead, after) == 1)


def _times(devices: int, node: int) -> int | None:
    """Return the smallest number of copies of `devices` devices that divides a node evenly or fills whole nodes.

    Return None if the copies together exceed the maximum number of devices of a unit.
    """
    for times in range(1, _MAX_DEVICES // devices + 1):
        whole = times * devices
        if node % whole == 0 or whole % node == 0:
            return times
    return None


def _devices(unit: Disaggregated, rate: float, low: float, peak: float, served: float) -> _Needs:
    """Return the share of requests not served, the devices of all units for the peak, and the devices per request/s.

    Both device counts are scaled up by the ratio of the estimated rate to the P10 of the rate.
    """
    if low <= 0:
        return 1.0, inf, inf
    return 1 - served, ceil(peak / rate) * unit.devices * rate / low, unit.devices / low


def _needs(placing: WorkloadOnAccelerator, option: Option, screen: UnitScreen) -> _Needs:
    """Return the result of `_devices` for rates that include queueing before prefill."""
    capacities = screen(option, placing.workload)
    fractions = tuple(share.fraction for share in placing.workload.shares)
    rate, low = (
        mixed_rate(fractions, tuple(getattr(capacity.requests_per_s, end) for capacity in capacities))
        for end in ("value", "low")
    )
    served = sum(fraction for fraction, seen in zip(fractions, capacities, strict=True) if seen.meets_slo)
    unit = option.disaggregated or _unit(option.deployment, 1, option.deployment, 1)
    return _devices(unit, rate, low, placing.workload.peak_requests_per_s * served, served)


def _option(unit: Disaggregated, pair: _Pair, placing: WorkloadOnAccelerator) -> Option:
    way = way_of(unit.decode, None, unit)
    return Option(
        id=f"{placing.workload.name} {placing.accelerator.id} {way} {pair.weights}",
        weights=pair.weights,
        deployment=unit.decode,
        measured_engine=pair.engine,
        disaggregated=unit,
    )
