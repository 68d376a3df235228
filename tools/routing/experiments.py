"""What is measured? Highest rates, wrong coefficients, faults, pickers, parameters and speed, each as table rows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from time import process_time
from typing import TYPE_CHECKING, cast

import numpy as np

from penstock.compiled.marks import interpreted
from penstock.routing.baselines.all_policies import policy_of
from penstock.routing.endpoint_updates import refresh
from penstock.routing.harm import pick
from penstock.routing.records import default_parameters, new_endpoints, new_request
from penstock.simulation.capacity import RateSearch, highest_rate, trial
from penstock.simulation.outcome import Outcome
from penstock.simulation.replica import ReplicaPool
from penstock.simulation.run import simulate
from penstock.simulation.run_options import Fault, Options, RouterVisibility, Routing
from routing.cases import FLEETS, LOADS, Load, fleet, load

if TYPE_CHECKING:
    from penstock.workload import Workload

Row = dict[str, object]
PEERS: Mapping[str, tuple[Mapping[int, float], ...]] = {
    "round-robin": ({},),
    "weighted-round-robin": ({},),
    "least-request": ({},),
    "in-flight-per-capacity": ({},),
    "llm-d-scorers": ({}, {0: 1.0, 1: 8.0, 2: 3.0}, {0: 8.0, 1: 1.0, 2: 3.0}),
    "llm-d": ({}, {2: 1.0}, {2: 0.25}),
    "dynamo": ({}, {0: 0.25}, {0: 4.0}),
    "sglang-cache-aware": ({}, {0: 4.0, 1: 1.01}, {0: 8.0, 1: 1.05}),
}
"""Each peer untuned, then as its operator might set it."""
REQUESTS, SEEDS, TRIES = 8000, (11, 12), 8


def routing(policy: str, tuning: Mapping[int, float] | None = None, **more: object) -> Routing:
    """Route by a policy with what its operator set."""
    parameters = default_parameters()
    for place, value in (tuning or {}).items():
        parameters["tuning"][0, place] = value
    return Routing(pick=policy_of(policy).pick, parameters=parameters, **more)  # type: ignore[arg-type]


def search(
    pools: Sequence[ReplicaPool], asked: Load, route: Routing, begin_per_s: float, seed: int, requests: int = REQUESTS
) -> float:
    """Return the highest rate at which every class keeps 95%."""
    wanted = RateSearch(
        workload=cast("Workload", asked),
        classes=asked.classes,
        seed=seed,
        requests=requests,
        options=Options(routing=route),
        tolerance=0.01,
    )
    best, _ = highest_rate(pools, wanted, begin_per_s=begin_per_s)
    return 0.0 if best is None else best.rate_per_s


def parts(name: str, asked: Load, seed: int) -> list[float]:
    """Return what each pool sustains alone, by the better of our policy and the fewest requests."""
    begin, found = 20.0, []
    for one in fleet(name):
        rates = [search([one], asked, routing(policy), begin, seed) for policy in ("penstock", "least-request")]
        found.append(max(rates))
        begin = max(1.0, found[-1])
    return found


def highest(half: int = 1) -> Iterator[Row]:
    """Compare every policy's highest rate with the sum of what the pools sustain alone."""
    for seed, asked, name in product(SEEDS, LOADS, FLEETS):
        drawn = load(asked, half)
        alone = parts(name, drawn, seed)
        row: Row = {"fleet": name, "load": asked, "seed": seed, "parts": alone}
        row["penstock"] = search(fleet(name), drawn, routing("penstock"), sum(alone), seed) / sum(alone)
        for policy, settings in PEERS.items():
            weighted = policy in {"weighted-round-robin", "in-flight-per-capacity"}
            tunings = [dict(enumerate(alone))] if weighted else settings
            rates = [search(fleet(name), drawn, routing(policy, one), sum(alone), seed) for one in tunings]
            row[policy], row[f"{policy} tuned"] = rates[0] / sum(alone), max(rates) / sum(alone)
        yield row


def wrong(loads: Sequence[str] = ("conversation", "long mix")) -> Iterator[Row]:
    """Believe one vendor to be faster or slower than it is: after learning, in the first minute, and never learning."""
    for name in tuple(FLEETS)[:3]:
        for asked in loads:
            drawn, seed = load(asked, 1), SEEDS[0]
            right = search(fleet(name), drawn, routing("penstock"), 30.0, seed)
            minute = int(60 * right)
            begin = search(fleet(name), drawn, routing("penstock"), right, seed, minute)
            row: Row = {"fleet": name, "load": asked, "right": right, "right, first minute": begin}
            for factor in (0.75, 0.9, 1.1, 1.25):
                learning = routing("penstock", believed={"amd": factor})
                row[f"believed x{factor}, learning"] = search(fleet(name), drawn, learning, right, seed) / right
                at_first = search(fleet(name), drawn, learning, begin, seed, minute)
                row[f"believed x{factor}, first minute"] = at_first / begin
                fixed = default_parameters()
                fixed["correction_requests"] = 1e12
                stubborn = replace(learning, parameters=fixed)
                row[f"believed x{factor}, not learning"] = search(fleet(name), drawn, stubborn, right, seed) / right
            untuned = [search(fleet(name), drawn, routing(peer), begin, seed, minute) for peer in PEERS]
            row["best untuned peer, first minute"] = max(untuned) / begin
            yield row


def _run(name: str, drawn: Load, route: Routing, rate: float, requests: int = 20_000) -> Outcome:
    asked = RateSearch(
        workload=cast("Workload", drawn), classes=drawn.classes, seed=SEEDS[0], options=Options(routing=route)
    )
    found = trial(fleet(name), asked, rate, requests=requests).outcome
    if found is None:
        raise ValueError("a trial that was run has an outcome")
    return found


def robust() -> Iterator[Row]:
    """Break one thing at a time at 80% of the highest rate."""
    cases: Mapping[str, Mapping[str, object]] = {
        "fresh": {},
        "reports 1 s old": {"sight": RouterVisibility(report_interval_s=1.0, report_delay_s=0.5)},
        "5% of reports lost": {"sight": RouterVisibility(report_loss=0.05)},
        "one endpoint 3x slow": {"faults": (Fault(kind="slow", replica=0, at_s=30.0, factor=3.0),)},
        "one endpoint dead": {"faults": (Fault(kind="dies", replica=0, at_s=30.0),)},
        "2 pickers": {"pickers": 2},
        "4 pickers": {"pickers": 4},
        "8 pickers": {"pickers": 8},
    }
    for name in tuple(FLEETS)[:3]:
        for asked in ("conversation", "long mix"):
            drawn = load(asked, 1)
            rate = 0.8 * search(fleet(name), drawn, routing("penstock"), 30.0, SEEDS[0])
            for case, more in cases.items():
                outcome = _run(name, drawn, routing("penstock", None, **more), rate)
                yield {
                    "fleet": name,
                    "load": asked,
                    "case": case,
                    "goodput": outcome.goodput_tokens_per_s,
                    "met": min(item.met_fraction or 0.0 for item in outcome.classes),
                    "p99_ttft_s": outcome.classes[0].ttft.quantile_s(0.99),
                    "preemptions": outcome.preemptions,
                }


def flatness() -> Iterator[Row]:
    """Move one parameter at a time; chosen and shown on the half of the traces that is not reported."""
    moved: Mapping[str, Sequence[float]] = {
        "doubt_fraction": (1 / 32, 1 / 16, 1 / 8, 1 / 4),
        "full_tokens_fraction": (0.8, 0.9, 0.97),
        "load_s": (3.0, 10.0, 30.0),
        "correction_requests": (20.0, 50.0, 200.0),
    }
    for name in tuple(FLEETS)[:2]:
        for asked in ("conversation", "long mix"):
            drawn = load(asked, 0)
            begin = search(fleet(name), drawn, routing("penstock"), 30.0, 1)
            for parameter, values in moved.items():
                for value in values:
                    parameters = default_parameters()
                    parameters[parameter] = value
                    route = replace(routing("penstock"), parameters=parameters)
                    rate = search(fleet(name), drawn, route, begin, 1)
                    yield {"fleet": name, "load": asked, "parameter": parameter, "value": value, "rate": rate / begin}


def speed() -> Iterator[Row]:
    """Requests a second with 100 endpoints, and microseconds of one pick: processor time, the best of several runs."""
    one = fleet("H100 + MI300X")
    hundred = [replace(pool, replicas=50) for pool in one]
    drawn = load("conversation", 1)
    (block,) = drawn.blocks(seed=1, requests=100_000, rate_per_s=350.0)

    def python(request: np.ndarray, endpoints: np.ndarray, _hits: np.ndarray, _parameters: np.ndarray) -> int:
        return int((endpoints["in_flight"] + (request["turn"][0] % 7) * 0).argmin())

    for name, route, count in (
        ("penstock", routing("penstock"), len(block)),
        ("least-request", routing("least-request"), len(block)),
        ("a Python policy", Routing(pick=python), 30_000),
    ):
        options = Options(routing=route)
        simulate(hundred, [block.rows(0, 500)], classes=drawn.classes, options=options)
        best = np.inf
        for _ in range(TRIES):
            begin = process_time()
            simulate(hundred, [block.rows(0, count)], classes=drawn.classes, options=options)
            best = min(best, process_time() - begin)
        yield {"what": f"{name}, 100 endpoints", "requests_per_s": count / best}
    yield from _picks()


def _picks() -> Iterator[Row]:
    request, parameters = new_request(), default_parameters()
    request["input_tokens"], request["expected_output_tokens"] = 1000, 200
    request["ttft_s"], request["tpot_s"], parameters["class_tpot_s"] = 2.0, 0.06, 0.06
    for count in (100, 1000):
        endpoints, hits = new_endpoints(count), np.zeros(count, np.int64)
        endpoints["step_s"], endpoints["prompt_token_s"], endpoints["in_flight"] = 0.02, 1e-4, 20
        endpoints["residents"][:, 0] = 20
        for index in range(count):
            refresh(endpoints, index, 0.0, parameters)
        for name, function in (("compiled", pick), ("interpreted", interpreted(pick))):
            function(request, endpoints, hits, parameters)
            best = np.inf
            for _ in range(30):
                begin = process_time()
                for _ in range(100):
                    function(request, endpoints, hits, parameters)
                best = min(best, (process_time() - begin) / 100)
            yield {"what": f"one pick from Python, {name}, {count} endpoints", "microseconds": best * 1e6}
