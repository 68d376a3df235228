"""Does a fleet behind a real Envoy do what its simulation said? Slices of public traces, policy by policy, both ways.

Emulated endpoints of two vendors answer on a real clock; Envoy routes by itself or as a picker says; the simulator is
given the same slice. `--tables` keeps what came out as tools/results/gateway-fleet.csv.
"""

import argparse
import asyncio
import contextlib
import json
import math
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import uvloop
from fleet_slices import SLICES, Slice, TimedRequest, requests_of
from result_tables import keep
from timed_client import send_at

import penstock
from penstock.api.arguments.fleet_argument import fleet_choice
from penstock.api.emulate import emulated_fleet, emulated_replicas
from penstock.api.route import routed_fleet
from penstock.emulator.emulator_server import emulate
from penstock.fleet.fleet_file import write_fleet
from penstock.gateway.envoy.envoy_binary import envoy_program
from penstock.gateway.envoy.envoy_config import EnvoySettings
from penstock.gateway.inside_envoy.module_library import module_paths
from penstock.gateway.state.routed_fleet import RoutedFleet
from penstock.gateway.state.timeouts import SILENCE_S
from penstock.gateway.supervisor import Supervisor
from penstock.routing.baselines.peer_policies import weight_of
from penstock.routing.records import default_parameters
from penstock.simulation.replica import Replica

REPOSITORY: Final = Path(__file__).resolve().parent.parent
FLEET: Final = REPOSITORY / "examples" / "fleets" / "chat-70b-h100-mi300x.yaml"
POLICIES: Final = ("penstock", "in-flight-per-capacity", "weighted-round-robin", "least-request", "round-robin")
LISTEN, CONTROL, METRICS, FIRST_PORT = 18480, 18499, 18498, 18400
_SECONDS: Final = (
    "step_s",
    "sequence_s",
    "context_token_s",
    "prompt_step_s",
    "prompt_token_s",
    "prompt_pair_s",
    "expert_s",
    "request_s",
)
"""Of an endpoint's record, what follows from its silicon."""
_HTTP: Final = "type.googleapis.com/envoy.extensions.filters"
_DRAWS, _MOVED_S = 21, 0.05
"""How often the simulation is run, and by how much arrivals are moved at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedSetups:
    """What became of a slice."""

    met_fraction: float
    goodput_per_s: float
    """Output tokens a second of requests that kept their promise."""
    usd_per_good_mtok: float
    makespan_s: float
    """Until the last answer ended."""
    first_share: float = 0.0
    """Of the requests, those the fleet's first endpoint was sent."""
    least_per_s: float = 0.0
    most_per_s: float = 0.0
    """Of several runs of the simulation, the least and the most good tokens a second."""
    failed: int = 0
    late_s: float = 0.0
    """How late the emulator's clock was at worst."""


def simulated(
    fleet: Path, requests: Sequence[TimedRequest], folder: Path, policies: Sequence[str]
) -> dict[str, ObservedSetups]:
    """Ask the simulator, which is given the same requests and reports as often as the scraper looks.

    No clock is so exact that every request comes at its very time: it is asked again and again with arrivals moved by
    a little, and the run in the middle is what it says. How far apart the runs are is what one run can say at most.
    """
    drawn: dict[str, list[ObservedSetups]] = {policy: [] for policy in policies}
    for seed in range(_DRAWS):
        for policy, seen in _simulated_once(fleet, requests, folder, policies, seed).items():
            drawn[policy].append(seen)
    said = {}
    for policy, runs in drawn.items():
        runs.sort(key=lambda run: run.goodput_per_s)
        said[policy] = replace(runs[_DRAWS // 2], least_per_s=runs[0].goodput_per_s, most_per_s=runs[-1].goodput_per_s)
    return said


def _simulated_once(
    fleet: Path, requests: Sequence[TimedRequest], folder: Path, policies: Sequence[str], seed: int
) -> dict[str, ObservedSetups]:
    trace, moves_s = folder / "slice.jsonl", np.random.default_rng(seed).uniform(0.0, _MOVED_S, len(requests))
    lines = [
        {
            "timestamp": round(1000 * (one.arrival_s + move_s)),
            "input_length": one.input_tokens,
            "output_length": one.output_tokens,
            "hash_ids": one.blocks,
        }
        for one, move_s in zip(requests, moves_s, strict=True)
    ]
    lines.sort(key=lambda line: line["timestamp"])
    trace.write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    names = ",".join(policies)
    answer = penstock.simulate_fleet(str(fleet), trace=str(trace), policy=names, reports="100ms", seed=seed)
    return {
        run.policy.name: ObservedSetups(
            met_fraction=run.worst_met_fraction,
            goodput_per_s=run.outcome.goodput_tokens_per_s,
            usd_per_good_mtok=run.usd_per_good_mtok or float("inf"),
            makespan_s=run.outcome.makespan_s,
            first_share=float(np.mean(run.outcome.served.replica == 0)) if run.outcome.served is not None else 0.0,
        )
        for run in answer.runs
    }


async def replayed(requests: Sequence[TimedRequest], model: str, chosen: Slice, usd_per_hour: float) -> ObservedSetups:
    """Send every request at its time, and measure as the simulator does."""
    slow, bodies = chosen.slow, [one.body(model) for one in requests]
    begun_s = time.perf_counter() + 1.0
    seen = await asyncio.gather(
        *(send_at(LISTEN, body, begun_s, slow * one.arrival_s) for one, body in zip(requests, bodies, strict=True))
    )
    makespan_s = (time.perf_counter() - begun_s) / slow
    whole = [one.tokens == request.output_tokens for one, request in zip(seen, requests, strict=True)]
    ttft_s, tpot_s = (np.where(whole, [getattr(one, of) for one in seen], np.inf) / slow for of in ("ttft_s", "tpot_s"))
    met = chosen.slo.met(ttft_s=ttft_s, tpot_s=tpot_s, e2e_s=ttft_s)
    good = [one.tokens for kept, one in zip(met, seen, strict=True) if kept]
    return ObservedSetups(
        met_fraction=len(good) / len(seen),
        goodput_per_s=sum(good) / makespan_s,
        usd_per_good_mtok=usd_per_hour * makespan_s / 3600 / max(1, sum(good)) * 1e6,
        makespan_s=makespan_s,
        failed=len(seen) - sum(whole),
    )


def envoy_alone(fleet: RoutedFleet, policy: str) -> dict[str, object]:
    """Write a configuration for Envoy that routes by one of its own policies, by the weights the simulation has."""
    weighted = policy in {"weighted-round-robin", "in-flight-per-capacity"}
    endpoints, rates = [], [weight_of(record, default_parameters()[0]) for record in fleet.endpoints]
    for address, weight in zip(fleet.addresses, [round(100 * rate / max(rates)) for rate in rates], strict=True):
        host, _, port = address.rpartition(":")
        place = {"socket_address": {"address": host, "port_value": int(port)}}
        endpoints.append({"endpoint": {"address": place}, "load_balancing_weight": weight if weighted else 1})
    by_turn = policy.endswith("round-robin")
    more = {} if by_turn else {"least_request_lb_config": {"choice_count": len(fleet.addresses)}}
    cluster = {
        "name": "endpoints",
        "type": "STATIC",
        "lb_policy": "ROUND_ROBIN" if by_turn else "LEAST_REQUEST",
        "per_connection_buffer_limit_bytes": 2**23,
        "load_assignment": {"cluster_name": "endpoints", "endpoints": [{"lb_endpoints": endpoints}]},
        **more,
    }
    route = {"match": {"prefix": "/"}, "route": {"cluster": "endpoints", "timeout": "0s"}}
    manager = {
        "@type": f"{_HTTP}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "clients",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [{"name": "router", "typed_config": {"@type": f"{_HTTP}.http.router.v3.Router"}}],
    }
    listener = {
        "name": "clients",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": LISTEN}},
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }
    return {"static_resources": {"listeners": [listener], "clusters": [cluster]}}


@contextlib.contextmanager
def started(command: Sequence[str], ready: str) -> Iterator[None]:
    """Run a program until it is no longer needed."""
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)  # noqa: S603 - own programs
    try:
        begun_s = time.monotonic()
        while True:
            try:
                urllib.request.urlopen(ready, timeout=1).read()  # noqa: S310 - loopback
                break
            except OSError:
                if process.poll() is not None or time.monotonic() - begun_s > 120:
                    sys.exit(f"{command[1:4]} does not answer")
                time.sleep(0.1)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def slowed_endpoints(running: Path, slow: float) -> None:
    """Serve the fleet's endpoints, so many times slower."""
    replicas = [
        replace(one, simulated=_slowed(one.simulated, slow)) for one in emulated_replicas(fleet_choice(running))
    ]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(emulate(replicas, control=f"127.0.0.1:{CONTROL}", speed=1.0, seed=0))


def _slowed(replica: Replica, slow: float) -> Replica:
    seconds: dict[str, Any] = {}
    for field in fields(replica.cost):
        value = getattr(replica.cost, field.name)
        if field.name.endswith("_s"):
            seconds[field.name] = tuple(slow * one for one in value) if isinstance(value, tuple) else slow * value
    return replace(replica, cost=replace(replica.cost, **seconds), request_s=slow * replica.request_s)


def slowed_gateway(running: Path, slow: float) -> None:
    """Route to endpoints that are so many times slower, and promised so many times as long."""
    fleet = routed_fleet(running)
    endpoints = fleet.endpoints.copy()
    for name in _SECONDS:
        endpoints[name] *= slow
    endpoints["usd_per_s"] /= slow
    classes = tuple(
        replace(one, ttft_s=slow * (one.ttft_s or math.inf), tpot_s=slow * (one.tpot_s or math.inf))
        for one in fleet.classes
    )
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        settings = EnvoySettings(
            listen=f"127.0.0.1:{LISTEN}",
            metrics=f"127.0.0.1:{METRICS}",
            folder=Path(folder) / "gateway",
            pickers=1,
            protocol="module",
            module=module_paths(envoy_program()),
            min_silence_s=slow * SILENCE_S,
        )
        Supervisor(settings, lambda _: replace(fleet, endpoints=endpoints, classes=classes), None, drain_s=0.0).run()


def routed(chosen: Slice, requests: Sequence[TimedRequest], fleet: Path, policy: str, folder: Path) -> ObservedSetups:
    """Replay a slice through Envoy and fresh endpoints."""
    running = folder / "running.yaml"
    described = emulated_fleet(fleet, port=FIRST_PORT)
    running.write_text(write_fleet(described), encoding="utf-8")
    usd_per_hour = sum((pool.usd_per_hour or 0.0) * pool.replicas for pool in described.pools)
    own = [sys.executable, __file__, "--running", str(running), "--slow", str(chosen.slow), "--serve"]
    with started([*own, "endpoints"], f"http://127.0.0.1:{CONTROL}/"):
        command = [*own, "gateway"]
        if policy != "penstock":
            config = folder / "envoy.json"
            config.write_text(json.dumps(envoy_alone(routed_fleet(running), policy)), encoding="utf-8")
            command = [envoy_program(), "-c", str(config), "--disable-hot-restart", "--log-level", "error"]
        with started(command, f"http://127.0.0.1:{LISTEN}/health"):
            seen = asyncio.run(replayed(requests, described.pools[0].model, chosen, usd_per_hour))
        told = json.loads(urllib.request.urlopen(f"http://127.0.0.1:{CONTROL}/", timeout=5).read())
    late_s, served = max(entry["latest_s"] for entry in told) / chosen.slow, [entry["requests"] for entry in told]
    return replace(seen, late_s=late_s, first_share=served[0] / max(1, sum(served)))


def compared(chosen: Slice, policies: Sequence[str]) -> list[dict[str, Any]]:
    """Run a slice both ways, policy by policy."""
    requests, rows = requests_of(chosen), []
    with tempfile.TemporaryDirectory(prefix="penstock-fleet-") as name:
        folder = Path(name)
        fleet, described = folder / "fleet.yaml", fleet_choice(FLEET)
        lengths = [(one.input_tokens, one.output_tokens) for one in requests]
        means = [max(1, round(sum(column) / len(lengths))) for column in zip(*lengths, strict=True)]
        route = replace(described.routes[0], slo=chosen.slo, input_tokens=means[0], output_tokens=means[1])
        fleet.write_text(write_fleet(replace(described, routes=(route,))), encoding="utf-8")
        said = simulated(fleet, requests, folder, policies)
        for policy in policies:
            seen = routed(chosen, requests, fleet, policy, folder)
            rows.append({"slice": chosen.name, "policy": policy, "simulated": said[policy], "seen": seen})
            print(f"{chosen.name}: {policy}\n  simulated {said[policy]}\n  seen      {seen}", flush=True)
    return rows


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Write the rows as Markdown."""
    head = ["slice", "policy", "kept, simulated", "through Envoy", "good tokens/s, simulated", "all runs"]
    head += ["through Envoy", "ratio"]
    head += ["$/good Mtok, simulated", "through Envoy", "to the H100s, simulated", "through Envoy"]
    head += ["last answer s, simulated", "through Envoy", "failed", "clock late, ms"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        said, seen = row["simulated"], row["seen"]
        cells = [
            row["slice"],
            row["policy"],
            f"{said.met_fraction:.1%}",
            f"{seen.met_fraction:.1%}",
            f"{said.goodput_per_s:,.0f}",
            f"{said.least_per_s:,.0f} to {said.most_per_s:,.0f}",
            f"{seen.goodput_per_s:,.0f}",
            f"{seen.goodput_per_s / said.goodput_per_s:.2f}",
            f"{said.usd_per_good_mtok:.2f}",
            f"{seen.usd_per_good_mtok:.2f}",
            f"{said.first_share:.0%}",
            f"{seen.first_share:.0%}",
            f"{said.makespan_s:.1f}",
            f"{seen.makespan_s:.1f}",
            str(seen.failed),
            f"{1000 * seen.late_s:.0f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure, print, and write the table where asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", action="store_true", help="keep the table as tools/results/gateway-fleet.csv")
    parser.add_argument("--slice", choices=[one.name for one in SLICES], help="only one of them")
    parser.add_argument(
        "--slower", type=float, help="all seconds are so many times as long, instead of the slice's own"
    )
    parser.add_argument("--policy", action="append", choices=POLICIES, help="only these")
    parser.add_argument("--serve", choices=["endpoints", "gateway"], help=argparse.SUPPRESS)
    parser.add_argument("--running", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--slow", type=float, default=1.0, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve is not None:
        (slowed_endpoints if asked.serve == "endpoints" else slowed_gateway)(asked.running, asked.slow)
        return
    chosen = [replace(one, slow=asked.slower or one.slow) for one in SLICES if asked.slice in {None, one.name}]
    made = table([row for one in chosen for row in compared(one, asked.policy or POLICIES)])
    print(made)
    if asked.tables:
        keep("gateway-fleet", made)


if __name__ == "__main__":
    main()
