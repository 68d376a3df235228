"""Does the gateway keep, refuse and hold beyond capacity what its simulation said? Emulated endpoints, real Envoy.

`penstock emulate` serves one H100 pair and one MI300X in real time, behind `penstock route`, whose policy runs inside
Envoy. The same arrivals and lengths are streamed through it and simulated, at 130% of the simulated capacity.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from bench_fleet import CONTROL, FIRST_PORT, LISTEN, METRICS, started
from fleet_slices import TimedRequest
from live_cases import CASES, SIGHT, capacity_of, classes_of, fleet_of, workload_of
from timed_client import TimedAnswer, send_at

from penstock.api.emulate import emulated_fleet
from penstock.api.simulate_fleet import replica_pools
from penstock.api.top import read_gateway
from penstock.fleet.fleet_file import write_fleet
from penstock.fleet.pools import Fleet
from penstock.routing.harm import pick
from penstock.simulation.run import simulate
from penstock.simulation.run_options import Options, Routing
from penstock.workload import Overload, Requests

OVERLOADS: Final[tuple[Overload, ...]] = ("serve", "refuse", "hold")
TIMES: Final = 1.3
_DRAWS, _MOVED_S = 21, 0.01
"""How often the simulation is run, and by how much arrivals are moved at most, so that ties fall otherwise."""
_LATE_S: Final = 0.1
"""A run in which emulator or client were later than this is repeated."""


_TRIES: Final = 3
_COLUMNS: Final = {
    "kept": "kept",
    "worse class": "worst",
    "refused": "refused",
    "held": "held",
    "good tokens/s": "good_tokens_per_s",
    "to the H100s": "to_first",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of the requests. Shares are of all requests."""

    kept: float
    refused: float
    held: float
    good_tokens_per_s: float
    worst: float
    """Share within the SLO of the worse class."""
    to_first: float
    """Share of the served requests that the fleet's first endpoint got."""
    ttft_s: tuple[float, float]
    """Median and P90 over served requests."""
    tpot_s: tuple[float, float]
    late_s: tuple[float, float] = (0.0, 0.0)
    """How late emulator and client were at worst."""
    failed: int = 0


def judged(fleet: Fleet, requests: Requests, seen: np.ndarray, span_s: float, **more: object) -> Result:
    """Compare times to first and per token with the SLOs. The columns of `seen` are TTFT, TPOT and endpoint."""
    ttft_s, tpot_s, endpoint = seen
    met, served = np.zeros(len(requests), bool), np.isfinite(ttft_s)
    for kind, route in enumerate(fleet.routes):
        own = requests.slo_class == kind
        met[own] = route.slo.met(ttft_s=ttft_s[own], tpot_s=tpot_s[own], e2e_s=ttft_s[own])
    worst = min(float(met[requests.slo_class == kind].mean()) for kind in range(len(fleet.routes)))
    return Result(
        kept=float(met.mean()),
        worst=worst,
        good_tokens_per_s=float(requests.output_tokens[met].sum() / span_s),
        to_first=float(np.mean(endpoint[served] == 0)),
        ttft_s=tuple(np.quantile(ttft_s[served], (0.5, 0.9)).round(3).tolist()),
        tpot_s=tuple(np.quantile(tpot_s[served], (0.5, 0.9)).round(4).tolist()),
        **more,  # type: ignore[arg-type]
    )


def simulated(fleet: Fleet, requests: Requests, seed: int) -> Result:
    """Simulate the requests, moved a little, with reports at other moments."""
    random = np.random.default_rng(seed)
    moved_s = requests.arrival_s + random.uniform(0.0, 0.1) + random.uniform(0.0, _MOVED_S, len(requests))
    drawn = requests.at(np.sort(moved_s))
    options = Options(routing=Routing(pick=pick, sight=SIGHT), keep_requests=True)
    outcome = simulate(replica_pools(fleet), [drawn], classes=classes_of(fleet.routes), options=options)
    served = outcome.served
    if served is None:
        raise ValueError("the requests of the run were not kept")
    with np.errstate(invalid="ignore"):
        tpot_s = (served.e2e_s - served.ttft_s) / np.maximum(1, served.output_tokens - 1)
    return judged(
        fleet,
        drawn,
        np.array([served.ttft_s, tpot_s, served.picked]),
        outcome.makespan_s,
        refused=outcome.refused / len(drawn),
        held=outcome.held / len(drawn),
    )


async def _send_all(requests: Sequence[TimedRequest], model: str) -> list[TimedAnswer]:
    bodies = [one.body(model) for one in requests]
    begun_s = time.perf_counter() + 1.0
    return await asyncio.gather(
        *(send_at(LISTEN, body, begun_s, one.arrival_s) for one, body in zip(requests, bodies, strict=True))
    )


def live(fleet: Fleet, requests: Requests) -> Result:
    """Send the requests through Envoy to fresh endpoints."""
    running = emulated_fleet(fleet, port=FIRST_PORT)
    columns = (requests.arrival_s.tolist(), requests.input_tokens.tolist(), requests.output_tokens.tolist())
    timed = [
        TimedRequest(
            arrival_s=at,
            input_tokens=inputs,
            output_tokens=outputs,
            blocks=tuple(range(1000 * number, 1000 * number + inputs // 512 + 1)),  # nothing is shared
        )
        for number, (at, inputs, outputs) in enumerate(zip(*columns, strict=True))
    ]
    with tempfile.TemporaryDirectory(prefix="penstock-live-") as name:
        path = Path(name) / "fleet.yaml"
        path.write_text(write_fleet(running), encoding="utf-8")
        penstock, listen = [sys.executable, "-m", "penstock"], f"127.0.0.1:{LISTEN}"
        emulate = [*penstock, "emulate", str(path), "--control", f"127.0.0.1:{CONTROL}"]
        route = [*penstock, "route", str(path), "--listen", listen, "--metrics", f"127.0.0.1:{METRICS}"]
        with started(emulate, f"http://127.0.0.1:{CONTROL}/"), started(route, f"http://{listen}/health"):
            answers = asyncio.run(_send_all(timed, running.pools[0].model))
            shown = urllib.request.urlopen(f"http://127.0.0.1:{CONTROL}/", timeout=5).read()
            page = read_gateway(f"127.0.0.1:{METRICS}")
    told = json.loads(shown)
    held = sum(picker["held_requests_total"] for picker in page.pickers.values())
    ttft_s, tpot_s = (np.array([getattr(one, field) for one in answers]) for field in ("ttft_s", "tpot_s"))
    result = judged(
        fleet,
        requests,
        np.array([ttft_s, tpot_s, np.zeros(len(answers))]),
        max(one.end_s for one in answers) - float(requests.arrival_s[0]),
        refused=sum(one.status == 429 for one in answers) / len(answers),
        held=held / len(answers),
        late_s=(max(entry["latest_s"] for entry in told), max(one.late_s for one in answers)),
        failed=sum(
            one.status not in {200, 429} or (one.status == 200 and one.tokens != wanted)
            for one, wanted in zip(answers, columns[2], strict=True)
        ),
    )
    return replace(result, to_first=told[0]["requests"] / max(1, sum(entry["requests"] for entry in told)))


def line(case: str, overload: Overload, seen: Result, said: Sequence[Result]) -> str:
    """Write a row of the table: of each figure the live value, and the simulated median and range."""
    cells = [case, overload]
    for name in _COLUMNS.values():
        form = ",.0f" if name.endswith("_per_s") else ".1%"
        values = sorted(getattr(one, name) for one in said)
        low, median, high = values[0], values[len(values) // 2], values[-1]
        cells.append(f"{getattr(seen, name):{form}}: {median:{form}} ({low:{form}} to {high:{form}})")
    return "| " + " | ".join([*cells, f"{1000 * seen.late_s[0]:.0f}", str(seen.failed)]) + " |"


def measured(fleet: Fleet, requests: Requests) -> Result:
    """Return a live run that was not late. A late run is repeated."""
    for _ in range(_TRIES):
        seen = live(fleet, requests)
        print(f"live {asdict(seen)}", file=sys.stderr)
        if max(seen.late_s) <= _LATE_S:
            break
    return seen


def main() -> None:
    """Measure and print one row per case and mode."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=list(CASES), help="only this one")
    parser.add_argument("--overload", choices=OVERLOADS, action="append", help="only these")
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1, help="of the arrivals")
    parser.add_argument(
        "--rate", type=float, help="requests a second, instead of 130%% of the capacity that is searched"
    )
    parser.add_argument("--repeat", type=int, default=2)
    asked = parser.parse_args()
    print("| " + " | ".join(["case", "overload", *_COLUMNS, "emulator late, ms", "failed"]) + " |")
    print("|---|---|" + "---|" * len(_COLUMNS) + "---|---|")
    for case in [asked.case] if asked.case else CASES:
        rate = asked.rate or TIMES * capacity_of(case)
        print(f"{case}: {rate:.2f} requests/s", file=sys.stderr)
        drawn = next(iter(workload_of(case).blocks(seed=asked.seed, requests=asked.requests, rate_per_s=rate)))
        for overload in asked.overload or OVERLOADS:
            fleet = fleet_of(case, overload, rate)
            said = sorted((simulated(fleet, drawn, seed) for seed in range(_DRAWS)), key=lambda one: one.kept)
            print(f"simulated {asdict(said[_DRAWS // 2])}", file=sys.stderr)
            for _ in range(asked.repeat):
                print(line(case, overload, measured(fleet, drawn), said), flush=True)


if __name__ == "__main__":
    main()
