"""Proposes the setup to measure next: the one whose speed, if it were known, would save the most dollars."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Final

from penstock.planning.candidates.candidate_search import Candidate
from penstock.planning.uncertainty.plan_headroom import with_known
from penstock.planning.uncertainty.sensitivity import Judge, Swing
from penstock.planning.uncertainty.uncertain_inputs import InputWorld, Knob

_END, _MIDDLE = 0.3, 0.4
"""Weights of P10, median and P90 in a mean (Swanson's rule)."""
_MIN_SAVING: Final = 0.01
"""Smallest share of the cost that knowledge must save to be worth a measurement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextMeasurement:
    """A setup to measure, and what knowing its speed would save."""

    workload: str
    model: str
    weights: str
    accelerator: str
    vendor: str
    way: str
    engine: str
    requests_per_s: float
    """Predicted capacity of one replica for the most frequent length."""
    low: float
    """P10 of the capacity of the accelerator's replicas, relative to the estimate."""
    high: float
    saving_usd: float
    """Expected cost now minus the expected cost with the speed known: less headroom, and the best fleet each time."""


def next_measurement(
    judge: Judge, world: InputWorld, knobs: Sequence[Knob], swings: Sequence[Swing]
) -> NextMeasurement | None:
    """Return the setup that is most worth a measurement, or None if knowing no speed saves 1% of the cost.

    The costs with a speed at its P10 and its P90 are those of the tornado, in which the fleet needs no headroom for it.
    """
    ends = {swing.id: swing for swing in swings}
    stated = min(judge.costs(world, "throughput").values(), default=0.0)
    worth: list[tuple[float, Knob, Candidate]] = []
    for knob in knobs:
        swing, setup = ends.get(knob.id), _setup(judge, knob.subject)
        if knob.kind != "throughput" or swing is None or setup is None:
            continue
        known = with_known(world, judge.candidates, [knob])
        middle = min(judge.costs(knob.apply(known, knob.input.value), knob.kind).values())
        saving = stated - _END * (swing.cost_at_low_usd + swing.cost_at_high_usd) - _MIDDLE * middle
        if isfinite(saving) and saving >= _MIN_SAVING * stated:
            worth.append((saving, knob, setup))
    if not worth:
        return None
    saving, knob, setup = max(worth, key=lambda one: (one[0], one[1].id))
    return NextMeasurement(
        workload=setup.workload,
        model=setup.deployment.model.name,
        weights=setup.weights,
        accelerator=setup.accelerator.id,
        vendor=setup.accelerator.vendor,
        way=setup.way,
        engine=setup.measured_engine,
        requests_per_s=setup.rates[0],
        low=knob.input.low,
        high=knob.input.high,
        saving_usd=saving,
    )


def _setup(judge: Judge, accelerator: str) -> Candidate | None:
    """Return the setup that the first fleet with an accelerator runs most there. The winner is the first fleet."""
    candidates = {entry.id: entry for entry in judge.candidates}
    for mix in judge.family.fleets:
        replicas = {
            name: count
            for pool in mix.pools
            if pool.offer.accelerator == accelerator
            for name, count in pool.replicas.items()
            if name in candidates and candidates[name].disaggregated is None and candidates[name].speculation is None
        }
        if replicas:
            return candidates[max(sorted(replicas), key=lambda name: replicas[name])]
    return None
