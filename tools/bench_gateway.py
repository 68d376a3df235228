"""What does the gateway cost beside bare Envoy? Both in one run, in turns, on the same machine.

The load tool and the backend are C programs kept beside the checkout (`../shared/tools`); routers are bound to one core
and load and backend to another. Ratios of one run are what counts: the machine may be busy otherwise.
"""

import argparse
import json
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

REPOSITORY: Final = Path(__file__).resolve().parent.parent
VARIANTS: Final = ("bare", "module", "ext_proc", "ext_proc_buffered")
PEERS: Final = {
    "sglang-router": ("bin/sglang-router", "launch", "--log-level", "error"),
    "vllm-router": ("bin/vllm-router", "--log-level", "error"),
    "production-stack": ("bin/python", "-m", "vllm_router.app", "--log-level", "error"),
}
"""How others are started, each in an environment of its own: `--peers FOLDER` has them by these names."""
BACKENDS: Final = ("127.0.0.1:19101", "127.0.0.1:19102", "127.0.0.1:19103")
SLOW_BACKENDS: Final = ("127.0.0.1:19111", "127.0.0.1:19112", "127.0.0.1:19113")
FAST_BACKENDS: Final = ("127.0.0.1:19121", "127.0.0.1:19122", "127.0.0.1:19123")
GAPS_US: Final[dict[tuple[str, ...], int]] = {BACKENDS: 0, SLOW_BACKENDS: 20_000, FAST_BACKENDS: 2_000}
"""Microseconds between two tokens of each kind of backend."""
MODEL: Final = "m"
TASKSET, COMPILER = shutil.which("taskset") or "taskset", shutil.which("gcc") or "gcc"
START_S: Final = 180.0


@dataclass(frozen=True)
class Load:
    """One kind of traffic."""

    name: str
    backends: tuple[str, ...]
    connections: int
    seconds: float
    rate: float
    """0: as fast as it goes."""
    body: str
    stream: bool = False


LOADS: Final = (
    Load("small", BACKENDS, 32, 1, 0, "small"),
    Load("100/s", BACKENDS, 8, 4, 100, "small"),
    Load("200 tokens", SLOW_BACKENDS, 200, 4, 0, "stream", stream=True),
    Load("saturated stream", FAST_BACKENDS, 200, 4, 0, "stream", stream=True),
    Load("400 KB", BACKENDS, 8, 1, 0, "long"),
)


def widened(backends: Sequence[str], count: int) -> tuple[str, ...]:
    """Return `count` addresses of one kind of backend, from a range of ports of its own."""
    if count <= len(backends):
        return tuple(backends[:count])
    first = 20_000 + 10 * (int(backends[0].rpartition(":")[2]) - 19_101) * 10
    return tuple(f"127.0.0.1:{first + number}" for number in range(count))


def serve(variant: str, port: int, backends: Sequence[str], folder: str) -> None:
    """Run one router in the foreground."""
    from penstock.gateway.envoy.envoy_binary import envoy_program  # noqa: PLC0415 - in the child only
    from penstock.gateway.envoy.envoy_config import EnvoySettings  # noqa: PLC0415 - same
    from penstock.gateway.inside_envoy.module_library import module_paths  # noqa: PLC0415 - same
    from penstock.gateway.state.routed_fleet import RoutedFleet  # noqa: PLC0415 - same
    from penstock.gateway.supervisor import Supervisor  # noqa: PLC0415 - same
    from penstock.routing.records import new_endpoints  # noqa: PLC0415 - same

    endpoints = new_endpoints(len(backends))
    endpoints["vendor"] = endpoints["pool"] = range(len(backends))
    endpoints["step_s"], endpoints["prompt_token_s"], endpoints["step_tokens"] = 0.01, 1e-5, 8192
    endpoints["kv_tokens"] = endpoints["max_context_tokens"] = 10**7
    endpoints["max_running"] = 10_000
    fleet = RoutedFleet(
        name="bench",
        addresses=tuple(backends),
        pools=tuple(str(index) for index in range(len(backends))),
        engines=("vllm",) * len(backends),
        models=(MODEL,),
        served=(MODEL,) * len(backends),
        classes=(),
        endpoints=endpoints,
    )
    settings = EnvoySettings(
        listen=f"127.0.0.1:{port}",
        folder=Path(folder),
        pickers=1,
        protocol="ext_proc" if variant == "bare" else variant,  # type: ignore[arg-type]
        concurrency=1,
        pick=variant != "bare",
        pick_timeout_s=5.0,
        module=module_paths(envoy_program()) if variant == "module" else ("", ""),
    )
    Supervisor(settings, lambda _: fleet, None, drain_s=0.0).run()


def bodies(folder: Path) -> dict[str, Path]:
    """Write the three bodies; `messages` comes first, as OpenAI's client has it."""
    chat = {"messages": [{"role": "user", "content": "x " * 180}], "model": MODEL, "max_tokens": 64}
    long = {"messages": [{"role": "user", "content": "word " * 80_000}], "model": MODEL, "max_tokens": 64}
    found = {}
    for name, body in (("small", chat), ("stream", chat | {"stream": True}), ("long", long)):
        found[name] = folder / f"{name}.json"
        found[name].write_text(json.dumps(body, separators=(",", ":")))
    return found


def build(folder: Path, sources: Path) -> None:
    """Compile the load tool and the backend."""
    if not sources.is_dir():
        sys.exit(f"{sources} is not here: the load tool and the backend are kept beside the checkout")
    for name in ("load", "backend"):
        subprocess.run([COMPILER, "-O2", "-w", "-o", folder / name, sources / f"{name}.c"], check=True)


def cpu_s(pid: int) -> Counter[str]:
    """Processor seconds of a gateway's parts: Envoy, the picker, and the rest; of a peer all, as if it were Envoy's."""
    found: Counter[str] = Counter()
    parent = Path(f"/proc/{pid}/cmdline").read_bytes()
    alone = b"--serve" not in parent
    for one in [str(pid), *Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]:
        command = Path(f"/proc/{one}/cmdline").read_bytes()
        part = "envoy" if alone or b"--disable-hot-restart" in command else "rest"
        if not alone and command == parent and one != str(pid):
            part = "picker"
        ran_ns = sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{one}/task").glob("*/schedstat"))
        found[part] += ran_ns / 1e9  # type: ignore[assignment] # seconds, not counts
    return found


def started(command: Sequence[str | Path], core: int) -> subprocess.Popen[bytes]:
    """Start a program on one core."""
    return subprocess.Popen([TASKSET, "-c", str(core), *map(str, command)])


def router_command(variant: str, port: int, place: Path, backends: Sequence[str], peers: Path | None) -> list[str]:
    """How a router is started: our own in a process of this program, others as they are launched, taking turns."""
    if variant not in PEERS:
        return [sys.executable, __file__, "--serve", variant, str(port), str(place), *backends]
    if peers is None:
        sys.exit(f"--peers must name the folder that has {variant}")
    program, *more = PEERS[variant]
    command = [str(peers / variant / program), *more, "--host", "127.0.0.1", "--port", str(port)]
    urls = [f"http://{backend}" for backend in backends]
    if variant == "production-stack":
        static = ["--static-backends", ",".join(urls), "--static-models", ",".join([MODEL] * len(urls))]
        return [*command, "--service-discovery", "static", *static, "--routing-logic", "roundrobin"]
    return [*command, "--policy", "round_robin", "--prometheus-port", str(port + 100), "--worker-urls", *urls]


def await_answer(port: int) -> None:
    """Wait until a router answers."""
    begun = time.monotonic()
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1).read()
        except OSError:
            if time.monotonic() - begun > START_S:
                sys.exit(f"nothing answers on port {port}")
            time.sleep(0.2)
        else:
            return


def measure(folder: Path, load: Load, port: int, body: Path, router: int) -> dict[str, Any]:
    """Put one load on one router; return what the load tool saw, and the processor time of a request."""
    command = [folder / "load", port, load.connections, load.seconds, 0, load.rate, body]
    before = cpu_s(router)
    done = subprocess.run([TASKSET, "-c", "1", *map(str, command)], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    used = cpu_s(router)
    used.subtract(before)
    found["parts"] = {part: seconds / max(1, found["ok"]) * 1e6 for part, seconds in used.items()}
    return found


def run(
    repetitions: int, chosen: Sequence[Load], variants: Sequence[str], sources: Path, peers: Path | None, endpoints: int
) -> list[dict[str, Any]]:
    """Measure every router under every load, in turns."""
    results = []
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        folder = Path(name)
        build(folder, sources)
        written = bodies(folder)
        processes = []
        try:
            for kind in dict.fromkeys(load.backends for load in chosen):
                places, alike = widened(kind, endpoints), [load for load in chosen if load.backends == kind]
                ports = [place.rpartition(":")[2] for place in places]
                processes.append(started([folder / "backend", "200", str(GAPS_US[kind]), *ports], 1))
                results += behind(places, alike, folder, written, repetitions, variants, peers)
        finally:
            for process in processes:
                process.terminate()
                process.wait()
    return results


def behind(
    backends: Sequence[str],
    loads: Sequence[Load],
    folder: Path,
    written: dict[str, Path],
    repetitions: int,
    variants: Sequence[str],
    peers: Path | None,
) -> list[dict[str, Any]]:
    """Measure all routers in front of the same backends, in turns."""
    routers, results = {}, []
    try:
        for number, variant in enumerate(variants):
            place, port = folder / f"{variant}-{backends[0][-5:]}", 19200 + number
            routers[variant] = (started(router_command(variant, port, place, backends, peers), 0), port)
            await_answer(port)
        time.sleep(1.0)
        for load in loads:
            for turn in range(repetitions):
                for variant, (process, port) in routers.items():
                    seen = measure(folder, load, port, written[load.body], process.pid)
                    results.append({"load": load.name, "variant": variant, "turn": turn, **seen})
                    shown = " + ".join(f"{part} {us:.0f}" for part, us in seen["parts"].items())
                    print(
                        f"{load.name}: {variant} {seen['rps']:.0f}/s, {seen['err']} errors, CPU {shown} us", flush=True
                    )
    finally:
        for process, _ in routers.values():
            process.send_signal(signal.SIGTERM)
        for process, _ in routers.values():
            process.wait()
    return results


HEAD: Final = (
    "| load | router | req/s | of bare | by turn | p50 ms | added | p99 ms | added "
    "| CPU us | of bare | by turn | Python us | errors |"
)


def table(results: Sequence[dict[str, Any]]) -> str:
    """Draw medians, and their ratio to bare Envoy in the same turn: median, P10 and P90 of the turns.

    "CPU" is the processor time of Envoy per request; "of bare" is bare Envoy's divided by it.
    """
    lines = [HEAD, "|---" * HEAD.count(" | ") + "|---|"]
    for load in dict.fromkeys(row["load"] for row in results):
        beside: list[dict[str, Any]] = []
        for variant in dict.fromkeys(row["variant"] for row in results):
            rows = [row for row in results if row["load"] == load and row["variant"] == variant]
            beside = beside or rows
            if rows:
                lines.append(f"| {load} | {variant} | {cells(rows, beside)} | {sum(row['err'] for row in rows)} |")
    return "\n".join(lines)


def cells(rows: Sequence[dict[str, Any]], bare: Sequence[dict[str, Any]]) -> str:
    """Draw one line of the table."""
    pairs = list(zip(rows, bare, strict=True))
    rates = [mine["rps"] / theirs["rps"] for mine, theirs in pairs]
    cpu = [theirs["parts"]["envoy"] / mine["parts"]["envoy"] for mine, theirs in pairs]
    later = [[(mine["tot"][at] - theirs["tot"][at]) / 1000 for mine, theirs in pairs] for at in (0, 2)]
    p50_ms, p99_ms = (statistics.median(row["tot"][at] for row in rows) / 1000 for at in (0, 2))
    of = [
        f"{statistics.median(row['rps'] for row in rows):,.0f} | {spread(rates)}",
        f"{p50_ms:.2f} | {statistics.median(later[0]):+.2f} | {p99_ms:.2f} | {statistics.median(later[1]):+.2f}",
        f"{statistics.median(row['parts']['envoy'] for row in rows):,.0f} | {spread(cpu)}",
        f"{statistics.median(row['parts'].get('rest', 0.0) + row['parts'].get('picker', 0.0) for row in rows):,.0f}",
    ]
    return " | ".join(of)


def spread(ratios: Sequence[float]) -> str:
    """Draw the median, and P10 to P90."""
    ordered = sorted(ratios)
    low, high = ordered[len(ordered) // 10], ordered[-1 - len(ordered) // 10]
    return f"{statistics.median(ordered):.2f} | {low:.2f} to {high:.2f}"


def main() -> None:
    """Run the benchmark, or one of its routers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--endpoints", type=int, default=3)
    parser.add_argument("--loads", nargs="*", default=[load.name for load in LOADS])
    parser.add_argument("--routers", nargs="*", default=list(VARIANTS))
    parser.add_argument("--sources", type=Path, default=REPOSITORY.parent / "shared" / "tools")
    parser.add_argument("--peers", type=Path, help="a folder with environments of other routers, to name in --routers")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    if chosen.serve:
        variant, port, folder, *backends = chosen.serve
        serve(variant, int(port), backends, folder)
        return
    loads = [load for load in LOADS if load.name in chosen.loads]
    results = run(chosen.repetitions, loads, chosen.routers, chosen.sources, chosen.peers, chosen.endpoints)
    if chosen.json:
        chosen.json.write_text(json.dumps(results))
    print(table(results))


if __name__ == "__main__":
    main()
