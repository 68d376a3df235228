"""The fleet and the loads of tools/check_live_overload.py: one class, or two, on one H100 pair and one MI300X."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from bench_fleet import FLEET

from penstock.api.arguments.fleet_argument import fleet_choice
from penstock.api.simulate_fleet import replica_pools
from penstock.fleet.pools import Fleet, Route
from penstock.routing.harm import pick
from penstock.simulation.capacity import RateSearch, highest_rate
from penstock.simulation.run_options import Options, RouterVisibility, Routing
from penstock.workload import Empirical, Overload, Poisson, Slo, SloClass, Workload

CASES: Final = {
    "one class": ((1.0, 1024, 200, Slo(ttft_s=2.0, tpot_s=0.06)),),
    "two classes": (
        (0.7, 1024, 200, Slo(ttft_s=2.0, tpot_s=0.06)),
        (0.3, 4096, 120, Slo(ttft_s=4.0, tpot_s=0.08)),
    ),
}
"""Of each class: its share of the requests, prompt and answer tokens, and SLO."""
SIGHT: Final = RouterVisibility(report_interval_s=0.1)
"""The gateway asks endpoints for a report that often, and decides about held requests twice as often."""


def fleet_of(case: str, overload: Overload, rate_per_s: float) -> Fleet:
    """Return the fleet with the routes of a case."""
    described = fleet_choice(FLEET)
    routes = tuple(
        replace(
            described.routes[0],
            workload=f"class-{number}",
            input_tokens=inputs,
            output_tokens=outputs,
            slo=slo,
            overload=overload,
            peak_requests_per_s=share * rate_per_s,
        )
        for number, (share, inputs, outputs, slo) in enumerate(CASES[case])
    )
    return replace(described, routes=routes)


def classes_of(routes: Sequence[Route]) -> list[SloClass]:
    """Return one class per route."""
    total = sum(one.peak_requests_per_s for one in routes)
    return [
        SloClass(
            name=one.workload,
            share_fraction=one.peak_requests_per_s / total,
            slo=one.slo,
            overload=one.overload,
        )
        for one in routes
    ]


def workload_of(case: str) -> Workload:
    """Return the load of a case."""
    counts = [round(1000 * share) for share, *_ in CASES[case]]
    columns = [np.repeat([one[place] for one in CASES[case]], counts).astype(np.int32) for place in (1, 2)]
    kinds = np.repeat(np.arange(len(counts)), counts).astype(np.uint8)
    lengths = Empirical(input_tokens=columns[0], output_tokens=columns[1], slo_class=kinds)
    classes = tuple(classes_of(fleet_of(case, "serve", 1.0).routes))
    return Workload(name=case, arrivals=Poisson(), lengths=lengths, classes=classes)


def capacity_of(case: str) -> float:
    """Return the highest rate at which our policy keeps 95% of every class while it serves all."""
    fleet = fleet_of(case, "serve", 1.0)
    load = workload_of(case)
    options = Options(routing=Routing(pick=pick))
    asked = RateSearch(workload=load, classes=load.classes, seed=11, requests=4000, options=options, tolerance=0.01)
    best, _ = highest_rate(replica_pools(fleet), asked, begin_per_s=8.0)
    if best is None:
        sys.exit(f"{case}: no rate keeps 95%")
    return best.rate_per_s
