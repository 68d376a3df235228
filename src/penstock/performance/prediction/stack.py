"""What stack serves? The slowdowns and the overhead that apply to one deployment today, and on what grounds."""

from dataclasses import dataclass
from typing import Literal

from penstock.fleet.deployment import Deployment
from penstock.performance.evidence.efficiencies import Efficiencies, Logs, Novelty
from penstock.performance.evidence.regression import FittedKin, Software
from penstock.performance.evidence.rows import FORMATS, configuration_of, family_of, kin_path
from penstock.performance.evidence.waits import FIRST
from penstock.performance.step.first_token import LoopLoad, served
from penstock.performance.step.work import Array, ReplicaWork

Tier = Literal["calibrated", "transferred", "speed-of-light"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Stack:
    """How one accelerator, engine and model run together: what turns work at the speed of light into time."""

    slowdowns: Array
    """Of each part of a step, every factor included; `step_cost(work, slowdowns)` is a step's time."""
    request_s: float
    """Seconds of a request outside the engine's steps, before its first token."""
    first_ratio: float
    """How much longer than the steps it waits for a first token takes: `request_s + first_ratio * simulated`."""
    spread: Logs
    """Of the time per output token."""
    first_spread: Logs
    """Of the time to first token."""
    tier: Tier
    novelty: Novelty
    software: Software | None
    """The newest release seen, which is the one predicted."""
    path: tuple[str, ...]
    """The kin whose measurements were used."""

    def first_token_s(self, work: ReplicaWork, loop: LoopLoad) -> Array:
        """Time to first token in a steady loop, for each number of users."""
        return self.request_s + self.first_ratio * (served(work, loop) @ self.slowdowns)


def stack_of(deployment: Deployment, measured_engine: str, efficiencies: Efficiencies) -> Stack:
    """Look up what applies to a deployment: its nearest kin, its model, its configuration."""
    kin = kin_path(deployment.accelerator, measured_engine)
    path, fitted = efficiencies.calibration.nearest(kin)
    novelty = _novelty(deployment, kin, path, fitted)
    software = _newest(fitted)
    first_path, first = efficiencies.first.nearest(kin)
    beyond = dict(zip(FIRST, first.slowdowns * _factor(deployment, first), strict=True))
    return Stack(
        slowdowns=fitted.slowdowns * _factor(deployment, fitted),
        request_s=float(beyond["request_s"]),
        first_ratio=float(beyond["ratio"]),
        spread=efficiencies.spreads[novelty],
        first_spread=efficiencies.first_spreads[_novelty(deployment, kin, first_path, first)],
        tier="calibrated" if novelty in {"shape", "configuration"} else "transferred",
        novelty=novelty,
        software=software,
        path=path,
    )


def _weights_label(deployment: Deployment) -> str:
    """The format most weight bytes are in, as measurements name it."""
    largest = next(iter(deployment.model.formats))
    return largest if largest in FORMATS else "bf16"


def _configuration(deployment: Deployment) -> str:
    family = family_of(deployment.model)
    return configuration_of("online", family, _weights_label(deployment), deployment.parallelism)


def _novelty(deployment: Deployment, kin: tuple[str, ...], path: tuple[str, ...], fitted: FittedKin) -> Novelty:
    if len(path) < len(kin):
        return "accelerator"
    if _configuration(deployment) in fitted.factors.configuration:
        return "shape"
    return "configuration" if family_of(deployment.model) in fitted.factors.family else "model"


def _factor(deployment: Deployment, fitted: FittedKin) -> float:
    """What applies today: the model, the newest software seen, and the exact configuration."""
    return fitted.factors.times(family_of(deployment.model), _newest(fitted), _configuration(deployment))


def _newest(fitted: FittedKin) -> Software | None:
    """The newest software seen; serving runs count before offline ones."""
    seen = list(fitted.factors.software)
    online = [software for software in seen if software.scenario == "online"]
    return max(online or seen, key=lambda software: software.date, default=None)
