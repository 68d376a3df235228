"""Serves many emulated endpoints in one process.

Each emulated endpoint has a port, and one additional port accepts commands.
"""

import asyncio
import json
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.emulator.emulated_endpoint import EmulatedEndpoint, EmulatedReplica
from penstock.emulator.endpoint_faults import EndpointFault, read_fault
from penstock.emulator.planted_differences import plant
from penstock.errors import UsageError
from penstock.http_server import Exchange, Handler, HttpConnection, error_body

_BACKLOG: Final = 4096
_MAX_COMMAND_BYTES: Final = 2**20
_TARGETS: Final = ("endpoint", "pool", "model")
_KEYS: Final = (*_TARGETS, "fault", "times", "difference", "value")
_ALL: Final = "all"
_MAX_SHOWN: Final = 8


@dataclass(slots=True, eq=False)
class _Port:
    """One endpoint with its connections, and its server if the port is open."""

    endpoint: EmulatedEndpoint
    connections: set[HttpConnection] = field(default_factory=set)
    server: asyncio.Server | None = None

    async def open(self) -> None:
        self.server = await _listen(self.endpoint.replica.address, self.endpoint.handle, self.connections)

    def close(self) -> None:
        if self.server is not None:
            self.server.close()
            self.server = None
        for connection in tuple(self.connections):
            connection.abort()
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
        replica.address: _Port(EmulatedEndpoint(replica, speed=speed, seed=seed + number))
        for number, replica in enumerate(replicas)
    }
    for port in ports.values():
        await port.open()
    commands, command_connections = _Commands(ports), set[HttpConnection]()
    listening = None
    if control is not None:
        listening = await _listen(control, commands.handle, command_connections, max_body_bytes=_MAX_COMMAND_BYTES)
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
    for connection in tuple(command_connections):
        connection.abort()
    await asyncio.sleep(0)  # aborted connections close in the next iteration of the event loop


async def _listen(
    address: str, handle: Handler, connections: set[HttpConnection] | None, max_body_bytes: int | None = None
) -> asyncio.Server:
    host, _, port = address.rpartition(":")
    limits = {} if max_body_bytes is None else {"max_body_bytes": max_body_bytes}
    try:
        return await asyncio.get_running_loop().create_server(
            lambda: HttpConnection(handle, connections, **limits), host.strip("[]"), int(port), backlog=_BACKLOG
        )
    except OSError as error:
        raise UsageError(f"cannot listen on {address}: {error.strerror or error}; choose --port") from None


class _Commands:
    """HTTP server for commands. GET / lists the endpoints; POST / {"pool": …, "fault": …} sets a fault.

    A command may have the fields `endpoint` (an address, or "all"), `pool` and `model`, which select endpoints. An
    endpoint is selected if it matches every selecting field of the command. A command without selecting fields selects
    all endpoints. The field `times` is a number that some faults need, such as the factor of a slowdown. A command with
    the fields `difference` and `value` starts the endpoints again with another setting.
    """

    def __init__(self, ports: dict[str, _Port]) -> None:
        self._ports = ports
        self._tasks: set[asyncio.Task[None]] = set()

    def handle(self, exchange: Exchange) -> None:
        """List the endpoints or set a fault."""
        if exchange.method == b"GET":
            exchange.reply(200, json.dumps([_status(port) for port in self._ports.values()]).encode())
            return
        try:
            command = _fields(exchange.body)
            selected = self._select(command)
            if "difference" in command:
                self._plant(selected, command, exchange)
                return
            fault = read_fault(command.get("fault"), command.get("times", 1.0))
        except UsageError as error:
            exchange.reply(400, error_body(str(error), "BadRequestError", 400))
            return
        task = asyncio.get_running_loop().create_task(self._set(selected, fault, exchange))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _plant(self, selected: Sequence[_Port], command: Mapping[str, object], exchange: Exchange) -> None:
        if "fault" in command:
            raise UsageError("a command sets a fault or a difference, not both; send two commands")
        planted = [plant(port.endpoint.replica, command["difference"], command.get("value")) for port in selected]
        for port, replica in zip(selected, planted, strict=True):
            port.endpoint.restart(replica)
        exchange.reply(200, json.dumps([_status(port) for port in selected]).encode())

    def _select(self, command: Mapping[str, object]) -> list[_Port]:
        selected = list(self._ports.values())
        for target in _TARGETS:
            if target not in command or (target == "endpoint" and command[target] == _ALL):
                continue
            value = command[target]
            if all(_names(port)[target] != value for port in self._ports.values()):
                raise UsageError(self._not_found(target, value))
            selected = [port for port in selected if _names(port)[target] == value]
        if not selected:
            criteria = " and ".join(f"{target} {command[target]!r}" for target in _TARGETS if target in command)
            raise UsageError(f"no endpoint has {criteria}; GET / lists the endpoints")
        return selected

    def _not_found(self, target: str, value: object) -> str:
        """Return the error message for an unknown target.

        The message lists the known names. If the name belongs to another kind of target, such as a pool, the message
        says so.
        """
        names = [_names(port) for port in self._ports.values()]
        for other in _TARGETS:
            if any(one[other] == value for one in names):
                return f'{value!r} is the name of a {other}, not of a {target}; use {{"{other}": "{value}"}}'
        known = list(dict.fromkeys(one[target] for one in names))
        shown = ", ".join(known[:_MAX_SHOWN]) + (", ..." if len(known) > _MAX_SHOWN else "")
        return f"no {target} has the name {value!r}; use one of {shown}{', or all' if target == 'endpoint' else ''}"

    async def _set(self, selected: Sequence[_Port], fault: EndpointFault, exchange: Exchange) -> None:
        for port in selected:
            if fault.name == "die":
                port.close()
            elif port.server is None:
                await port.open()
            port.endpoint.set_fault(fault)
        exchange.reply(200, json.dumps([_status(port) for port in selected]).encode())


def _fields(body: bytes) -> Mapping[str, object]:
    """Parse the JSON object of a command."""
    try:
        command = json.loads(body)
    except (ValueError, RecursionError):
        raise UsageError("the request body is not JSON") from None
    if not isinstance(command, dict):
        raise UsageError("the request body is not a JSON object")
    unknown = [name for name in command if name not in _KEYS]
    if unknown:
        raise UsageError(f"'{unknown[0][:100]}' is not a key of a command; use {', '.join(_KEYS)}")
    return command


def _names(port: _Port) -> dict[str, str]:
    """Return the names by which a command can select an endpoint."""
    replica = port.endpoint.replica
    return {"endpoint": replica.address, "pool": replica.pool, "model": replica.model}


def _status(port: _Port) -> dict[str, object]:
    endpoint = port.endpoint
    return {
        **_names(port),
        "fault": endpoint.fault.name,
        "requests": endpoint.requests,
        "running": len(endpoint.engine.running),
        "waiting": len(endpoint.engine.waiting),
        "latest_s": endpoint.latest_s,
    }
