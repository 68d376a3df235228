"""A real Envoy, real pickers and emulated endpoints, started for a test and ended by it."""

import asyncio
import json
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ports import free_ports

MODEL = "llama"
STEP_S = 0.002
_READY_S = 150.0
_SILICON = (
    *("step_s", "sequence_s", "context_token_s", "prompt_step_s", "prompt_token_s", "prompt_pair_s", "request_s"),
    *("first_token_ratio", "step_tokens", "kv_tokens", "max_running", "usd_per_s"),
)
"""Of an endpoint's record, what follows from its silicon and engine."""


def until(true: Callable[[], bool], seconds: float = 15.0) -> None:
    """Wait until a condition is true; fail if it is not within that time."""
    begun = time.monotonic()
    while not true():
        assert time.monotonic() - begun < seconds, f"not within {seconds} s"
        time.sleep(0.05)


@dataclass(frozen=True, kw_only=True)
class Stack:
    """What is started."""

    listen: str
    addresses: tuple[str, ...]
    control: str
    real: tuple[str, ...] = ()
    """Endpoints of the fleet that somebody else runs: small ones, each of the next model."""
    silicon: str | None = None
    """A fleet file whose replicas the emulated endpoints are, one each; None: endpoints that are all alike."""
    models: tuple[str, ...] = (MODEL,)
    """The model of each endpoint, in turn."""
    adapters: tuple[str, ...] = ()
    """Of the first endpoint of the first model, and of it alone."""
    adapters_of_real: bool = False
    """Whether the endpoints that somebody else runs have the adapters instead."""
    unloaded: bool = False
    """Whether its engine knows none of them, although the fleet says so."""
    protocol: str = "module"
    pickers: int = 1
    only: int | None = None
    """The one endpoint pickers may choose, although Envoy knows all."""
    folder: str = ""
    access_log: str | None = None
    own_log: str | None = None
    """Where Envoy, pickers, scraper and supervisor write what they have to say."""
    receipts: str | None = None
    metrics: str | None = None
    step_s: float = STEP_S
    one_pool: bool = False
    """Whether the endpoints are replicas of one pool and share what is learned of their speed. Otherwise each is a
    pool, and light load goes to the one that seems fastest."""
    overload: str = "serve"
    """What may happen to requests beyond capacity."""
    access: str | None = None
    """A file that says who may ask."""
    tls: tuple[str, str] | None = None
    """A certificate and its key."""
    traces: str | None = None
    more_paths: tuple[str, ...] = ()
    min_silence_s: float = 10.0
    """How long an endpoint may be silent before it is asked about."""
    only_pick: str | None = None
    """Where pickers answer a gateway that is not started here."""
    grace_s: float = 0.0
    """How long the gateway serves after SIGTERM although its health checks fail."""
    watched: str | None = None
    """A file of addresses, read again when it changes."""
    memory_bytes: int = 4 * 2**30
    """Memory that the gateway may use, as a pod's limit says."""


@dataclass
class Answers:
    """What clients saw."""

    statuses: Counter[int] = field(default_factory=Counter)
    cut: int = 0
    """Answers that broke off, and connections that were refused."""
    seconds: list[float] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    @property
    def failed(self) -> int:
        return self.cut + sum(count for status, count in self.statuses.items() if status != 200)

    @property
    def count(self) -> int:
        return self.cut + sum(self.statuses.values())


def chat(tokens: int = 4, *, stream: bool = False, prompt: str = "hello", model: str = MODEL) -> bytes:
    said = [{"role": "user", "content": prompt}]
    body = {"messages": said, "model": model, "max_tokens": tokens, "ignore_eos": True, "stream": stream}
    return json.dumps(body).encode()


class Running:
    """A stack that runs."""

    def __init__(self, stack: Stack, processes: dict[str, subprocess.Popen[bytes]], told: Path | None = None) -> None:
        self.stack, self.processes, self._told = stack, processes, told
        self.host, _, port = stack.listen.rpartition(":")
        self.port = int(port)

    def start(self, part: str, log: str | None = None) -> None:
        with Path(log).open("ab") if log else nullcontext() as words:
            self.processes[part] = subprocess.Popen([sys.executable, __file__, part, str(self._told)], stderr=words)

    def start_gateway(self) -> None:
        """Start the gateway, by the same command where it ran before, and wait until it answers."""
        self.start("gateway", self.stack.own_log)
        _await_ready(self.stack, self.processes)

    def fault(self, name: str, endpoint: str | int = "all", times: float = 1.0) -> None:
        chosen = self.stack.addresses[endpoint] if isinstance(endpoint, int) else endpoint
        body = json.dumps({"endpoint": chosen, "fault": name, "times": times}).encode()
        urllib.request.urlopen(f"http://{self.stack.control}/", body, timeout=5).read()

    def served(self) -> dict[str, int]:
        """Completions each endpoint was asked for."""
        shown = json.loads(urllib.request.urlopen(f"http://{self.stack.control}/", timeout=5).read())
        return {entry["endpoint"]: entry["requests"] for entry in shown}

    def children(self, name: str) -> list[int]:
        """Process ids of the gateway's parts: envoy, scraper, and pickers, which are copies of the supervisor."""
        found = []
        parent = self.processes["gateway"].pid
        word = {"picker": "gateway_stack.py", "scraper": "telemetry.scraper", "envoy": "envoy -c"}.get(name, name)
        for entry in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
            if word in Path(f"/proc/{entry}/cmdline").read_bytes().decode().replace("\0", " "):
                found.append(int(entry))
        return found

    async def ask(self, body: bytes, *, path: str = "/v1/chat/completions", headers: str = "") -> tuple[int, bytes]:
        """Send one request; status 0 where the answer broke off."""
        try:
            reader, writer = await asyncio.open_connection(self.host, self.port)
        except OSError:
            return 0, b""
        head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\n{headers}"
        try:
            writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            raw = await asyncio.wait_for(_read_all(reader), 60)
        except (OSError, TimeoutError):
            return 0, b""
        finally:
            writer.close()
        start, _, rest = raw.partition(b"\r\n\r\n")
        whole = b"transfer-encoding: chunked" not in start.lower() or rest.endswith(b"0\r\n\r\n")
        return (int(start.split()[1]), rest) if start and whole else (0, rest)

    async def load_during(
        self, act: Callable[[], None], count: int, in_parallel: int = 8, body: bytes | None = None
    ) -> Answers:
        """Send requests, and do something to the stack while they are under way."""
        sending = asyncio.create_task(self.load(count, in_parallel, body))
        await asyncio.sleep(0.3)
        await asyncio.to_thread(act)
        return await sending

    async def load(
        self,
        count: int,
        in_parallel: int,
        body: bytes | None = None,
        pause_s: float = 0.0,
        path: str = "/v1/chat/completions",
    ) -> Answers:
        """Send so many requests, so many at once."""
        seen, left, asked = Answers(), iter(range(count)), body if body is not None else chat()

        async def client() -> None:
            for _ in left:
                begun = time.perf_counter()
                status, _ = await self.ask(asked, path=path)
                seen.seconds.append(time.perf_counter() - begun)
                if status:
                    seen.statuses[status] += 1
                else:
                    seen.cut += 1
                if pause_s:
                    await asyncio.sleep(pause_s)

        await asyncio.gather(*(client() for _ in range(in_parallel)))
        return seen


async def _read_all(reader: asyncio.StreamReader) -> bytes:
    """Read until the other side is done; one that answers before it has read all resets the connection afterwards."""
    raw = b""
    try:
        while piece := await reader.read(2**16):
            raw += piece
    except ConnectionResetError:
        head, _, body = raw.partition(b"\r\n\r\n")
        if b"content-length: %d\r\n" % len(body) not in head.lower() + b"\r\n":
            raise
    return raw


@contextmanager
def running(folder: Path, *, endpoints: int = 3, **more: Any) -> Iterator[Running]:  # noqa: ANN401 - fields of Stack
    listen, control, *ports = free_ports(endpoints + 2)
    folder.mkdir(parents=True, exist_ok=True)
    stack = Stack(
        listen=f"127.0.0.1:{listen}",
        control=f"127.0.0.1:{control}",
        addresses=tuple(f"127.0.0.1:{port}" for port in ports),
        # Paths of sockets are short.
        folder=tempfile.mkdtemp(prefix="penstock-"),
        **more,
    )
    if stack.watched is not None:
        Path(stack.watched).write_text(json.dumps(stack.addresses))
    told = folder / "stack.json"
    told.write_text(json.dumps(asdict(stack)))
    started = Running(stack, {}, told)
    try:
        started.start("endpoints")
        started.start_gateway()
        yield started
    finally:
        for part in ("gateway", "endpoints"):
            if part in started.processes:
                process = started.processes[part]
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(45)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def _await_ready(stack: Stack, processes: dict[str, subprocess.Popen[bytes]]) -> None:
    begun = time.monotonic()
    unchecked = ssl._create_unverified_context()  # noqa: S323, SLF001 - whether it is up, no more
    gateway = f"http{'s' if stack.tls else ''}://{stack.listen}/health"
    if stack.only_pick is not None:
        gateway = f"http://{stack.metrics}/metrics"
    for url in (f"http://{stack.control}/", gateway):
        while True:
            try:
                urllib.request.urlopen(url, timeout=1, context=unchecked).read()  # noqa: S310 - loopback
                break
            except OSError:
                for part, process in processes.items():
                    assert process.poll() is None, f"{part} has ended with {process.returncode}"
                assert time.monotonic() - begun < _READY_S, f"{url} does not answer"
                time.sleep(0.1)


def _model_of(stack: Stack, index: int) -> str:
    return stack.models[index % len(stack.models)]


def _serve_endpoints(stack: Stack) -> None:
    import uvloop  # noqa: PLC0415 - an extra

    from penstock.emulator.emulated_endpoint import EmulatedReplica  # noqa: PLC0415
    from penstock.emulator.emulator_server import emulate  # noqa: PLC0415
    from penstock.emulator.server_facts import ServerFacts  # noqa: PLC0415
    from penstock.fleet.deployment import Parallelism  # noqa: PLC0415
    from penstock.performance.step.step_cost import StepCost  # noqa: PLC0415
    from penstock.simulation.replica import Replica  # noqa: PLC0415

    cost = StepCost(step_s=stack.step_s, decode_s=0.0, prefill_token_s=1e-7)
    facts = ServerFacts(
        version="0.32.0",
        weights="bf16",
        cache_dtype="bf16",
        split=Parallelism(),
        max_sequences=256,
        max_batched_tokens=8192,
        prefix_caching=True,
    )
    replicas = [
        EmulatedReplica(
            address=address,
            pool=f"pool-{index}",
            model=_model_of(stack, index),
            adapters=stack.adapters if index == 0 and not stack.unloaded else (),
            engine="sglang" if index % 2 else "vllm",
            simulated=Replica(cost=cost, kv_blocks=40_000),
            facts=facts,
            max_tokens=600_000,
            usual_output_tokens=20,
        )
        for index, address in enumerate(stack.addresses)
    ]
    if stack.silicon is not None:
        from penstock.api.emulate import emulated_fleet, emulated_replicas  # noqa: PLC0415

        of_file = emulated_replicas(emulated_fleet(Path(stack.silicon), port=1))
        replicas = [
            replace(one, simulated=made.simulated, engine=made.engine)
            for one, made in zip(replicas, of_file, strict=True)
        ]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(emulate(replicas, control=stack.control, speed=1.0, seed=0))


def _fleet(stack: Stack, addresses: Sequence[str], made: int) -> Any:  # noqa: ANN401 - imported below
    from penstock.gateway.state.routed_fleet import RoutedClass, RoutedFleet, RoutedPool  # noqa: PLC0415
    from penstock.routing.records import new_endpoints  # noqa: PLC0415

    count = len(addresses)
    models = tuple(dict.fromkeys(stack.models))
    known = (*stack.addresses, *stack.real)
    served = tuple(
        _model_of(stack, (stack.real if address in stack.real else known).index(address)) for address in addresses
    )
    endpoints = new_endpoints(count)
    endpoints["vendor"] = range(count)
    endpoints["pool"] = 0 if stack.one_pool else range(count)
    endpoints["serves"] = [1 << models.index(model) for model in served]
    adapting = stack.real if stack.adapters_of_real else stack.addresses[:1]
    adapters = tuple(stack.adapters if address in adapting else () for address in addresses)
    for place in range(len(stack.adapters)):
        for address in adapting:
            endpoints["serves"][addresses.index(address)] |= 1 << (len(models) + place)
    endpoints["kv_tokens"], endpoints["max_context_tokens"], endpoints["max_running"] = 640_000, 600_000, 256
    endpoints["step_tokens"], endpoints["step_s"], endpoints["prompt_token_s"] = 8192, stack.step_s, 1e-7
    if stack.silicon is not None:
        for index, record in enumerate(_records(stack.silicon)):
            for name in _SILICON:
                endpoints[name][index] = record[name]
    for index in (place for place, address in enumerate(addresses) if address in stack.real):
        endpoints["max_context_tokens"][index], endpoints["max_running"][index] = 1024, 16
    if stack.only is not None:
        endpoints["max_context_tokens"] = [600_000 if index == stack.only else 1 for index in range(count)]
    promised = [
        RoutedClass(
            name="chat",
            model=model,
            input_tokens=100,
            output_tokens=20,
            ttft_s=1.0,
            tpot_s=0.05,
            overload=stack.overload,  # type: ignore[arg-type]
        )
        for model in models
    ]
    return RoutedFleet(
        name="test",
        generation=made,
        addresses=tuple(addresses),
        pools=tuple(f"pool-{index}" for index in range(count)),
        engines=tuple("vllm" for _ in range(count)),
        models=models,
        served=served,
        adapters=adapters,
        classes=tuple(promised),
        endpoints=endpoints,
        kinds=tuple(RoutedPool(name=f"pool-{index}", model=model, most=1) for index, model in enumerate(served)),
        kind_records=endpoints,
    )


def _records(silicon: str) -> Any:  # noqa: ANN401 - records
    """What pickers know of a fleet file's replicas."""
    from penstock.api.emulate import emulated_fleet  # noqa: PLC0415
    from penstock.api.route import routed_fleet  # noqa: PLC0415
    from penstock.fleet.fleet_file import write_fleet  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        running_fleet = Path(folder) / "fleet.yaml"
        running_fleet.write_text(write_fleet(emulated_fleet(Path(silicon), port=1)))
        return routed_fleet(running_fleet).endpoints


def _serve_gateway(stack: Stack) -> None:
    import logging  # noqa: PLC0415

    from penstock.gateway.envoy.envoy_binary import envoy_program  # noqa: PLC0415
    from penstock.gateway.envoy.envoy_config import EnvoySettings  # noqa: PLC0415
    from penstock.gateway.envoy.tracing import Traces  # noqa: PLC0415
    from penstock.gateway.inside_envoy.module_library import module_paths  # noqa: PLC0415
    from penstock.gateway.state.access_rules import Certificate  # noqa: PLC0415
    from penstock.gateway.supervisor import Supervisor  # noqa: PLC0415

    logging.basicConfig(level="WARNING")
    settings = EnvoySettings(
        listen=stack.listen,
        folder=Path(stack.folder),
        pickers=stack.pickers,
        protocol=stack.protocol,  # type: ignore[arg-type]
        access_log=stack.access_log,
        receipts=stack.receipts,
        receipt_every=1,
        metrics=stack.metrics,
        access_file=Path(stack.access) if stack.access else None,
        certificate=Certificate(chain=Path(stack.tls[0]), key=Path(stack.tls[1])) if stack.tls else None,
        only_pick=stack.only_pick,
        more_paths=stack.more_paths,
        min_silence_s=stack.min_silence_s,
        memory_bytes=stack.memory_bytes,
        module=module_paths(envoy_program()) if stack.protocol == "module" else ("", ""),
        traces=Traces(address=stack.traces, fraction=1.0) if stack.traces else None,
    )
    watched = Path(stack.watched) if stack.watched else None

    def read(made: int) -> Any:  # noqa: ANN401 - a fleet
        return _fleet(stack, json.loads(watched.read_text()) if watched else (*stack.addresses, *stack.real), made)

    Supervisor(settings, read, watched, drain_s=10.0, grace_s=stack.grace_s).run()


def main(part: str, told: str) -> None:
    raw: dict[str, Any] = json.loads(Path(told).read_text())
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in raw.items()}
    stack = Stack(**fields)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if part == "endpoints":
        _serve_endpoints(stack)
    else:
        _serve_gateway(stack)


if __name__ == "__main__":
    main(*sys.argv[1:])
