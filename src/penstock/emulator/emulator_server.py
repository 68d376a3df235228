"""Serves many emulated endpoints in one process: a port per endpoint, and one for commands."""

import asyncio
import json
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.emulator.emulated_endpoint import EmulatedEndpoint, EmulatedReplica
from penstock.emulator.endpoint_faults import EndpointFault, read_fault
from penstock.emulator.openai_responses import error_body
from penstock.errors import UsageError
from penstock.http_server import Exchange, Handler, HttpConnection

_BACKLOG: Final = 4096
_MAX_COMMAND_BYTES: Final = 2**20
_TARGETS: Final = ("endpoint", "pool", "model")
_KEYS: Final = (*_TARGETS, "fault", "times")
_ALL: Final = "all"
_MAX_SHOWN: Final = 8


@dataclass(slots=True, eq=False)
class _Port:
    """One endpoint, its server while the port is open, and its connections."""

    endpoint: EmulatedEndpoint
    lines: set[HttpConnection] = field(default_factory=set)
    server: asyncio.Server | None = None

    async def open(self) -> None:
        self.server = await _listen(self.endpoint.of.address, self.endpoint.handle, self.lines)

    def close(self) -> None:
        if self.server is not None:
            self.server.close()
            self.server = None
        for line in tuple(self.lines):
            line.abort()
        self.endpoint.forget()


async def emulate(
    replicas: Sequence[EmulatedReplica],
    *,
    control: str | None,
    speed: float,
    seed: int,
    ready: Callable[[], None] | None = None,
) -> None:
    """Serve the replicas until SIGTERM or SIGINT."""
    ports = {
        of.address: _Port(EmulatedEndpoint(of, speed=speed, seed=seed + number)) for number, of in enumerate(replicas)
    }
    for port in ports.values():
        await port.open()
    commands, told = _Commands(ports), set[HttpConnection]()
    listening = None
    if control is not None:
        listening = await _listen(control, commands.handle, told, most_body_bytes=_MAX_COMMAND_BYTES)
    if ready is not None:
        ready()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await stopped.wait()
    for port in ports.values():
        port.close()
    if listening is not None:
        listening.close()
    for line in tuple(told):
        line.abort()
    await asyncio.sleep(0)  # aborted connections close in the next turn of the loop


async def _listen(
    address: str, handle: Handler, lines: set[HttpConnection] | None, most_body_bytes: int | None = None
) -> asyncio.Server:
    host, _, port = address.rpartition(":")
    limits = {} if most_body_bytes is None else {"most_body_bytes": most_body_bytes}
    try:
        return await asyncio.get_running_loop().create_server(
            lambda: HttpConnection(handle, lines, **limits), host.strip("[]"), int(port), backlog=_BACKLOG
        )
    except OSError as error:
        raise UsageError(f"cannot listen on {address}: {error.strerror or error}; choose --port") from None


class _Commands:
    """HTTP commands for faults: GET / lists them, POST / {"pool": …, "fault": …, "times": …} sets one.

    A command selects by `endpoint` (an address, or "all"), `pool` or `model`. With several of these all must match;
    with none it selects all endpoints.
    """

    def __init__(self, ports: dict[str, _Port]) -> None:
        self._ports = ports
        self._tasks: set[asyncio.Task[None]] = set()

    def handle(self, exchange: Exchange) -> None:
        """List the endpoints or set a fault."""
        if exchange.method == b"GET":
            exchange.reply(200, json.dumps([_shown(port) for port in self._ports.values()]).encode())
            return
        try:
            chosen, fault = self._read(exchange.body)
        except UsageError as error:
            exchange.reply(400, error_body(str(error), "BadRequestError", 400))
            return
        task = asyncio.get_running_loop().create_task(self._set(chosen, fault, exchange))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _read(self, body: bytes) -> tuple[list[_Port], EndpointFault]:
        try:
            told = json.loads(body)
        except (ValueError, RecursionError):
            raise UsageError("the body is not JSON") from None
        if not isinstance(told, dict):
            raise UsageError("the body is not a JSON object")
        unknown = [name for name in told if name not in _KEYS]
        if unknown:
            raise UsageError(f"'{unknown[0][:100]}' is not a key; write {', '.join(_KEYS)}")
        return self._chosen(told), read_fault(told.get("fault"), told.get("times", 1.0))

    def _chosen(self, told: Mapping[str, object]) -> list[_Port]:
        chosen = list(self._ports.values())
        for target in _TARGETS:
            if target not in told or (target == "endpoint" and told[target] == _ALL):
                continue
            wanted = told[target]
            if all(_named(port)[target] != wanted for port in self._ports.values()):
                raise UsageError(self._not_found(target, wanted))
            chosen = [port for port in chosen if _named(port)[target] == wanted]
        if not chosen:
            said = " and ".join(f"{target} {told[target]!r}" for target in _TARGETS if target in told)
            raise UsageError(f"no endpoint is of {said}; GET / lists them")
        return chosen

    def _not_found(self, target: str, wanted: object) -> str:
        """Return an error message with the known names, or with the other kind that has this name."""
        names = [_named(port) for port in self._ports.values()]
        for other in _TARGETS:
            if any(named[other] == wanted for named in names):
                return f'{wanted!r} is no {target} but a {other}; write {{"{other}": "{wanted}"}}'
        there = list(dict.fromkeys(named[target] for named in names))
        shown = ", ".join(there[:_MAX_SHOWN]) + (", ..." if len(there) > _MAX_SHOWN else "")
        return f"no {target} is called {wanted!r}; write one of {shown}{', or all' if target == 'endpoint' else ''}"

    async def _set(self, chosen: Sequence[_Port], fault: EndpointFault, exchange: Exchange) -> None:
        for port in chosen:
            if fault.name == "die":
                port.close()
            elif port.server is None:
                await port.open()
            port.endpoint.set_fault(fault)
        exchange.reply(200, json.dumps([_shown(port) for port in chosen]).encode())


def _named(port: _Port) -> dict[str, str]:
    """Return the names by which a command can select an endpoint."""
    of = port.endpoint.of
    return {"endpoint": of.address, "pool": of.pool, "model": of.model}


def _shown(port: _Port) -> dict[str, object]:
    endpoint = port.endpoint
    return {
        **_named(port),
        "fault": endpoint.fault.name,
        "requests": endpoint.requests,
        "running": len(endpoint.engine.running),
        "waiting": len(endpoint.engine.waiting),
        "latest_s": endpoint.latest_s,
    }
