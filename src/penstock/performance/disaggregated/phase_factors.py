"""Fits how much slower an engine's steps are when the engine only prefills or only decodes.

The slowdowns of a stack come from engines that prefill and decode. The residual of a measured configuration is its
deviation from these slowdowns. The residual is modelled as a sum of effects, one per label. The labels combine the
accelerator, the engine, the model and the split. The labels also state whether exactly this setup was measured as one
engine. Every effect is shrunk towards zero. An unmeasured configuration gets the effects of the labels that it shares
with measured configurations.
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
"""Prior standard deviation of an effect, as a logarithm. If this value is halved or doubled, held-out errors change by
less than one percentage point."""
_CONFIGURATION, _ROW = 0.15, 0.25
"""Standard deviations, as logarithms, of the part of a residual that no label explains. The first value is for the part
that all rows of a configuration share. The second value is for the part of a single row."""
_FARTHEST: Final = 2.5
_OUTLIER: Final = 1.5
_REWEIGHTS: Final = 4
_KINDS: Final = ("seen", "unseen", "drafting_seen", "drafting_unseen")
Quantiles = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """Logarithm of a configuration's measured over predicted step time in one phase.

    The step time is predicted from the stack.
    """

    labels: tuple[str, ...]
    log_ratio: float
    rows: int
    group: Hashable
    """Key that is equal for configurations that are held out together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseSpread:
    """P10 and P90 of the ratio of measured to predicted values, as logarithms, over runs held out by the same rule."""

    tpot: Quantiles
    rate: Quantiles
    ttft: Quantiles

    @property
    def ends(self) -> tuple[Quantiles, Quantiles, Quantiles]:
        """Return the quantiles of time per token, rate and time to first token, in this order."""
        return self.tpot, self.rate, self.ttft


@dataclass(frozen=True, kw_only=True)
class PhaseFactors:
    """Fitted effects of engines that only prefill or only decode, with the held-out errors of predictions."""

    effects: Mapping[Phase, Mapping[str, float]]
    seen: PhaseSpread
    """Errors that apply if the setups of both engines were measured. The errors come from predictions for which the
    configuration was held out."""
    unseen: PhaseSpread
    """Errors that apply if the setup of either engine was not measured. The errors come from predictions for which all
    runs of the same model on the same stack were held out."""
    drafting_seen: PhaseSpread
    drafting_unseen: PhaseSpread
    """The same errors of runs with drafts."""

    def spread(self, *, measured: bool, drafting: bool) -> PhaseSpread:
        """Return the errors that apply to a prediction."""
        if drafting:
            return self.drafting_seen if measured else self.drafting_unseen
        return self.seen if measured else self.unseen

    def log_factor(self, phase: Phase, labels: Sequence[str]) -> float:
        """Return the logarithm of an engine's step time in one phase over the step time that its stack predicts."""
        return sum_effects(self.effects[phase], labels)

    def measured(self, labels: Sequence[str]) -> bool:
        """Return whether an engine of exactly this setup was measured in a disaggregated deployment."""
        return any(labels[-1] in known for known in self.effects.values())

    def engines(self, accelerator: str, model: ModelSpec | None = None) -> tuple[str, ...]:
        """Return the engines that were measured in disaggregated deployments on an accelerator.

        If a model is given, only the engines that served this model in its weight format are returned.
        """
        served = "" if model is None else f"{shape_of(model)} {weights_label(model)}"
        here = f"{accelerator} "
        labels = (label.removeprefix(here) for label in self.effects["decode"] if label.startswith(here))
        named = (label.partition(" ") for label in labels)
        return tuple(sorted({engine for engine, _, rest in named if rest.startswith(served)}))

    def document(self) -> dict[str, Any]:
        """Return the factors as a document of plain values, rounded to four decimals."""
        return {
            "effects": {
                phase: {label: round(value, 4) for label, value in sorted(known.items())}
                for phase, known in self.effects.items()
            },
            **{kind: _round_spread(getattr(self, kind)) for kind in _KINDS},
        }


def _round_spread(spread: PhaseSpread) -> dict[str, list[float]]:
    ends = {"tpot": spread.tpot, "rate": spread.rate, "ttft": spread.ttft}
    return {name: [round(end, 4) for end in pair] for name, pair in ends.items()}


def phase_factors_from(document: Mapping[str, Any]) -> PhaseFactors:
    """Parse the document that `PhaseFactors.document` returns."""
    spreads = {
        kind: PhaseSpread(**{name: (float(low), float(high)) for name, (low, high) in document[kind].items()})
        for kind in _KINDS
    }
    return PhaseFactors(effects={phase: dict(document["effects"][phase]) for phase in PHASES}, **spreads)


def labels_of(deployment: Deployment, engine: str, *, seen: bool, draft: str = "") -> tuple[str, ...]:
    """Return the labels of an engine, from the most general label to the label of exactly this setup.

    `seen` states whether the setup was measured as one engine that prefills and decodes. `draft` is the draft method
    with the drafted tokens, or empty.
    """
    split = deployment.parallelism
    kind = f"{'measured' if seen else 'unseen'} {'ranks' if split.dp > 1 else 'one'}"
    stack = f"{deployment.accelerator.id} {engine}"
    model = f"{shape_of(deployment.model)} {weights_label(deployment.model)}"
    shared = (
        kind,
        f"{engine} {kind}",
        f"{stack} {kind}",
        f"{stack} {model}",
        f"{engine} {shape_of(deployment.model)} {split}",
        f"{stack} {model} {split}",
    )
    if not draft:
        return shared
    drafting = (
        draft,
        f"{engine} {draft}",
        f"{stack} {draft}",
        f"{engine} {shape_of(deployment.model)} {draft}",
        f"{stack} {model} {draft}",
        f"{stack} {model} {split} {draft}",
    )
    return (*shared, *drafting)


class SharedEffects:
    """Decomposition of residuals into effects of labels.

    The residuals are modelled as a Gaussian vector. Two configurations covary through the labels that they share.
    """

    def __init__(self, residuals: Sequence[Residual], phase: Phase) -> None:
        self._labels = sorted(set(chain(*(residual.labels for residual in residuals))))
        self._variance = EFFECT[phase] ** 2
        self._groups: dict[Hashable, list[int]] = defaultdict(list)
        for number, residual in enumerate(residuals):
            self._groups[residual.group].append(number)
        self._has = self._membership(residuals)
        logs = np.clip([residual.log_ratio for residual in residuals], -_FARTHEST, _FARTHEST)
        noise = _CONFIGURATION**2 + _ROW**2 / np.array([residual.rows for residual in residuals])
        inflation = np.ones_like(noise)
        for _ in range(_REWEIGHTS):
            self._precision = np.linalg.inv(self._variance * self._has @ self._has.T + np.diag(noise * inflation))
            self._weights = self._precision @ logs
            # Distance of each residual from its prediction by the other residuals, in standard deviations.
            # Outliers get less weight.
            standardised = np.abs(self._weights) / np.sqrt(np.diag(self._precision))
            inflation = np.maximum(1.0, standardised / _OUTLIER) ** 2

    def _membership(self, residuals: Sequence[Residual]) -> Array:
        place = {label: number for number, label in enumerate(self._labels)}
        has = np.zeros((len(residuals), len(place)))
        for number, residual in enumerate(residuals):
            has[number, [place[label] for label in residual.labels]] = 1.0
        return has

    def all(self) -> dict[str, float]:
        """Return the effect of every label."""
        return self._by_label(self._weights)

    def effects_without(self, group: Hashable) -> dict[str, float]:
        """Return the effects fitted without the residuals of a group.

        Outliers keep the weights that they have in the fit to all residuals.
        """
        members = self._groups.get(group, [])
        own = self._precision[np.ix_(members, members)]
        weights = self._weights - self._precision[:, members] @ np.linalg.solve(own, self._weights[members])
        return self._by_label(weights)

    def _by_label(self, weights: Array) -> dict[str, float]:
        return dict(zip(self._labels, (self._variance * self._has.T @ weights).tolist(), strict=True))


def sum_effects(effects: Mapping[str, float], labels: Sequence[str]) -> float:
    """Return the sum of the effects of the given labels. An unknown label adds zero."""
    return sum(effects.get(label, 0.0) for label in labels)
