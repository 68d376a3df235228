"""What does a device draw? A share of its board power, from how much of the time its memory and arithmetic are busy."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np

from penstock.catalog.accelerator import Accelerator
from penstock.performance.step.step_work import PARTS, Array

Logs = tuple[float, float]
"""P10 and P90 of measured over predicted, as logarithms."""
Unseen = Literal["split", "model", "accelerator", "vendor"]
"""What about a draw was never measured; errors held out in the same way give its interval."""

_STREAMED: Final = ("weights", "experts", "cache")
_MULTIPLIED: Final = ("compute", "prefill")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Utilisation:
    """How busy a device is: shares of the time that its work would take at peak, an entry per step asked about."""

    memory: Array
    arithmetic: Array

    @staticmethod
    def of(light: Array, seconds: Array) -> "Utilisation":
        """Hold the work of steps, a row each, against the time they take."""
        return Utilisation.of_parts({name: light[:, column] for column, name in enumerate(PARTS)}, seconds)

    @staticmethod
    def of_parts(light: Mapping[str, Array] | Mapping[str, float], seconds: Array) -> "Utilisation":
        """Hold work by the name of its part against the time it takes."""
        streamed, multiplied = (sum(light[name] for name in names) for names in (_STREAMED, _MULTIPLIED))
        return Utilisation(memory=streamed / seconds, arithmetic=multiplied / seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """The draw of one kind of device as shares of its board power.

    An engine that steps with next to no work draws `idle`; busy memory and arithmetic add to it, each at its own price
    and ever less the nearer the device comes to its limit, which power management holds.
    """

    idle: float
    memory: float
    arithmetic: float

    def shares(self, use: Utilisation, factor: float = 1.0) -> Array:
        """Share of the board power for each entry; a factor says how much more some kernels draw than most."""
        room = 1.0 - self.idle
        pressed = (self.memory * use.memory + self.arithmetic * use.arithmetic) / room
        return np.clip(factor * (1.0 - room * np.exp(-pressed)), self.idle, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnderLoad:
    """What devices drew in measured runs of many users, as shares of board power: median, P10 and P90."""

    median: float
    low: float
    high: float
    rows: int


@dataclass(frozen=True, kw_only=True)
class PowerModel:
    """What was fitted: draws by kin, what some kernels draw beyond them, and how wrong both are where not seen."""

    draws: Mapping[tuple[str, ...], Draw]
    """By (), (vendor,) and (vendor, accelerator)."""
    under_load: Mapping[tuple[str, ...], UnderLoad]
    """By the same kin."""
    factors: Mapping[str, float] = field(default_factory=dict)
    """Logarithms, by `kernels_of`."""
    spreads: Mapping[Unseen, Logs] = field(default_factory=dict)
    """Of watts, with the speed known."""
    rows: int = 0

    def of(self, accelerator: Accelerator, kernels: str) -> tuple[Draw, float, Unseen]:
        """Return what applies to a part and its kernels: the draw of the nearest kin, a factor, and what is unseen."""
        path = self.nearest(accelerator)
        draw = self.draws[path]
        if kernels in self.factors:
            return draw, float(np.exp(self.factors[kernels])), "split"
        unseen: tuple[Unseen, ...] = ("vendor", "accelerator", "model")
        return draw, 1.0, unseen[len(path)]

    def nearest(self, accelerator: Accelerator) -> tuple[str, ...]:
        """The narrowest kin of a part that was measured."""
        whole = (accelerator.vendor, accelerator.id)
        return next(whole[:length] for length in (2, 1, 0) if whole[:length] in self.draws)


def kernels_of(accelerator: str, engine: str, shape: str, weights: str) -> str:
    """Name what runs on a device, however it is split: some kernels keep a device busier than their work says."""
    return f"{accelerator} {engine} {shape} {weights}"
