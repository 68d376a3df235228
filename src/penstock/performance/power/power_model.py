"""Predicts a device's share of board power from the utilisation of its memory and arithmetic."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np

from penstock.catalog.accelerator import Accelerator
from penstock.performance.step.step_work import COMPONENTS, Array

Logs = tuple[float, float]
"""P10 and P90 of the ratio of measured to predicted values, as logarithms."""
Unseen = Literal["split", "model", "accelerator", "vendor"]
"""The part of a setup that no power measurement covers. The interval of a prediction comes from the errors of
predictions for which the same part was held out."""

_STREAMED: Final = ("weights", "experts", "cache")
_MULTIPLIED: Final = ("compute", "prefill")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Utilisation:
    """Utilisation of a device in each step: the time of the work at peak speed, divided by the actual time."""

    memory: Array
    arithmetic: Array

    @staticmethod
    def of(roofline: Array, seconds: Array) -> "Utilisation":
        """Return the utilisation of each step, given the work (one row per step) and the time of each step."""
        return Utilisation.of_components({name: roofline[:, column] for column, name in enumerate(COMPONENTS)}, seconds)

    @staticmethod
    def of_components(roofline: Mapping[str, Array] | Mapping[str, float], seconds: Array) -> "Utilisation":
        """Return the utilisation of each step, given the work by component name, and the time of each step."""
        streamed, multiplied = (sum(roofline[name] for name in names) for names in (_STREAMED, _MULTIPLIED))
        return Utilisation(memory=streamed / seconds, arithmetic=multiplied / seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """Power curve of one type of device, in shares of its board power.

    A device whose steps do almost no work draws the share `idle`. Utilisation of memory and utilisation of arithmetic
    add power, each with its own coefficient. Power rises more slowly near the limit that power management enforces.
    """

    idle: float
    memory: float
    arithmetic: float

    def shares(self, use: Utilisation, factor: float = 1.0) -> Array:
        """Return the share of board power for each entry of `use`.

        `factor` scales the power, because some kernels draw more or less power than most kernels.
        """
        room = 1.0 - self.idle
        pressed = (self.memory * use.memory + self.arithmetic * use.arithmetic) / room
        return np.clip(factor * (1.0 - room * np.exp(-pressed)), self.idle, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnderLoad:
    """Measured power in runs with many users, as shares of board power: median, P10 and P90."""

    median: float
    low: float
    high: float
    rows: int


@dataclass(frozen=True, kw_only=True)
class PowerModel:
    """Fitted power curves by vendor and accelerator, factors by kernels, and held-out errors."""

    draws: Mapping[tuple[str, ...], Draw]
    """Power curves. The keys are () for all devices, (vendor,) and (vendor, accelerator)."""
    under_load: Mapping[tuple[str, ...], UnderLoad]
    """Measured power under load. The keys are () for all devices, (vendor,) and (vendor, accelerator)."""
    factors: Mapping[str, float] = field(default_factory=dict)
    """Logarithms of the power factors of kernels. The keys are values that `kernels_of` returns."""
    spreads: Mapping[Unseen, Logs] = field(default_factory=dict)
    """P10 and P90 of the ratio of measured to predicted watts at known speed, as logarithms."""
    rows: int = 0

    def of(self, accelerator: Accelerator, kernels: str) -> tuple[Draw, float, Unseen]:
        """Return the nearest measured power curve, the factor of the kernels, and the unmeasured part of the setup."""
        path = self.nearest(accelerator)
        draw = self.draws[path]
        if kernels in self.factors:
            return draw, float(np.exp(self.factors[kernels])), "split"
        unseen: tuple[Unseen, ...] = ("vendor", "accelerator", "model")
        return draw, 1.0, unseen[len(path)]

    def nearest(self, accelerator: Accelerator) -> tuple[str, ...]:
        """Return the most specific measured key for an accelerator: (vendor, accelerator), (vendor,) or ()."""
        whole = (accelerator.vendor, accelerator.id)
        return next(whole[:length] for length in (2, 1, 0) if whole[:length] in self.draws)


def kernels_of(accelerator: str, engine: str, shape: str, weights: str) -> str:
    """Return the key of a setup's kernels. The key does not depend on the split.

    Power has one fitted factor per key, because some kernels keep a device busier than their work implies.
    """
    return f"{accelerator} {engine} {shape} {weights}"
