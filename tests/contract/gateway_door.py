"""The gateway as its users run it: the command in a process of its own, a fleet file, HTTP/1.1 and HTTP/2 clients."""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h2.config
import h2.connection
import h2.events
import yaml

from fake_engines import FakeEngine
from ports import free_ports

SMALL, LARGE = "llama-3.1-8b", "qwen3-8b"
COMPLETIONS = "/v1/chat/completions"
_START_S = 120.0
Headers = Sequence[tuple[str, str]]


def until(true: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait until something is true; fail if it is not within that time."""
    begun = time.monotonic()
    while not true():
        assert time.monotonic() - begun < seconds, f"not within {seconds} s"
        time.sleep(0.01)


def penstock_program() -> str:
    """The command of the installed wheel when PENSTOCK_COMMAND names it, else of this checkout."""
    beside = shutil.which("penstock", path=str(Path(sys.executable).parent))
    return os.environ.get("PENSTOCK_COMMAND") or beside or "penstock"


def chat(model: str | None = SMALL, *, stream: bool = False, prompt: str = "hello", **more: object) -> bytes:
    said: dict[str, object] = {"messages": [{"role": "user", "content": prompt}], "max_tokens": 4, **more}
    return json.dumps(said | ({"model": model} if model else {}) | ({"stream": True} if stream else {})).encode()


@dataclass(frozen=True)
class Answer:
    """What a client got."""

    status: int
    headers: dict[str, str]
    """Names are in lower case."""
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        assert self.headers["content-type"] == "application/json"
        said: dict[str, Any] = json.loads(self.body)
        assert said.keys() == {"error"}
        assert said["error"].keys() == {"message", "type", "param", "code"}
        error: dict[str, Any] = said["error"]
        return error


def send(
    address: str, body: bytes | None, headers: Headers = (), *, path: str = COMPLETIONS, method: str = ""
) -> Answer:
    """Ask by HTTP/1.1; with no body, by GET."""
    with _connection(address) as connection:
        _request(connection, body, headers, path, method)
        answer = connection.getresponse()
        seen = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, seen, answer.read())


@contextmanager
def sent(address: str, body: bytes, headers: Headers = ()) -> Iterator[http.client.HTTPConnection]:
    """A request whose answer has not been read yet."""
    with _connection(address) as connection:
        _request(connection, body, headers, COMPLETIONS, "POST")
        yield connection


@contextmanager
def _connection(address: str) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection(address, timeout=30)
    try:
        yield connection
    finally:
        connection.close()


def _request(
    connection: http.client.HTTPConnection, body: bytes | None, headers: Headers, path: str, method: str
) -> None:
    connection.putrequest(method or ("GET" if body is None else "POST"), path, skip_accept_encoding=True)
    for name, value in (("content-type", "application/json"), *headers) if body is not None else headers:
        connection.putheader(name, value)
    if body is not None:
        connection.putheader("content-length", str(len(body)))
    # A gateway that answers before it has read everything closes the connection.
    with suppress(BrokenPipeError, ConnectionResetError):
        connection.endheaders(body)


def send_h2(address: str, body: bytes, headers: Headers = (), first: Callable[[bytes], None] | None = None) -> Answer:
    """Ask by HTTP/2, and call `first` with the first piece of the answer as soon as it is there."""
    host, port = address.split(":")
    connection = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
    with socket.create_connection((host, int(port)), timeout=30) as wire:
        connection.initiate_connection()
        names = [(":method", "POST"), (":path", COMPLETIONS), (":scheme", "http"), (":authority", address)]
        connection.send_headers(1, [*names, ("content-type", "application/json"), *headers])
        connection.send_data(1, body, end_stream=True)
        wire.sendall(connection.data_to_send())
        status, seen, pieces = 0, dict[str, str](), list[bytes]()
        while received := wire.recv(65536):
            for event in connection.receive_data(received):
                if isinstance(event, h2.events.ResponseReceived):
                    seen = {str(name): str(value) for name, value in event.headers}
                    status = int(seen.pop(":status"))
                elif isinstance(event, h2.events.DataReceived):
                    connection.acknowledge_received_data(event.flow_controlled_length, 1)
                    pieces.append(event.data)
                    if len(pieces) == 1 and first is not None:
                        first(event.data)
                elif isinstance(event, h2.events.StreamEnded):
                    return Answer(status, seen, b"".join(pieces))
            wire.sendall(connection.data_to_send())
    raise AssertionError(f"the answer broke off: {status} {pieces}")


def arrived(engines: Sequence[FakeEngine]) -> tuple[str, dict[str, str]]:
    """The head of the only request that engines were sent since the last call, and its headers in lower case."""
    (head,) = (head for engine in engines for head in engine.heads)
    for engine in engines:
        engine.heads.clear()
    lines = [line.partition(": ") for line in head.strip().split("\r\n")[1:]]
    return head, {name.lower(): value for name, _, value in lines}


def write_fleet(path: Path, small: Sequence[str], large: Sequence[str] = (), *, overload: str = "serve") -> None:
    """A fleet file with a pool of each model that has endpoints."""
    pools = {name: held for name, held in (("small", small), ("large", large)) if held}
    machine = {"accelerator": "h100_sxm", "site": "here"}
    usual = {"weights": "bf16", "kv": "bf16", "vendor": "nvidia", "role": "both", "usd_per_hour": 2.5, **machine}
    engine = {"name": "vllm", "version": "0.32.0", "settings": {}}
    split = {"tp": 1, "pp": 1, "dp": 1, "ep": False}
    slo = {"ttft_s": 1.0, "tpot_s": 0.05, "e2e_s": None, "attainment_fraction": 0.95}
    work = {"input_tokens": 1024, "output_tokens": 200, "peak_requests_per_s": 2.0, "slo": slo, "overload": overload}
    document = {
        "version": 1,
        "name": "contract",
        "nodes": [{**machine, "nodes": 1, "spare_nodes": 0}],
        "pools": [
            {
                **usual,
                "name": name,
                "model": SMALL if name == "small" else LARGE,
                "replicas": len(held),
                "split": split,
                "engine": engine,
                "endpoints": list(held),
            }
            for name, held in pools.items()
        ],
        "routes": [{**work, "workload": f"{name}-chat", "weights": {name: 1.0}} for name in pools],
    }
    # Renamed into place: a gateway that reads it meanwhile sees the old one or the new one.
    part = path.with_suffix(".part")
    part.write_text(yaml.safe_dump(document))
    part.replace(path)


@dataclass
class Gateway:
    """A gateway that runs."""

    process: subprocess.Popen[bytes]
    address: str
    metrics: str
    folder: Path
    engines: list[FakeEngine]
    protocol: str

    @property
    def fleet(self) -> Path:
        return self.folder / "fleet.yaml"

    @property
    def said(self) -> str:
        """What it has written to its log."""
        return (self.folder / "gateway.log").read_text()

    @property
    def access_log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "access.jsonl").read_text().splitlines()]

    def page(self) -> str:
        answer = send(self.metrics, None, path="/metrics")
        assert answer.status == 200
        return answer.body.decode()

    def is_up(self, endpoints: int) -> bool:
        """Whether so many endpoints are up."""
        lines = [line for line in self.page().splitlines() if line.startswith("penstock_endpoint_up{")]
        return sum(line.endswith(" 1.0") for line in lines) == endpoints

    def is_ready(self) -> bool:
        """Whether it answers and all its endpoints are up."""
        assert self.process.poll() is None, self.said
        try:
            socket.create_connection(("127.0.0.1", int(self.address.split(":")[1])), timeout=5).close()
            return self.is_up(len(self.engines))
        except OSError:
            return False

    def status_of(self, path: str) -> int:
        return send(self.address, None, path=path).status


PROTOCOLS = ("module", "ext_proc")


@contextmanager
def held(gateway: Gateway) -> Iterator[Callable[[], None]]:
    """Let no engine answer more than the first event of a stream, until what is yielded is called."""
    with ExitStack() as stack:
        for engine in gateway.engines:
            stack.enter_context(engine.held())
        yield stack.close


@contextmanager
def running(*started: Gateway) -> Iterator[None]:
    """Wait until the endpoints of gateways are up, all at once; end the gateways afterwards."""
    try:
        for gateway in started:
            until(gateway.is_ready, _START_S)
        yield
    finally:
        for gateway in started:
            if gateway.process.poll() is None:
                gateway.process.send_signal(signal.SIGTERM)
        for gateway in started:
            try:
                gateway.process.wait(20)
            except subprocess.TimeoutExpired:
                gateway.process.kill()
                gateway.process.wait()


def start(folder: Path, engines: list[FakeEngine], *arguments: str, protocol: str) -> Gateway:
    """Start `penstock route` on the fleet file of a folder. Its engines stream in pieces."""
    for engine in engines:
        engine.in_pieces = True
    address, metrics = (f"127.0.0.1:{port}" for port in free_ports(2))
    where = ["--only-pick" if protocol == "pick" else "--listen", address, "--metrics", metrics, "--drain-grace", "0"]
    options = [*where, "--protocol", "ext_proc" if protocol == "pick" else protocol, *arguments]
    with (folder / "gateway.log").open("ab") as log:
        command = [penstock_program(), "route", str(folder / "fleet.yaml"), *options]
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})
    return Gateway(process, address, metrics, folder, engines, protocol)
