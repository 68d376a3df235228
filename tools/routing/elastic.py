"""What does scaling save over a day? Replicas come and go by a scaler's word; of every five minutes a sample runs.

Scalers that go by counts are asked every 15 s with Poisson counts, as the gateway asks; all every five minutes.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

from penstock.routing.autoscaler.scaler import CheapestSet, LoadReport, PoolReport, ScaledPool
from penstock.simulation.outcome import Outcome
from penstock.simulation.replica import ReplicaPool
from penstock.simulation.run import simulate
from penstock.simulation.run_options import Options, Routing
from routing.cases import Load, fleet, load
from routing.experiments import SEEDS, Row, parts, routing
from routing.rival_autoscalers import EvenScaling, HorizontalPodAutoscaler, Scaler, VariantAutoscaler

WINDOW_S, SAMPLE_S, LOAD_S = 300.0, 30.0, 300.0
ASKED_EVERY_S = (15.0, 300.0)
"""How often the gateway asks, and how often it was asked in the first table that was published."""
_DAY_S = 86_400.0
BY_RATE = {"cheapest set", "even"}
"""Who goes by counts of requests alone; of what the others go by there is one sample in five minutes."""
MakeScaler = Callable[[Sequence[ScaledPool]], Scaler]


def rate_at(now_s: float, peak_per_s: float) -> float:
    """Requests a second at a time of the day: a quarter of the peak at night, the peak at 14 h."""
    return peak_per_s * (0.625 + 0.375 * math.cos(2 * math.pi * (now_s / _DAY_S - 14 / 24)))


@dataclass
class Day:
    """Replicas that are up or coming, and what a day of them cost and kept."""

    pools: Sequence[ReplicaPool]
    every_s: float
    up: list[int]
    coming: list[list[float]] = field(default_factory=list)
    usd: float = 0.0
    met: int = 0
    asked: int = 0

    def step(self, now_s: float, wanted: Sequence[int]) -> None:
        """Let what loaded be up, ask for what is missing, let go what is too much."""
        for place, want in enumerate(wanted):
            ready = [at for at in self.coming[place] if at <= now_s]
            self.up[place] += len(ready)
            self.coming[place] = [at for at in self.coming[place] if at > now_s]
            present = self.up[place] + len(self.coming[place])
            if want > present:
                self.coming[place] += [now_s + LOAD_S] * (want - present)
            while want < self.up[place] + len(self.coming[place]):
                if self.coming[place]:
                    self.coming[place].pop()
                else:
                    self.up[place] -= 1
            replicas = self.up[place] + len(self.coming[place])
            self.usd += replicas * (self.pools[place].usd_per_hour or 0.0) * self.every_s / 3600

    def serve(self, drawn: Load, route: Routing, rate: float, seed: int) -> Outcome:
        """Simulate a sample of a window on what is up."""
        there = [replace(pool, replicas=up) for pool, up in zip(self.pools, self.up, strict=True) if up > 0]
        blocks = drawn.blocks(seed=seed, requests=max(50, round(rate * SAMPLE_S)), rate_per_s=rate)
        outcome = simulate(there, blocks, classes=drawn.classes, options=Options(routing=route))
        weight = rate * WINDOW_S / max(1, outcome.requests + outcome.refused)
        self.met += round(weight * sum(item.met for item in outcome.classes))
        self.asked += round(weight * (outcome.requests + outcome.refused))
        return outcome

    def report(self, now_s: float, rate: float, outcome: Outcome) -> LoadReport:
        """Say what the window's metrics say."""
        seen = {pool.name: pool for pool in outcome.pools}
        reports = []
        for place, pool in enumerate(self.pools):
            one = seen.get(pool.name)
            count = max(1, self.up[place])
            busy = 0.0 if one is None else one.busy_fraction
            reports.append(
                PoolReport(
                    up=self.up[place],
                    coming=len(self.coming[place]),
                    waiting=0.0 if one is None else one.mean_waiting / count,
                    running=0.0 if one is None else one.mean_batch * busy,
                    kv_used_fraction=0.0 if one is None else one.kv_mean_fraction * busy,
                )
            )
        return LoadReport(now_s=now_s, requests_per_s=rate, pools=tuple(reports))


def day(
    pools: Sequence[ReplicaPool], drawn: Load, scaler: Scaler, route: Routing, peak_per_s: float, every_s: float
) -> Day:
    """Run a day, from midnight with everything up; a scaler is asked every so many seconds."""
    state = Day(pools, every_s, [pool.replicas for pool in pools], [[] for _ in pools])
    rng = np.random.default_rng(SEEDS[0])
    wanted: Sequence[int] = [pool.replicas for pool in pools]
    for window in range(int(_DAY_S / WINDOW_S)):
        state.step(window * WINDOW_S, wanted)
        rate = rate_at(window * WINDOW_S, peak_per_s) * float(rng.normal(1.0, 0.05))
        outcome = state.serve(drawn, route, rate, seed=window)
        for asked in range(int(WINDOW_S / every_s)):
            now_s = window * WINDOW_S + asked * every_s
            if asked:
                state.step(now_s, wanted)
            seen = rate if every_s == WINDOW_S else float(rng.poisson(rate * every_s)) / every_s
            wanted = scaler.desired_replicas(state.report(now_s, seen, outcome))
    return state


def elasticity() -> Iterator[Row]:
    """Dollars of a day at the peak a fleet just carries; every scaler with the smallest reserve that keeps 95%."""
    scalers: dict[str, tuple[Sequence[float], Callable[[float], MakeScaler]]] = {
        "cheapest set": (
            (-0.2, -0.1, 0.0, 0.1, 0.2),
            lambda spare: lambda pools: CheapestSet(pools, spare_fraction=spare),
        ),
        "even": ((-0.2, -0.1, 0.0, 0.1, 0.2), lambda spare: lambda pools: EvenScaling(pools, spare_fraction=spare)),
        "HPA": ((25.0, 20.0, 17.0, 15.0), lambda goal: lambda pools: HorizontalPodAutoscaler(pools, target=goal)),
        "variant autoscaler": (
            (0.8, 0.3, 0.2, 0.15, 0.12),
            lambda kv: lambda pools: VariantAutoscaler(pools, kv_threshold=kv),
        ),
    }
    pairs = (
        ("cheapest set", "penstock"),
        ("cheapest set", "least-request"),
        ("even", "penstock"),
        ("even", "least-request"),
        ("HPA", "least-request"),
        ("variant autoscaler", "llm-d"),
    )
    for name in ("H100 + MI300X", "H200 + MI325X"):
        drawn, pools = load("conversation", 1), fleet(name)
        alone = parts(name, load("conversation", 0), 1)
        scaled = [
            ScaledPool(
                name=pool.name,
                requests_per_s=rate / pool.replicas,
                usd_per_hour=pool.usd_per_hour or 0.0,
                max_replicas=pool.replicas,
                floor=1 if place == 0 else 0,
                load_s=LOAD_S,
            )
            for place, (pool, rate) in enumerate(zip(pools, alone, strict=True))
        ]
        for every_s, (scaler, policy) in product(ASKED_EVERY_S, pairs):
            if every_s < WINDOW_S and scaler not in BY_RATE:
                continue
            settings, make = scalers[scaler]
            for setting in settings:
                done = day(pools, drawn, make(setting)(scaled), routing(policy), 0.85 * sum(alone), every_s)
                kept = done.met / max(1, done.asked)
                row: Row = {
                    "fleet": name,
                    "asked_every_s": every_s,
                    "scaler": scaler,
                    "router": policy,
                    "setting": setting,
                }
                yield row | {"usd": done.usd, "met": kept}
                if kept >= 0.95:
                    break
