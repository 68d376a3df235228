"""The fleet for a confidence is the cheapest of all fleets that are enough in that many draws."""

from dataclasses import replace
from itertools import product
from math import ceil, inf

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.planning.optimizer.cheapest_mix import cheapest
from penstock.planning.optimizer.problem import Demand, Offer, Problem, ReplicaKind
from penstock.planning.optimizer.serve_draws import LoadDraws

DRAWS = 20


@st.composite
def small_problems(draw: st.DrawFn) -> tuple[Problem, LoadDraws]:
    """One to three accelerators in instances of 1, 2 or 4 devices, one or two kinds of replicas on each, 20 draws."""
    parts = draw(st.integers(1, 3))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    offers, replicas, needs = [], [], {}
    demand = float(generator.uniform(2, 9))
    asked = np.exp(0.15 * generator.standard_normal(DRAWS))
    for number in range(parts):
        devices = int(generator.choice([1, 2, 4]))
        offers.append(
            Offer(
                accelerator=f"part{number}",
                vendor="amd" if number % 2 else "nvidia",
                site="site",
                devices=devices,
                node_watts=1000,
                rent_usd=(float(generator.uniform(0.8, 1.2)) * devices,),
            )
        )
        error = generator.standard_normal(DRAWS)
        for size in (1, devices) if devices > 1 else (1,):
            name = f"part{number} x{size}"
            rate = size * float(generator.uniform(0.8, 1.2))
            replicas.append(
                ReplicaKind(
                    id=name, accelerator=f"part{number}", workload="chat", devices=size, requests_per_s={0: rate}
                )
            )
            spread = float(generator.uniform(0.02, 0.4))
            needs[name, 0] = np.where(error < generator.uniform(-6, -1.2), inf, asked * np.exp(-spread * error))
    problem = Problem(
        periods=1,
        offers=tuple(offers),
        replicas=tuple(replicas),
        demands=(Demand(key=("chat", 0), requests_per_s=(demand,), tokens=1000),),
        vendor_usd={"amd": (draw(st.sampled_from([0.0, 0.3])),)},
        spare_nodes=draw(st.integers(0, 1)),
        utilisation_fraction=0.9,
    )
    return problem, LoadDraws(needs=needs, required=draw(st.sampled_from([10, 16, 18, 20])))


def by_brute_force(problem: Problem, draws: LoadDraws) -> float:
    """Return the lowest cost of all fleets, by trying every number of replicas."""
    most = []
    for kind in problem.replicas:
        finite = draws.needs[kind.id, 0][np.isfinite(draws.needs[kind.id, 0])]
        highest = max(1.0, float(finite.max(initial=1.0)))
        each = kind.requests_per_s[0] * problem.utilisation_fraction
        most.append(range(ceil(problem.demands[0].requests_per_s[0] * highest / each) + 1))
    tried = np.array(list(product(*most)))
    demand, best = problem.demands[0].requests_per_s[0], inf
    rates = np.array([kind.requests_per_s[0] * problem.utilisation_fraction for kind in problem.replicas])
    served = np.zeros(len(tried), int)
    for number in range(DRAWS):
        needs = np.array([draws.needs[kind.id, 0][number] for kind in problem.replicas])
        served += tried @ (rates / needs) >= demand - 1e-9
    enough = tried[(served >= draws.required) & (tried @ rates >= demand - 1e-9)]
    usd, vendors = np.zeros(len(enough)), dict[str, npt.NDArray[np.bool_]]()
    for offer in problem.offers:
        on = [n for n, kind in enumerate(problem.replicas) if kind.accelerator == offer.accelerator]
        taken = enough[:, on] @ np.array([problem.replicas[n].devices for n in on])
        nodes = np.ceil(taken / offer.devices) + np.where(taken > 0, problem.spare_nodes, 0)
        assert offer.rent_usd is not None
        usd += nodes * offer.rent_usd[0]
        vendors[offer.vendor] = vendors.get(offer.vendor, np.zeros(1, np.bool_)) | (taken > 0)
    for vendor, present in vendors.items():
        usd += np.where(present, problem.vendor_usd.get(vendor, (0.0,))[0], 0.0)
    return float(min(usd, default=best))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(asked=small_problems())
def test_the_program_finds_what_brute_force_finds(asked: tuple[Problem, LoadDraws]) -> None:
    problem, draws = asked
    found, best = cheapest(problem, draws=draws, gap_fraction=0.0, search_nodes=20_000), by_brute_force(problem, draws)
    if found is None:
        assert best == inf
        return
    assert found.cost_usd == pytest.approx(best, rel=1e-5)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(asked=small_problems())
def test_more_confidence_and_more_demand_never_cost_less(asked: tuple[Problem, LoadDraws]) -> None:
    problem, draws = asked
    more = replace(
        problem,
        demands=tuple(replace(entry, requests_per_s=(entry.requests_per_s[0] * 1.2,)) for entry in problem.demands),
    )
    surer = replace(draws, required=min(DRAWS, draws.required + 3))

    def usd(problem: Problem, draws: LoadDraws) -> float:
        found = cheapest(problem, draws=draws, gap_fraction=0.0, search_nodes=20_000)
        return inf if found is None else found.cost_usd

    base = usd(problem, draws)
    assert usd(problem, surer) >= base * (1 - 1e-6)
    assert usd(more, draws) >= base * (1 - 1e-6)
    fewer = replace(problem, offers=problem.offers[:1])
    assert usd(fewer, draws) >= base * (1 - 1e-6)
