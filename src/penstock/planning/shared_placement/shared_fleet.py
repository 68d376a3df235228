"""Finds the fewest shared devices on which every model keeps its SLO in simulation."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import Final, Literal

import numpy as np

from penstock.fleet.pools import Eviction
from penstock.planning.shared_placement.model_loads import ModelLoad, SizedModel
from penstock.simulation.model_swapping import SwappedModel, SwappingDevice
from penstock.simulation.outcome import Outcome
from penstock.simulation.replica import ReplicaPool
from penstock.simulation.run import simulate
from penstock.simulation.run_options import Options
from penstock.workload import Requests, SloClass, vary_answers
from penstock.workload.requests import Int32s

_LENGTHS: Final = 21
StepTimes = Literal["median", "P90"]


@dataclass(frozen=True, kw_only=True)
class SharedFleet:
    """Models on equal devices, with the outcome of their simulation."""

    devices: tuple[SwappingDevice, ...]
    models: tuple[SizedModel, ...]
    device_of: tuple[int, ...]
    """Device of each model."""
    outcome: Outcome

    @property
    def met(self) -> bool:
        """Whether every model keeps its SLO."""
        return self.outcome.met

    @property
    def missed(self) -> tuple[str, ...]:
        """Models that miss their SLO."""
        judged = zip(self.models, self.outcome.classes, strict=True)
        return tuple(model.load.name for model, item in judged if not item.attained)

    @property
    def worst_attained_fraction(self) -> float:
        """Smallest share of requests within the SLO over all models."""
        return min((item.met_fraction for item in self.outcome.classes if item.met_fraction is not None), default=1.0)

    @property
    def cost_shares(self) -> tuple[float, ...]:
        """Return each model's share of the cost, by the resource of its device of which it takes most.

        A model's part of a device is the larger of its memory over the device's memory and its busy time over the busy
        time of all models there. The parts of one device are scaled to sum up to the device.
        """
        busy = [pool.busy_fraction for pool in self.outcome.pools]
        parts = np.zeros(len(self.models))
        for number, device in enumerate(self.devices):
            members = [index for index, at in enumerate(self.device_of) if at == number]
            total_bytes = sum(self.models[index].awake_bytes for index in members)
            total_busy = sum(busy[index] for index in members)
            for index in members:
                memory = self.models[index].awake_bytes / max(total_bytes, device.capacity_bytes)
                parts[index] = max(memory, busy[index] / total_busy if total_busy else 0.0)
            parts[members] /= parts[members].sum()
        return tuple(float(part) for part in parts / len(self.devices))


@dataclass(frozen=True, slots=True, kw_only=True)
class NoSharedFleet:
    """Models for which not even a device of their own is enough."""

    overloaded: tuple[str, ...] = ()
    """Models whose load takes more than all the time of a device. Nothing was simulated."""
    missed: tuple[str, ...] = ()
    """Models that miss their SLO in the simulation of a device per model."""


def smallest_fleet(
    models: Sequence[SizedModel], *, hours: float, seed: int, eviction: Eviction, steps: StepTimes = "P90"
) -> SharedFleet | NoSharedFleet:
    """Return the fleet with the fewest devices that keeps every SLO.

    Packings are tried from one device up to a device per model. Each is simulated with the given step times of all
    models.
    """
    overloaded = tuple(model.load.name for model in models if model.min_busy_fraction > 1)
    if overloaded:
        return NoSharedFleet(overloaded=overloaded)
    asked = draw_requests(models, hours=hours, seed=seed)
    missed: tuple[str, ...] = ()
    for count in range(1, len(models) + 1):
        device_of = assign(models, count)
        if device_of is None:
            continue
        fleet = simulate_fleet(models, device_of, asked, eviction=eviction, steps=steps)
        if fleet.met:
            return fleet
        missed = fleet.missed
    return NoSharedFleet(missed=missed)


def assign(models: Sequence[SizedModel], count: int) -> tuple[int, ...] | None:
    """Assign models to devices, the largest first, each to the device whose fuller resource then is emptiest.

    None if a device has too little compute, or cannot hold its models even in turn.
    """
    capacity = models[0].available_bytes
    used_bytes, busy = np.zeros(count), np.zeros(count)
    device_of = [0] * len(models)
    for index in sorted(range(len(models)), key=lambda one: -models[one].awake_bytes):
        model = models[index]
        filled = np.maximum((used_bytes + model.awake_bytes) / capacity, busy + model.min_busy_fraction)
        best = int(np.argmin(filled))
        device_of[index] = best
        used_bytes[best] += model.awake_bytes
        busy[best] += model.min_busy_fraction
    if busy.max() > 1:
        return None
    groups = [[models[index] for index in members] for members in _members(device_of, count)]
    return tuple(device_of) if all(_all_awake(group) or _can_swap(group) for group in groups) else None


def simulate_fleet(
    models: Sequence[SizedModel],
    device_of: Sequence[int],
    asked: Requests,
    *,
    eviction: Eviction,
    steps: StepTimes = "P90",
) -> SharedFleet:
    """Simulate models on their devices. A device that holds all its models keeps them awake; else they are swapped."""
    pools = [_pool(index, model, steps) for index, model in enumerate(models)]
    devices = []
    for number, members in enumerate(_members(device_of, max(device_of) + 1)):
        awake = _all_awake([models[index] for index in members])
        devices.append(
            SwappingDevice(
                name=f"device {number + 1}",
                capacity_bytes=models[0].available_bytes,
                models=tuple(_swapped_model(index, models[index], awake=awake) for index in members),
                eviction=eviction,
            )
        )
    classes = [SloClass(name=one.load.name, share_fraction=1 / len(models), slo=one.load.slo) for one in models]
    options = Options(devices=tuple(devices), pool_of=lambda block: block.slo_class.astype(np.int16))
    outcome = simulate(pools, [asked], classes=classes, options=options)
    return SharedFleet(devices=tuple(devices), models=tuple(models), device_of=tuple(device_of), outcome=outcome)


def draw_requests(models: Sequence[SizedModel], *, hours: float, seed: int) -> Requests:
    """Draw Poisson arrivals of every model for some hours. The class of a request is the number of its model."""
    rng, span_s = np.random.default_rng(seed), hours * 3600
    counts = [rng.poisson(model.load.requests_per_s * span_s) for model in models]
    owner = np.repeat(np.arange(len(models)), counts)
    arrival_s = rng.uniform(0.0, span_s, len(owner))
    inputs, outputs = np.empty(len(owner), np.int32), np.empty(len(owner), np.int32)
    for index, model in enumerate(models):
        mine = owner == index
        inputs[mine], outputs[mine] = _draw_lengths(model.load, counts[index], rng)
    order = np.argsort(arrival_s, kind="stable")
    return Requests(
        arrival_s=arrival_s[order],
        input_tokens=inputs[order],
        output_tokens=outputs[order],
        slo_class=owner[order].astype(np.uint8),
    )


def _draw_lengths(load: ModelLoad, count: int, rng: np.random.Generator) -> tuple[Int32s, Int32s]:
    """Draw the prompt and the answer of some requests."""
    varied = [
        vary_answers(
            share.bucket.input_tokens, share.bucket.output_tokens, _LENGTHS, context_tokens=load.longest_tokens
        )
        for share in load.shares
    ]
    drawn = rng.integers(0, _LENGTHS, count)
    if len(varied) > 1:
        fractions = np.array([share.fraction for share in load.shares])
        drawn += _LENGTHS * rng.choice(len(varied), count, p=fractions / fractions.sum())
    inputs = np.concatenate([lengths.input_tokens for lengths in varied])
    outputs = np.concatenate([lengths.output_tokens for lengths in varied])
    return inputs[drawn], outputs[drawn]


def _members(device_of: Sequence[int], count: int) -> Iterator[list[int]]:
    for number in range(count):
        yield [index for index, at in enumerate(device_of) if at == number]


def _all_awake(models: Sequence[SizedModel]) -> bool:
    """Return whether a device holds all its models awake."""
    return not models or sum(model.awake_bytes for model in models) <= models[0].available_bytes


def _can_swap(models: Sequence[SizedModel]) -> bool:
    """Return whether each model of a device can wake while all others sleep."""
    if any(model.wake is None for model in models):
        return False
    asleep = sum(model.asleep_bytes for model in models)
    return asleep + max(model.awake_bytes - model.asleep_bytes for model in models) <= models[0].available_bytes


def _pool(index: int, model: SizedModel, steps: StepTimes) -> ReplicaPool:
    placed = model.placed
    replica = placed.replica if steps == "median" else placed.at(placed.stack.spread[1])
    if replica is None:
        raise ValueError(f"{model.load.name} does not fit")
    return ReplicaPool(name=f"{index} {model.load.name}", replica=replica)


def _swapped_model(index: int, model: SizedModel, *, awake: bool) -> SwappedModel:
    return SwappedModel(
        pool=f"{index} {model.load.name}",
        awake_bytes=model.awake_bytes,
        asleep_bytes=model.asleep_bytes,
        wake_s=0.0 if model.wake is None else model.wake.high_s,
        sleep_s=0.0 if model.sleep is None else model.sleep.high_s,
        kept_awake=awake,
        patience_s=model.load.slo.ttft_s or inf,
    )


def dedicated_devices(models: Sequence[SizedModel]) -> int:
    """Return the least number of devices if no two models share one."""
    return sum(max(1, ceil(model.min_busy_fraction)) for model in models)
