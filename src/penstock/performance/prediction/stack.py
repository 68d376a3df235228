"""What stack serves? The slowdowns and the overhead that apply to one deployment today, and on what grounds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from penstock.catalog.measurement import Measurement
from penstock.fleet.deployment import Deployment
from penstock.performance.evidence.efficiencies import Efficiencies, Logs, Novelty
from penstock.performance.evidence.regression import FittedKin, Software
from penstock.performance.evidence.rows import configuration_of, family_of, kin_path, weights_label
from penstock.performance.evidence.setups import Setups, bent, closed_loop, load_of
from penstock.performance.evidence.waits import FIRST
from penstock.performance.step.first_token import LoopLoad, served
from penstock.performance.step.work import Array, ReplicaWork

_LEAST_LEFT: Final = 2
"""Loads that are left of the shortest curve with one of them held out."""
Tier = Literal["measured", "calibrated", "transferred", "speed-of-light"]


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
    rows: tuple[Measurement, ...] = ()
    """Measurements of this very setup that the slowdowns bend to."""

    def first_token_s(self, work: ReplicaWork, loop: LoopLoad) -> Array:
        """Time to first token in a steady loop, for each number of users."""
        return self.request_s + self.first_ratio * (served(work, loop) @ self.slowdowns)


def stack_of(deployment: Deployment, measured_engine: str, efficiencies: Efficiencies) -> Stack:
    """Look up what applies to a deployment: its nearest kin, its model, its configuration, its own measurements."""
    kin = kin_path(deployment.accelerator, measured_engine)
    path, fitted = efficiencies.calibration.nearest(kin)
    novelty = _novelty(deployment, kin, path, fitted)
    first_path, first = efficiencies.first.nearest(kin)
    beyond = dict(zip(FIRST, first.slowdowns * _factor(deployment, first), strict=True))
    stack = Stack(
        slowdowns=fitted.slowdowns * _factor(deployment, fitted),
        request_s=float(beyond["request_s"]),
        first_ratio=float(beyond["ratio"]),
        spread=efficiencies.spreads[novelty],
        first_spread=efficiencies.first_spreads[_novelty(deployment, kin, first_path, first)],
        tier="calibrated" if novelty in {"shape", "configuration"} else "transferred",
        novelty=novelty,
        software=_newest(fitted),
        path=path,
    )
    rows = efficiencies.setups.rows(deployment, measured_engine)
    return stack if not rows else _bent(stack, deployment, rows, efficiencies.near_spread)


def _bent(stack: Stack, deployment: Deployment, rows: Sequence[Measurement], spread: Logs) -> Stack:
    dated = [row for row in rows if row.dated == "day"]
    newest = max(dated, key=lambda row: row.date, default=None)
    return replace(
        stack,
        slowdowns=bent(stack.slowdowns, ReplicaWork(deployment), rows),
        spread=spread,
        tier="calibrated",
        novelty="shape",
        software=stack.software if newest is None else Software("online", newest.version, newest.date),
        rows=tuple(rows),
    )


def without_each_load(
    deployment: Deployment, measured_engine: str, efficiencies: Efficiencies
) -> Iterator[tuple[Measurement, float]]:
    """Predict every row of a setup, in seconds per token, bent to its other loads and lengths only."""
    rows = efficiencies.setups.rows(deployment, measured_engine)
    plain = stack_of(deployment, measured_engine, replace(efficiencies, setups=Setups()))
    work = ReplicaWork(deployment)
    for load in dict.fromkeys(load_of(row) for row in rows):
        others = [row for row in rows if load_of(row) != load]
        if len({load_of(row) for row in others}) >= _LEAST_LEFT:
            slowdowns = bent(plain.slowdowns, work, others)
            for row in rows:
                if load_of(row) == load:
                    yield row, float((work.light(closed_loop(row)) @ slowdowns)[0])


def _configuration(deployment: Deployment) -> str:
    family = family_of(deployment.model)
    return configuration_of("online", family, weights_label(deployment.model), deployment.parallelism)


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
