"""How much longer do engines take that only prefill, or only decode? Factors on their steps, by what they share.

A stack's slowdowns come from engines that do both. What is left of a measured configuration is the sum of effects, one
for each label it has: its accelerator and engine, its model there, its split, and whether the very setup was measured
as one engine. Every effect is drawn towards zero; a configuration nobody ran gets those of the labels it shares.
"""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Literal

import numpy as np

from penstock.fleet.deployment import Deployment
from penstock.model import ModelSpec
from penstock.performance.similarity.cases import shape_of, weights_label
from penstock.performance.step.step_work import Array

Phase = Literal["prefill", "decode"]
PHASES: Final[tuple[Phase, ...]] = ("prefill", "decode")
EFFECT: Final[Mapping[Phase, float]] = {"prefill": 0.3, "decode": 0.2}
"""How large an effect is, as a logarithm. Held-out errors move by less than a point between half and twice of it."""
_CONFIGURATION, _ROW = 0.15, 0.25
"""What no label explains: of a configuration, and of one of its rows."""
_FARTHEST: Final = 2.5
_OUTLIER: Final = 1.5
_REWEIGHTS: Final = 4
Quantiles = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """By how much a configuration's steps took longer than its stack says, as a logarithm, in one phase."""

    labels: tuple[str, ...]
    log_ratio: float
    rows: int
    group: Hashable
    """Configurations that are held out together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseSpread:
    """P10 and P90 of measured over predicted, as logarithms, of runs held out in one way."""

    tpot: Quantiles
    rate: Quantiles
    ttft: Quantiles


@dataclass(frozen=True, kw_only=True)
class PhaseFactors:
    """What is known of engines that only prefill or only decode."""

    effects: Mapping[Phase, Mapping[str, float]]
    seen: PhaseSpread
    """Where the setups of both engines were measured: with the configuration held out."""
    unseen: PhaseSpread
    """Elsewhere: with every run of the model on its stack held out."""

    def log_factor(self, phase: Phase, labels: Sequence[str]) -> float:
        """How much longer than their stack's the steps of such an engine take."""
        return summed(self.effects[phase], labels)

    def measured(self, labels: Sequence[str]) -> bool:
        """Whether an engine of the very setup decoded, or prefilled, in a measured deployment."""
        return any(labels[-1] in known for known in self.effects.values())

    def engines(self, accelerator: str, model: ModelSpec | None = None) -> tuple[str, ...]:
        """Engines that were measured disaggregated on an accelerator; with a model, serving it in its format."""
        served = "" if model is None else f"{shape_of(model)} {weights_label(model)}"
        here = f"{accelerator} "
        labels = (label.removeprefix(here) for label in self.effects["decode"] if label.startswith(here))
        named = (label.partition(" ") for label in labels)
        return tuple(sorted({engine for engine, _, rest in named if rest.startswith(served)}))

    def document(self) -> dict[str, Any]:
        """As shipped."""
        return {
            "effects": {
                phase: {label: round(value, 4) for label, value in sorted(known.items())}
                for phase, known in self.effects.items()
            },
            "seen": _rounded(self.seen),
            "unseen": _rounded(self.unseen),
        }


def _rounded(spread: PhaseSpread) -> dict[str, list[float]]:
    ends = {"tpot": spread.tpot, "rate": spread.rate, "ttft": spread.ttft}
    return {name: [round(end, 4) for end in pair] for name, pair in ends.items()}


def phase_factors_from(document: Mapping[str, Any]) -> PhaseFactors:
    """Read what was shipped."""
    seen, unseen = (
        PhaseSpread(**{name: (float(low), float(high)) for name, (low, high) in document[kind].items()})
        for kind in ("seen", "unseen")
    )
    return PhaseFactors(effects={phase: dict(document["effects"][phase]) for phase in PHASES}, seen=seen, unseen=unseen)


def labels_of(deployment: Deployment, engine: str, *, seen: bool) -> tuple[str, ...]:
    """What an engine shares with others, from the widest to the very setup; `seen`: it was measured doing both."""
    split = deployment.parallelism
    kind = f"{'measured' if seen else 'unseen'} {'ranks' if split.dp > 1 else 'one'}"
    stack = f"{deployment.accelerator.id} {engine}"
    model = f"{shape_of(deployment.model)} {weights_label(deployment.model)}"
    return (
        kind,
        f"{engine} {kind}",
        f"{stack} {kind}",
        f"{stack} {model}",
        f"{engine} {shape_of(deployment.model)} {split}",
        f"{stack} {model} {split}",
    )


class SharedEffects:
    """Residuals shared out between labels: as one Gaussian vector, in which labels in common are what two share."""

    def __init__(self, residuals: Sequence[Residual], phase: Phase) -> None:
        self._labels = sorted(set(chain(*(residual.labels for residual in residuals))))
        self._variance = EFFECT[phase] ** 2
        self._groups: dict[Hashable, list[int]] = defaultdict(list)
        for number, residual in enumerate(residuals):
            self._groups[residual.group].append(number)
        self._has = self._membership(residuals)
        logs = np.clip([residual.log_ratio for residual in residuals], -_FARTHEST, _FARTHEST)
        noise = _CONFIGURATION**2 + _ROW**2 / np.array([residual.rows for residual in residuals])
        doubt = np.ones_like(noise)
        for _ in range(_REWEIGHTS):
            self._precision = np.linalg.inv(self._variance * self._has @ self._has.T + np.diag(noise * doubt))
            self._weights = self._precision @ logs
            # How far each is from what the others say, in standard deviations: an outlier counts less.
            apart = np.abs(self._weights) / np.sqrt(np.diag(self._precision))
            doubt = np.maximum(1.0, apart / _OUTLIER) ** 2

    def _membership(self, residuals: Sequence[Residual]) -> Array:
        place = {label: number for number, label in enumerate(self._labels)}
        has = np.zeros((len(residuals), len(place)))
        for number, residual in enumerate(residuals):
            has[number, [place[label] for label in residual.labels]] = 1.0
        return has

    def all(self) -> dict[str, float]:
        """Every label's effect."""
        return self._by_label(self._weights)

    def without(self, group: Hashable) -> dict[str, float]:
        """The same had nobody measured a group; who is an outlier stays as it was with everybody."""
        members = self._groups.get(group, [])
        own = self._precision[np.ix_(members, members)]
        weights = self._weights - self._precision[:, members] @ np.linalg.solve(own, self._weights[members])
        return self._by_label(weights)

    def _by_label(self, weights: Array) -> dict[str, float]:
        return dict(zip(self._labels, (self._variance * self._has.T @ weights).tolist(), strict=True))


def summed(effects: Mapping[str, float], labels: Sequence[str]) -> float:
    """Add up the effects of labels; one nobody has is none."""
    return sum(effects.get(label, 0.0) for label in labels)
