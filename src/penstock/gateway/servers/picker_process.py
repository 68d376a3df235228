"""Runs a picker process.

A picker process answers Envoy's requests, and reads log lines of ended requests and scraper reports.
"""

import asyncio
import json
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import uvloop

from penstock.gateway.picker.decision_receipts import ReceiptBook
from penstock.gateway.picker.ended_requests import EndedRequests
from penstock.gateway.picker.fleet_state import SharedTables
from penstock.gateway.picker.outcome_receipts import OutcomeBook
from penstock.gateway.picker.picker import Picker
from penstock.gateway.state.addresses import picker_socket
from penstock.gateway.state.outcome_socket import OutcomeOutbox
from penstock.gateway.state.routed_fleet import RoutedFleet
from penstock.gateway.state.shared_tables import CLIENTS, COUNTS, PICKER_STATE, REPORT, shared_array
from penstock.gateway.state.timeouts import SILENCE_S

if TYPE_CHECKING:
    from penstock.gateway.servers.ext_proc_server import ExtProcServer
    from penstock.routing.records import Records

_TICK_S: Final = 0.05
_HEARTBEAT_EVERY_S: Final = 0.5
_ANSWER_TIMEOUT_S: Final = 2.0


def tables_of(folder: Path, fleet: RoutedFleet, pickers: int) -> SharedTables:
    """Map the shared tables of the current fleet."""
    count, generation = len(fleet.addresses), fleet.generation
    return SharedTables(
        reports=shared_array(folder / f"reports-{generation}.table", REPORT, (count,)),
        counts=shared_array(folder / f"counts-{generation}.table", COUNTS, (pickers, count)),
        states=shared_array(folder / "pickers.table", PICKER_STATE, (pickers,)),
        clients=shared_array(folder / "clients.table", CLIENTS, (1,)),
    )


def _receipts(
    folder: Path, number: int, fleet: RoutedFleet, outbox: OutcomeOutbox, before: ReceiptBook | None = None
) -> ReceiptBook | None:
    """Open a picker's receipt file. Return None if there is no file `receipts.json`.

    `receipts.json` has the path of the receipts and the sampling interval. File and sampling go on from `before` a
    reload.
    """
    file = folder / "receipts.json"
    if not file.exists():
        return None
    settings = json.loads(file.read_text(encoding="utf-8"))
    path = Path(settings["path"]).with_suffix(f".{number}.jsonl")
    source, count = (path, 0) if before is None else (before.file, before.count)
    return ReceiptBook(source, settings["every"], fleet.addresses, count=count, meters=number == 0, publish=outbox.add)


def _remove_socket(folder: Path, number: int) -> None:
    """Remove the socket that a previous process of picker `number` left."""
    Path(picker_socket(folder, number)).unlink(missing_ok=True)


def _min_silence_s(folder: Path) -> float:
    """Return the minimum silence of an endpoint, in seconds, before Envoy tries another one too.

    A file in the gateway's folder can override the default.
    """
    path = folder / "timeouts.json"
    return float(json.loads(path.read_text(encoding="utf-8"))["min_silence_s"]) if path.exists() else SILENCE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class _ListenAddress:
    """Address on which a picker listens, its TLS certificate, and its drain time."""

    address: str
    certificate: tuple[Path, Path] | None = None
    drain_s: float = 0.0
    """Seconds to wait for requests in flight at shutdown.

    Behind the gateway's own Envoy the wait is 0, because Envoy has drained before the pickers end.
    """


def _listen_address(folder: Path, own: str) -> _ListenAddress:
    """Return the address on which a picker listens.

    A picker for an external gateway reads the address from `listen.json`. Any other picker listens on `own`, the path
    of its socket.
    """
    path = folder / "listen.json"
    if not path.exists():
        return _ListenAddress(address=own)
    settings = json.loads(path.read_text(encoding="utf-8"))
    pair = settings["certificate"]
    certificate = None if pair is None else (Path(pair[0]), Path(pair[1]))
    return _ListenAddress(address=settings["address"], certificate=certificate, drain_s=settings["drain_s"])


def draining_file(folder: Path) -> Path:
    """Return the path of the file that marks the gateway as draining."""
    return folder / "draining"


async def _start_server(folder: Path, number: int, listen: _ListenAddress, picker: Picker) -> "ExtProcServer":
    """Start the server that Envoy connects to."""
    from penstock.gateway.servers import ext_proc_server  # noqa: PLC0415 - import gRPC only if it is used

    ext_proc = ext_proc_server.ExtProcServer(picker, number, draining_file(folder).exists)
    await ext_proc.start(listen.address, listen.certificate)
    return ext_proc


async def beat(server: "ExtProcServer", states: "Records", number: int) -> None:
    """Write a heartbeat periodically if the server answers a self-check.

    A running process alone is no proof that its server answers.
    """
    while True:
        try:
            if await asyncio.wait_for(server.answers(), _ANSWER_TIMEOUT_S):
                states["alive_s"][number] = time.monotonic()
        except TimeoutError:
            continue
        await asyncio.sleep(_HEARTBEAT_EVERY_S)


async def _run(folder: Path, number: int, pickers: int) -> None:
    loop = asyncio.get_running_loop()
    fleet = RoutedFleet.read(folder / "fleet.bin")
    outbox = OutcomeOutbox(folder)
    receipts, min_silence_s = _receipts(folder, number, fleet, outbox), _min_silence_s(folder)

    def picker_of(fleet: RoutedFleet) -> Picker:
        tables, outcomes = tables_of(folder, fleet, pickers), OutcomeBook(publish=outbox.add)
        return Picker(fleet, tables, number, receipts=receipts, min_silence_s=min_silence_s, outcomes=outcomes)

    picker = picker_of(fleet)
    endings = EndedRequests(str(folder / f"endings-{number}.pipe"), picker.state)
    loop.add_reader(endings.descriptor, endings.read)
    _remove_socket(folder, number)
    listen = _listen_address(folder, f"unix:{picker_socket(folder, number)}")
    server = await _start_server(folder, number, listen, picker)

    def reload() -> None:
        nonlocal picker, receipts
        reloaded = RoutedFleet.read(folder / "fleet.bin")
        if receipts is not None:
            receipts.close()
        receipts = _receipts(folder, number, reloaded, outbox, receipts)
        renewed = picker_of(reloaded)
        renewed.adopt(picker)
        picker = server.picker = renewed
        endings.state = renewed.state

    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGHUP, reload)
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    if RoutedFleet.read(folder / "fleet.bin").generation != fleet.generation:
        reload()  # the fleet was reloaded before this picker could get SIGHUP
    states = shared_array(folder / "pickers.table", PICKER_STATE, (pickers,))
    heartbeat = asyncio.create_task(beat(server, states, number))
    try:
        while not stopped.is_set():
            picker.state.tick()
            outbox.flush()
            states["lost_outcomes"][number] = receipts.file.lost if receipts is not None else 0
            with suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), _TICK_S)
    finally:
        heartbeat.cancel()
        await server.stop(listen.drain_s)
        picker.state.tick()
        if receipts is not None:
            receipts.close()
        outbox.close()


def run_picker(arguments: list[str]) -> None:
    """Run one picker process until SIGTERM.

    The arguments are the gateway's folder, this picker's number, and the count of all pickers.
    """
    folder, number, pickers = arguments
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor stops this process
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(Path(folder), int(number), int(pickers)))
