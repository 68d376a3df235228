"""What does a policy keep beyond capacity? Every cell is one fleet, one load and one multiple of its capacity."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np

from penstock.simulation.outcome import Outcome
from penstock.simulation.run import simulate
from penstock.simulation.run_options import Options, RouterVisibility, Routing
from penstock.workload import Overload
from routing.cases import FLEETS, LOADS, fleet, load
from routing.experiments import Row, parts, routing, search

OURS: tuple[Overload, ...] = ("serve", "refuse", "hold")
PEERS: Mapping[str, tuple[Mapping[int, float], ...]] = {
    "round-robin": ({},),
    "least-request": ({},),
    "in-flight-per-capacity": ({},),
    "llm-d": ({}, {2: 1.0}),
    "dynamo": ({}, {0: 4.0}),
}
AT, SEEDS, HALF, REQUESTS = (0.5, 0.85, 1.0, 1.1, 1.3, 1.5), (13, 14), 1, 8000
ROBUST: Mapping[str, Mapping[str, object]] = {
    "as it is": {},
    "AMD believed x0.75": {"believed": {"amd": 0.75}},
    "AMD believed x1.25": {"believed": {"amd": 1.25}},
    "reports 1 s old": {"sight": RouterVisibility(report_delay_s=1.0)},
    "4 pickers": {"pickers": 4},
    "refused clients return 5 times": {"max_tries": 5},
    "clients leave": {"patience": 2.0},
    "clients leave, and return 5 times": {"patience": 2.0, "max_tries": 5},
}
"""What differs from a plain run. `patience` is in TTFT limits of the class; the rest are fields of `Routing`."""


def capacities(kept: Path) -> dict[str, list[float]]:
    """Return the rate at which our policy keeps 95% of every class, and each pool's alone, found once (seed 11)."""
    if kept.exists():
        found: dict[str, list[float]] = json.loads(kept.read_text(encoding="utf-8"))
        return found
    found = {}
    for name, asked in product(FLEETS, LOADS):
        drawn = load(asked, HALF)
        alone = parts(name, drawn, 11)
        rate = search(fleet(name), drawn, routing("penstock"), max(1.0, sum(alone)), 11)
        found[f"{name}, {asked}"] = [rate, *alone]
        kept.write_text(json.dumps(found), encoding="utf-8")
    return found


def cell(
    name: str,
    asked: str,
    rate_per_s: float,
    seed: int,
    route: Routing,
    overload: Overload = "serve",
    patience: float = np.inf,
) -> Row:
    """Simulate one cell. Clients wait for `patience` TTFT limits of their class before they leave."""
    drawn = load(asked, HALF)
    classes = [replace(item, overload=overload) for item in drawn.classes]
    blocks = drawn.blocks(seed=seed, requests=REQUESTS, rate_per_s=rate_per_s)
    patience_s = tuple(patience * (item.slo.ttft_s or np.inf if item.slo is not None else np.inf) for item in classes)
    options = Options(routing=route, keep_requests=True, patience_s=patience_s)
    outcome = simulate(fleet(name), blocks, classes=classes, options=options)
    return {"fleet": name, "load": asked, "seed": seed, **figures(outcome)}


def figures(outcome: Outcome) -> Row:
    """Return what is compared: the worse class, good tokens over the span of the arrivals, and who waits how long."""
    served = outcome.served
    if served is None:
        raise ValueError("the requests of the run were not kept")
    limits_s = np.array([item.slo.ttft_s if item.slo is not None else np.inf for item in outcome.classes], float)
    over = served.ttft_s / limits_s[np.minimum(served.slo_class, len(limits_s) - 1)]
    good = sum(item.good_tokens for item in outcome.classes)
    return {
        "kept": [round(item.met_fraction or 0.0, 4) for item in outcome.classes],
        "good_tokens": good,
        "good_per_arrival_s": round(good / outcome.arrival_span_s, 1),
        "own_tokens_per_s": round(outcome.output_tokens_per_s, 1),
        "span_s": round(outcome.makespan_s, 1),
        "ttft_p99_of_slo": round(float(np.quantile(over[np.isfinite(over)], 0.99)), 2),
        "refused": outcome.refused,
        "held": outcome.held,
        "left": outcome.left,
        "returns": outcome.returns,
    }


def curves(kept: Path, at: Sequence[float] = AT, seeds: Sequence[int] = SEEDS) -> Iterator[Row]:
    """Compare our policy, each way to treat overload, with every peer, untuned and tuned."""
    for key, (most, *alone) in capacities(kept).items():
        name, _, asked = key.partition(", ")
        for times, seed in product(at, seeds):
            about: Row = {"at": times}
            for overload in OURS:
                ours = cell(name, asked, times * most, seed, routing("penstock"), overload)
                yield {**about, "policy": f"penstock, {overload}", **ours}
            for policy, tunings in PEERS.items():
                for tuning in tunings:
                    told = dict(enumerate(alone)) if policy == "in-flight-per-capacity" else tuning
                    yield {**about, "policy": policy, **cell(name, asked, times * most, seed, routing(policy, told))}


def robust(kept: Path, seeds: Sequence[int] = SEEDS) -> Iterator[Row]:
    """What our policy keeps at 130% with wrong coefficients, old reports, several pickers and clients that return."""
    for key, (most, *_) in capacities(kept).items():
        name, _, asked = key.partition(", ")
        if asked not in ("conversation", "two classes") or name not in ("H100 + MI300X", "H200 + MI325X"):
            continue
        for (case, told), overload, seed in product(ROBUST.items(), OURS, seeds):
            route, patience = routing("penstock"), float(str(told.get("patience", np.inf)))
            stated = {field: value for field, value in told.items() if field != "patience"}
            route = replace(route, **stated)  # type: ignore[arg-type]
            found = cell(name, asked, 1.3 * most, seed, route, overload, patience)
            yield {"case": case, "policy": overload, **found}
