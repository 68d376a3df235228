"""Checks how often planned fleets are enough, in independent worlds that are simulated in full.

A world is a draw of the prediction errors, the demand and the software gains, from the uncertainties that the plan
states. Every pool of the planned fleet is simulated at the drawn demand with slower or faster steps, without the rate
curves, quantiles and programs with which the plan was made.
"""

import argparse
from dataclasses import dataclass, replace
from datetime import date
from math import log, sqrt

import numpy as np

from penstock.api.plan import plan
from penstock.performance.shipped.shipped_disaggregated import shipped_phase_factors
from penstock.performance.shipped.shipped_runs import shipped_efficiencies
from penstock.planning.candidates.disaggregated_screen import UnitScreen
from penstock.planning.candidates.queueless_screen import QueuelessScreen
from penstock.planning.optimizer.problem import Mix
from penstock.planning.plan_result import Answer, PlanResult
from penstock.planning.spec.plan_file import parse_plan
from penstock.planning.uncertainty.draw_inputs import draw_inputs
from penstock.planning.uncertainty.drawn_worlds import drawn_worlds
from penstock.planning.uncertainty.plan_headroom import LOADING
from penstock.planning.uncertainty.uncertain_inputs import InputWorld, capacity_spreads, knobs_of
from penstock.planning.verification.pool_simulator import Simulator
from penstock.planning.verification.rate_over_errors import slowdown_at
from penstock.planning.verification.serving_fleet import ServingFleet, serving_fleet
from penstock.planning.verification.simulated_capacity import PoolLoad, load_of_pool

SEED = 20_261_118
"""Seed of the worlds, which no plan uses."""
ENOUGH = {0.8: (0.72, 0.88), 0.5: (0.41, 0.59)}
"""Shares of worlds in which a fleet of each confidence should be enough."""
PLAN = """
name: {name}
start: 2026-12-01
horizon_years: {years}
acquire: [rent]
workloads: [{workloads}]
accelerators: [{accelerators}]
constraints: {{{rules}}}
"""
WORKLOAD = (
    "{{name: {model}, model: {model}, slo: '{slo}', requests_per_s: {rate}, mtp: false, "
    "growth_per_year: {growth}, lengths: [{{input: {inputs}, output: {outputs}}}]}}"
)


def _workload(model: str, slo: str, rate: str, inputs: int, outputs: int, *, growth: str = "0%") -> str:
    return WORKLOAD.format(model=model, slo=slo, rate=rate, inputs=inputs, outputs=outputs, growth=growth)


CHAT = ("llama-3.1-70b", "ttft=2s,tpot=60ms,attain=95%")
PLANS = {
    "70B on H200": ([_workload(*CHAT, "400", 1000, 300)], "{id: h200, rent_usd_per_hour: 3, tp: [2]}", 1, ""),
    "70B on MI300X": ([_workload(*CHAT, "400", 1000, 300)], "{id: mi300x, rent_usd_per_hour: 2, tp: [1]}", 1, ""),
    "70B, tight": (
        [_workload("llama-3.1-70b", "ttft=1s,tpot=22ms,attain=95%", "300", 1000, 300)],
        "{id: h200, rent_usd_per_hour: 3, tp: [2, 4]}",
        1,
        "",
    ),
    "gpt-oss on MI355X, uncertain demand": (
        [_workload("gpt-oss-120b", "ttft=1s,tpot=30ms,attain=95%", "{value: 3000, low: 2000, high: 4000}", 2000, 500)],
        "{id: mi355x, rent_usd_per_hour: 3, tp: [1]}",
        1,
        "",
    ),
    "R1 on H200, growing": (
        [
            _workload(
                "deepseek-r1",
                "ttft=3s,tpot=70ms,attain=95%",
                "60",
                2000,
                800,
                growth="{value: 40%, low: 0%, high: 90%}",
            )
        ],
        "{id: h200, rent_usd_per_hour: 3, tp: [8]}",
        2,
        "",
    ),
    "8B on L40S": (
        [_workload("llama-3.1-8b", "ttft=1s,tpot=60ms,attain=95%", "500", 800, 200)],
        "{id: l40s, rent_usd_per_hour: 1, tp: [1]}",
        1,
        "",
    ),
    "70B and 8B on H100": (
        [
            _workload(*CHAT, "{value: 200, low: 150, high: 300}", 1000, 300),
            _workload("llama-3.1-8b", "ttft=1s,tpot=40ms,attain=95%", "{value: 900, low: 600, high: 1100}", 800, 200),
        ],
        "{id: h100, rent_usd_per_hour: 2.5, tp: [1, 2]}",
        1,
        "",
    ),
    "70B on two vendors": (
        [_workload(*CHAT, "400", 1000, 300)],
        "{id: h200, rent_usd_per_hour: 3, tp: [2]}, {id: mi300x, rent_usd_per_hour: 2, tp: [1]}",
        1,
        "min_vendors: 2, min_vendor_share: 40%",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Worlds:
    """Draws of the inputs that change the load relative to capacity."""

    errors: dict[str, np.ndarray]
    demand: dict[tuple[str, int], np.ndarray]
    gain: dict[tuple[str, int], np.ndarray]


def draw_worlds(result: PlanResult, count: int) -> Worlds:
    """Draw worlds with a seed of their own."""
    knobs = [knob for knob in knobs_of(result.resolved, capacity_spreads(result.candidates)) if knob.kind in LOADING]
    inputs = draw_inputs(knobs, SEED, count)
    drawn = drawn_worlds(
        InputWorld(resolved=result.resolved), result.candidates, result.problem, inputs.values, inputs.knobs
    )
    one = np.ones(count)
    periods = range(result.problem.periods)
    workloads = {demand.key[0] for demand in result.problem.demands}
    return Worlds(
        errors=dict(inputs.errors),
        demand={(name, at): drawn.demand.get((name, at), one) for name in workloads for at in periods},
        gain={key: np.asarray(values) for key, values in drawn.gain.items()},
    )


def share_enough(result: PlanResult, mix: Mix, simulator: Simulator, count: int) -> float:
    """Return the share of worlds in which every pool of a fleet meets its SLO in every period."""
    worlds = draw_worlds(result, count)
    enough = 0
    for number in range(count):
        enough += all(
            _holds(
                result,
                serving_fleet(mix, period, result.problem, result.candidates, result.plan.workloads),
                worlds,
                number,
                simulator,
            )
            for period in range(result.problem.periods)
        )
    return enough / count


def _holds(result: PlanResult, fleet: ServingFleet, worlds: Worlds, number: int, simulator: Simulator) -> bool:
    """Return whether every pool meets its SLO in one world, at the plan's highest utilisation.

    A router sends what is too much for one pool of a workload to the others, as far as they have room.
    """
    by_id = {entry.id: entry for entry in result.candidates}
    min_share = result.problem.min_vendor_share if result.problem.min_vendors > 1 else 0.0
    for workload in {stream.workload for stream in fleet.streams}:
        loads, errors, room = [], [], []
        for pool in fleet.pools:
            load = load_of_pool(fleet, pool)
            if load is None or by_id[pool.option.id].workload != workload:
                continue
            accelerator = pool.option.deployment.accelerator.id
            error = float(worlds.errors[accelerator][number]) if accelerator in worlds.errors else 0.0
            gains = result.problem.gains.get(accelerator)
            gain = gains[fleet.period] if gains else 1.0
            if (accelerator, fleet.period) in worlds.gain:
                gain *= float(worlds.gain[accelerator, fleet.period][number])
            factor = float(worlds.demand[workload, fleet.period][number]) / result.problem.utilisation_fraction / gain
            loads.append(replace(load, requests_per_s=load.requests_per_s * factor))
            errors.append(error)
            curve = by_id[pool.option.id].capacities[0].curve
            room.append(float(curve.at(np.array([error]))[0]) * load.replicas)
        for load, error in zip(_share_overflow(loads, room, min_share), errors, strict=True):
            if load.requests_per_s and not _meets_slo(simulator, load, error):
                return False
    return True


def _share_overflow(loads: list[PoolLoad], room: list[float], min_share: float) -> list[PoolLoad]:
    """Move what is above the capacity of a pool to the pools that have room, in proportion to their room.

    Nothing moves if the room is too small, or if a vendor would then carry less than the plan requires.
    """
    asked = [load.requests_per_s for load in loads]
    over = sum(max(0.0, rate - most) for rate, most in zip(asked, room, strict=True))
    free = [max(0.0, most - rate) for rate, most in zip(asked, room, strict=True)]
    if not over or over > sum(free):
        return loads
    moved = [
        replace(load, requests_per_s=min(rate, most) + over * own / sum(free))
        for load, rate, most, own in zip(loads, asked, room, free, strict=True)
    ]
    carried: dict[str, float] = {}
    for load in moved:
        vendor = load.option.deployment.accelerator.vendor
        carried[vendor] = carried.get(vendor, 0.0) + load.requests_per_s
    return moved if min(carried.values()) >= min_share * sum(asked) else loads


def _meets_slo(simulator: Simulator, load: PoolLoad, error: float) -> bool:
    spread = simulator.placed_replica(load).stack.spread
    attained = simulator.attained_at(load, log_slowdown=log(slowdown_at(error, spread)))
    return attained >= load.slo.attainment_fraction


def check_plan(name: str, confidence: float, count: int) -> tuple[float, str]:
    """Return the share of worlds in which the planned fleet is enough, and a description of the fleet."""
    workloads, accelerators, years, rules = PLANS[name]
    stated = ", ".join(filter(None, (rules, f"confidence: {confidence:.0%}")))
    text = PLAN.format(name=name, workloads=", ".join(workloads), accelerators=accelerators, years=years, rules=stated)
    asked = parse_plan(text, name, today=date(2026, 11, 18))
    result = plan(asked).result
    if not isinstance(result.answer, Answer):
        return float("nan"), "no fleet"
    efficiencies = shipped_efficiencies()
    screen = UnitScreen(QueuelessScreen(efficiencies), shipped_phase_factors())
    simulator = Simulator(screen.loop, seed=SEED, units=screen)
    mix, confident = result.answer.winner.mix, result.answer.confidence
    share = share_enough(result, mix, simulator, count)
    nodes = sum(pool.nodes for pool in mix.pools if pool.period == 0)
    return (
        share,
        f"{nodes} nodes at first, ${mix.cost_usd:,.0f}, enough in {confident.enough_fraction:.0%} of the plan's draws",
    )


def main() -> None:
    """Print the share of worlds in which each fleet is enough."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=150)
    parser.add_argument("--plan", action="append", choices=sorted(PLANS))
    parser.add_argument("--confidence", action="append", type=float)
    given = parser.parse_args()
    for name in given.plan or PLANS:
        for confidence in given.confidence or ENOUGH:
            share, told = check_plan(name, confidence, given.worlds)
            low, high = ENOUGH.get(confidence, (0.0, 1.0))
            error = sqrt(max(share * (1 - share), 0.0) / given.worlds)
            word = "inside" if low <= share <= high else "outside"
            print(
                f"{name}, {confidence:.0%}: {share:.0%} +- {error:.0%}, {word} {low:.0%} to {high:.0%}; {told}",
                flush=True,
            )


if __name__ == "__main__":
    main()
