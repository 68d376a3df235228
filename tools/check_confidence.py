"""Checks how often planned fleets are enough, in independent worlds that are simulated in full.

A world is a draw of the prediction errors, the demand and the software gains, from the uncertainties that the plan
states. Every pool of the planned fleet is simulated at the drawn demand with slower or faster steps, without the rate
curves, quantiles and programs with which the plan was made.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from math import log, sqrt

import numpy as np

from penstock.api.plan import plan
from penstock.performance.shipped.shipped_disaggregated import shipped_phase_factors
from penstock.performance.shipped.shipped_runs import shipped_efficiencies
from penstock.planning.candidates.disaggregated_screen import UnitScreen
from penstock.planning.candidates.queueless_screen import QueuelessScreen
from penstock.planning.optimizer.problem import Mix, OfferKey
from penstock.planning.optimizer.resize_fleet import Worlds as DrawnWorlds
from penstock.planning.optimizer.resize_fleet import nodes_needed
from penstock.planning.plan_result import Answer, PlanResult
from penstock.planning.spec.plan_file import parse_plan
from penstock.planning.uncertainty.draw_inputs import draw_inputs
from penstock.planning.uncertainty.drawn_worlds import drawn_worlds
from penstock.planning.uncertainty.plan_headroom import LOADING
from penstock.planning.uncertainty.uncertain_inputs import InputWorld, capacity_spreads, knobs_of
from penstock.planning.verification.pool_simulator import Simulator
from penstock.planning.verification.rate_over_errors import slowdown_at
from penstock.planning.verification.serving_fleet import pool_id, serving_fleet
from penstock.planning.verification.simulated_capacity import PoolLoad, load_of_pool, pool_of_size

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
    drawn: DrawnWorlds
    """The same worlds for the rule by which the planner counts nodes."""


def draw_worlds(result: PlanResult, count: int) -> Worlds:
    """Draw worlds with a seed of their own."""
    knobs = [knob for knob in knobs_of(result.resolved, capacity_spreads(result.candidates)) if knob.kind in LOADING]
    inputs = draw_inputs(knobs, SEED, count)
    world = InputWorld(resolved=result.resolved)
    drawn = drawn_worlds(world, result.candidates, result.problem, inputs.values, inputs.knobs, errors=inputs.errors)
    one = np.ones(count)
    periods = range(result.problem.periods)
    workloads = {demand.key[0] for demand in result.problem.demands}
    return Worlds(
        errors=dict(inputs.errors),
        demand={(name, at): drawn.demand.get((name, at), one) for name in workloads for at in periods},
        gain={key: np.asarray(values) for key, values in drawn.gain.items()},
        drawn=drawn,
    )


def share_enough(result: PlanResult, mix: Mix, simulator: Simulator, count: int) -> tuple[float, float]:
    """Return the share of worlds in which every SLO is kept in every period, simulated and by the planner's rule."""
    worlds = draw_worlds(result, count)
    _, by_rule = nodes_needed(mix, replace(result.problem, headroom=None), worlds.drawn)
    enough = 0
    for number in range(count):
        enough += all(
            nodes_are_enough(result, mix, period, worlds, number, simulator) for period in range(result.problem.periods)
        )
    return enough / count, float(np.mean(by_rule))


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Replicas of one kind on the nodes of one offer in one world; rates are of the whole pool, as clients see them."""

    offer: OfferKey
    vendor: str
    workload: str
    load: PoolLoad
    devices: int
    """Devices per replica."""
    replicas: int
    requests_per_s: float
    replica_requests_per_s: float
    """Highest rate of one replica at the plan's utilisation, by its rate curve; it only says where requests go."""
    slowed_by: float
    """Factor from the rate that clients see to the simulated rate: utilisation and software gains."""
    error: float

    @property
    def room(self) -> float:
        """Return the highest rate of the pool, by its rate curve."""
        return self.replicas * self.replica_requests_per_s

    def meets_slo(self, simulator: Simulator) -> bool:
        """Simulate the pool with the speed of this world."""
        if not self.replicas or not self.requests_per_s:
            return not self.requests_per_s
        sized = pool_of_size(self.load, self.replicas)
        rate = self.requests_per_s * self.slowed_by * sized.replicas / self.replicas
        load = replace(sized, requests_per_s=rate)
        slowdown = slowdown_at(self.error, simulator.placed_replica(load).stack.spread)
        return simulator.attained_at(load, log_slowdown=log(slowdown)) >= load.slo.attainment_fraction


def nodes_are_enough(
    result: PlanResult, mix: Mix, period: int, worlds: Worlds, number: int, simulator: Simulator
) -> bool:
    """Return whether the nodes of a period keep every SLO in one world, at the plan's highest utilisation.

    They do with the planned replicas, or with replicas that suit this world: what runs on a node can be exchanged. A
    router sends what is too much for one pool of a workload to the others, as far as they have room.
    """
    min_share = result.problem.min_vendor_share if result.problem.min_vendors > 1 else 0.0
    planned = list(pools_in_world(result, mix, period, worlds, number))
    free = {
        pool.offer.key: (pool.nodes - pool.spare_nodes) * pool.offer.devices
        for pool in mix.pools
        if pool.period == period
    }
    return any(
        all(pool.meets_slo(simulator) for pool in share_overflow(pools, min_share))
        for pools in (planned, refill(planned, free))
    )


def pools_in_world(result: PlanResult, mix: Mix, period: int, worlds: Worlds, number: int) -> Iterator[Pool]:
    """Yield the planned pools of a period with the demand and the speed of one world."""
    by_id = {entry.id: entry for entry in result.candidates}
    fleet = serving_fleet(mix, period, result.problem, result.candidates, result.plan.workloads)
    serving = {pool.id: pool for pool in fleet.pools}
    for pool in mix.pools:
        for name, replicas in pool.replicas.items() if pool.period == period else ():
            accelerator, workload = pool.offer.accelerator, by_id[name].workload
            load = load_of_pool(fleet, serving[pool_id(name, pool.offer)])
            if load is None:
                continue
            error = float(worlds.errors[accelerator][number]) if accelerator in worlds.errors else 0.0
            gains = result.problem.gains.get(accelerator)
            gain = gains[period] if gains else 1.0
            if (accelerator, period) in worlds.gain:
                gain *= float(worlds.gain[accelerator, period][number])
            demand = float(worlds.demand[workload, period][number])
            slowed_by = 1 / result.problem.utilisation_fraction / gain
            yield Pool(
                offer=pool.offer.key,
                vendor=pool.offer.vendor,
                workload=workload,
                load=load,
                devices=next(kind.devices for kind in result.problem.replicas if kind.id == name),
                replicas=replicas,
                requests_per_s=load.requests_per_s * replicas / load.replicas * demand,
                replica_requests_per_s=float(by_id[name].capacities[0].curve.at(np.array([error]))[0]) / slowed_by,
                slowed_by=slowed_by,
                error=error,
            )


def refill(pools: Sequence[Pool], free: Mapping[OfferKey, int]) -> list[Pool]:
    """Fill the nodes of each offer again: each next replica is one of the kind that is busiest in this world."""
    counts = [0] * len(pools)
    for offer, devices in free.items():
        own = [at for at, pool in enumerate(pools) if pool.offer == offer and pool.replica_requests_per_s]
        left = devices
        while fitting := [at for at in own if pools[at].devices <= left]:
            busy = {
                at: pools[at].requests_per_s / pools[at].replica_requests_per_s / max(counts[at], 0.5) for at in fitting
            }
            most = max(fitting, key=lambda at: busy[at])
            counts[most] += 1
            left -= pools[most].devices
    return [replace(pool, replicas=count) for pool, count in zip(pools, counts, strict=True)]


def share_overflow(pools: Sequence[Pool], min_share: float) -> Iterator[Pool]:
    """Spread each workload in proportion to the room of its pools, if one of them has more than it can carry.

    The router that plans assume sends a request where it does the least harm, so no pool stays at its limit while
    another has room. A vendor below the share that the plan requires gets that share. Nothing moves if the room is too
    small.
    """
    for workload in dict.fromkeys(pool.workload for pool in pools):
        own = [pool for pool in pools if pool.workload == workload]
        asked = sum(pool.requests_per_s for pool in own)
        room: dict[str, float] = {}
        for pool in own:
            room[pool.vendor] = room.get(pool.vendor, 0.0) + pool.room
        small = {vendor for vendor, most in room.items() if most < min_share * sum(room.values())}
        others = sum(most for vendor, most in room.items() if vendor not in small)
        left = 1 - min_share * len(small)
        sent = {
            vendor: asked * (min_share if vendor in small else left * most / others if others else 0.0)
            for vendor, most in room.items()
        }
        fits = all(sent[vendor] <= most for vendor, most in room.items())
        moves = fits and any(pool.requests_per_s > pool.room for pool in own)
        for pool in own:
            share = pool.room / room[pool.vendor] if pool.room else 0.0
            yield replace(pool, requests_per_s=sent[pool.vendor] * share) if moves else pool


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
    share, by_rule = share_enough(result, mix, simulator, count)
    nodes = sum(pool.nodes for pool in mix.pools if pool.period == 0)
    in_plan = f"enough in {confident.enough_fraction:.0%} of the plan's draws"
    return share, f"{by_rule:.0%} by the planner's rule; {nodes} nodes at first, ${mix.cost_usd:,.0f}, {in_plan}"


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
