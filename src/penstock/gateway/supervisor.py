"""Supervises a gateway: starts Envoy, the pickers and the scraper, and restarts each process that ends."""

import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from penstock.compiled.library import BUILD_COST, is_ready, load
from penstock.errors import PenstockError, UsageError
from penstock.gateway.child_processes import START_S, Child
from penstock.gateway.envoy.clusters import Value
from penstock.gateway.envoy.config_files import CERTIFICATES, envoy_files, static_document
from penstock.gateway.envoy.envoy_binary import envoy_program, validate
from penstock.gateway.envoy.envoy_config import EnvoySettings
from penstock.gateway.envoy.health_routes import READY_FILE
from penstock.gateway.envoy_admin import ask_admin, envoy_ready, stats
from penstock.gateway.inside_envoy.ended_ring import EndedRing
from penstock.gateway.inside_envoy.module_table import reserve_tables, shared_tables, write_module_table
from penstock.gateway.servers.picker_process import draining_file, run_picker
from penstock.gateway.state.access_rules import access_of
from penstock.gateway.state.addresses import accepts_connections, split_address
from penstock.gateway.state.routed_fleet import RoutedFleet
from penstock.gateway.state.shared_tables import PICKER_STATE, shared_array
from penstock.gateway.telemetry.scraper import write_json
from penstock.routing.records import Records

log = logging.getLogger(__name__)
_FileStamp: TypeAlias = tuple[int, int] | None
"""Pair of a file's modification time in nanoseconds and its size in bytes; None if the file is missing."""
_TURN_S: Final = 0.1
_END_S: Final = 5.0
"""Seconds that a process may run after SIGTERM before it is killed."""
_MISSING_TURNS: Final = 10
_FLUSH_MS: Final = "10"
_ASK_S: Final = 0.2
"""Seconds that Envoy's main thread may take for an answer."""
_ENVOY_SILENT_S: Final = 10.0
"""Seconds without an answer of Envoy's main thread after which Envoy is killed and restarted."""
_BACK_OFF_S: Final = (0.0, 0.2, 1.0, 5.0)
STABLE_UPTIME_S: Final = 10.0
"""Uptime in seconds. A process that ends after more than this uptime is restarted without back-off."""


class Supervisor:
    """The supervisor of one gateway, from start to shutdown."""

    def __init__(
        self,
        settings: EnvoySettings,
        load: Callable[[int], RoutedFleet],
        watched: Path | None,
        *,
        drain_s: float = 30.0,
        grace_s: float = 0.0,
    ) -> None:
        self._settings, self._load, self._watched, self._drain_s = settings, load, watched, drain_s
        self._grace_s = grace_s
        self._generation = 0
        self._stopped = False
        self._asked_to_reload = False
        self._loaded_stamps: tuple[_FileStamp, ...] = ()
        self._last_stamps: tuple[_FileStamp, ...] = ()
        self._missing_turns = 0
        self._heartbeat = 0, 0.0
        """Time stamp of the scraper's last heartbeat, and when it was seen."""
        self._asked_envoy_s = self._envoy_silence_s = 0.0
        self._access_files: tuple[Path, ...] = ()
        """Files with keys that the access file refers to."""
        self._pipes: list[int] = []
        self.children: dict[str, Child] = {}
        self.fleet = load(0)

    def run(self, ready: Callable[[], None] | None = None) -> None:
        """Serve until SIGTERM or SIGINT. After the signal, keep serving for the grace period, and drain.

        SIGINT or a second SIGTERM skips the grace period.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGHUP, self._ask_reload)
        self._prepare()
        try:
            self._start()
            if ready is not None:
                ready()
            while not self._stopped:
                time.sleep(_TURN_S)
                self._check_children()
            self._announce_shutdown()
            self._drain()
        finally:
            self._end()

    def _stop(self, number: int, *_: object) -> None:
        if self._stopped or number == signal.SIGINT:
            self._grace_s = 0.0
        self._stopped = True

    def _ask_reload(self, *_: object) -> None:
        self._asked_to_reload = True

    def _prepare(self) -> None:
        settings = self._settings
        for address in filter(None, (settings.only_pick or settings.listen, settings.metrics)):
            _check_free(address)
        (settings.folder / "xds").mkdir(parents=True, exist_ok=True)
        settings.folder.chmod(0o700)
        access = access_of(settings.access_file)
        self.fleet = self.fleet.with_access(access)
        self._access_files = access.files if access is not None else ()
        self._loaded_stamps = self._last_stamps = self._files()
        for stale in (settings.folder / READY_FILE, draining_file(settings.folder)):
            stale.unlink(missing_ok=True)
        files = envoy_files(self.fleet, settings, access)
        write_files(settings.folder, self.fleet, files)
        if settings.inside:
            shared_array(settings.folder / "pickers.table", PICKER_STATE, (settings.pickers,))
            shared_tables(settings.folder, self.fleet, settings.pickers)
            EndedRing(settings.folder, settings.pickers)
            self._write_module_table(self.fleet, None)
        for number in range(0 if settings.inside else settings.pickers):
            path = settings.pipe(number)
            if not Path(path).exists():
                os.mkfifo(path, 0o600)
            # The supervisor holds the pipe open, so that Envoy always has a reader while a picker restarts.
            self._pipes.append(os.open(path, os.O_RDWR | os.O_NONBLOCK))
        write_json(settings.folder / "timeouts.json", {"min_silence_s": settings.min_silence_s})
        if settings.receipts is not None:
            write_json(settings.folder / "receipts.json", {"path": settings.receipts, "every": settings.receipt_every})
        self._validate(files)
        if settings.only_pick is not None:
            own = settings.certificate
            pair = None if own is None else [str(own.chain.absolute()), str(own.key.absolute())]
            listen = {"address": settings.only_pick, "certificate": pair, "drain_s": self._drain_s}
            write_json(settings.folder / "listen.json", listen)

    def _validate(self, files: dict[str, Value]) -> None:
        """Validate the files with Envoy before any process uses them. Raise an error if Envoy rejects the files."""
        if self._settings.only_pick is None:
            whole = self._settings.folder / "whole.json"
            write_json(whole, static_document(files))
            validate(whole)

    def _start(self) -> None:
        settings, folder, python = self._settings, str(self._settings.folder), sys.executable
        states = shared_array(settings.folder / "pickers.table", PICKER_STATE, (settings.pickers,))
        count = str(settings.pickers)
        # Compile once, here: a picker is a fork of this process, so a restarted picker is ready at once.
        if settings.pick:
            _compile_first()
        numbers = range(settings.pickers if settings.pick and not settings.inside else 0)
        for number in numbers:
            name, arguments = f"picker-{number}", [folder, str(number), count]
            self.children[name] = Child(name, partial(run_picker, arguments), heartbeat_s=_heartbeat_of(states, number))
        scrape = [python, "-m", "penstock.gateway.telemetry.scraper", folder, count, settings.metrics or ""]
        self.children["scraper"] = Child("scraper", scrape, heartbeat_s=self._scraper_heartbeat_s)
        for child in self.children.values():
            child.start()
        self._await(lambda: all(states["alive_s"][n] > 0 for n in numbers), "pickers")
        self._await(lambda: settings.metrics is None or accepts_connections(settings.metrics), "scraper")
        if settings.only_pick is not None:
            return
        envoy = Child("envoy", self._envoy(), heartbeat_s=self._envoy_heartbeat_s, silent_s=_ENVOY_SILENT_S)
        self.children["envoy"] = envoy
        self.children["envoy"].start()
        self._await(lambda: envoy_ready(settings.admin), "envoy")

    def _envoy(self) -> list[str]:
        """Return Envoy's command line."""
        settings, bootstrap = self._settings, str(self._settings.folder / "envoy.json")
        threads = settings.pickers if settings.inside else settings.concurrency
        command = [envoy_program(), "-c", bootstrap, "--disable-hot-restart", "--log-level", "warning"]
        # Envoy logs each requested shutdown as a warning. Log only errors of its main component.
        command += ["--component-log-level", "main:error"]
        command += ["--file-flush-interval-msec", _FLUSH_MS, "--drain-time-s", str(int(max(1, self._drain_s)))]
        return command if threads is None else [*command, "--concurrency", str(threads)]

    def _write_module_table(self, fleet: RoutedFleet, before: RoutedFleet | None) -> None:
        settings, every = self._settings, self._settings.sample_every
        write_module_table(settings.folder, fleet, settings.pickers, settings.min_silence_s, before, sample_every=every)

    def _await(self, is_up: Callable[[], bool], name: str) -> None:
        begun = time.monotonic()
        while not is_up():
            if self._stopped:
                return
            dead = [child.name for child in self.children.values() if child.process is not None and not child.running]
            if dead or time.monotonic() - begun > START_S:
                raise UsageError(f"{dead[0] if dead else name} did not start; see its output above")
            time.sleep(_TURN_S)

    def _scraper_heartbeat_s(self) -> float:
        """Return when the scraper's last heartbeat was seen. The wall clock, which can jump, is not compared."""
        try:
            beat = (self._settings.folder / "scraper.alive").stat().st_mtime_ns
        except OSError:
            return 0.0
        if beat != self._heartbeat[0]:
            self._heartbeat = beat, time.monotonic()
        return self._heartbeat[1]

    def _envoy_heartbeat_s(self) -> float:
        """Ask Envoy's main thread once a second whether it answers, and return when it last did.

        Silence is counted by questions, so that time in which this process did not run is none of Envoy's.
        """
        now_s = time.monotonic()
        if now_s - self._asked_envoy_s >= 1.0:
            self._asked_envoy_s = now_s
            answers = ask_admin(self._settings.admin, "GET", "/ready", _ASK_S) is not None
            self._envoy_silence_s = 0.0 if answers else self._envoy_silence_s + 1.0
        return now_s - self._envoy_silence_s

    def _check_children(self) -> None:
        """Restart processes that ended, and kill processes that hang. Reload the fleet if a watched file changed."""
        now_s = time.monotonic()
        for child in self.children.values():
            if not child.running:
                self._restart(child, now_s)
            elif child.missed_heartbeat(now_s):
                log.warning("%s missed its heartbeat; killing it", child.name)
                child.send(signal.SIGKILL)
        if self.settled(self._files()) or self._asked_to_reload:
            self._asked_to_reload, self._loaded_stamps = False, self._last_stamps
            self.reload()

    def _restart(self, child: Child, now_s: float) -> None:
        if child.wait_until_s == 0.0:
            child.restarts = 0 if now_s - child.started_s > STABLE_UPTIME_S else child.restarts + 1
            child.wait_until_s = now_s + _BACK_OFF_S[min(child.restarts, len(_BACK_OFF_S) - 1)]
            log.warning("%s has exited with %s; restarting it", child.name, child.ending)
        elif now_s >= child.wait_until_s:
            child.wait_until_s = 0.0
            child.start()

    def settled(self, stamps: tuple[_FileStamp, ...]) -> bool:
        """Return whether the watched files changed since they were loaded and are now completely written.

        A file whose modification time and size are equal in two consecutive checks counts as completely written. The
        result is False while a file is missing.
        """
        still, self._last_stamps = stamps == self._last_stamps, stamps
        self._note_missing(stamps)
        return still and stamps != self._loaded_stamps and None not in stamps

    def _note_missing(self, stamps: tuple[_FileStamp, ...]) -> None:
        """Log once that a file is missing. A file that is missing only briefly is being replaced and is not logged."""
        self._missing_turns = self._missing_turns + 1 if None in stamps else 0
        if self._missing_turns == _MISSING_TURNS:
            files = (self._watched, self._settings.access_file, *self._access_files)
            missing = ", ".join(str(path) for path in files if path is not None and not path.exists())
            log.error("%s is missing; the last version stays in use", missing)

    def _files(self) -> tuple[_FileStamp, ...]:
        """Return the modification time and size of each file whose change triggers a reload.

        A missing file has the value None. A missing certificate file has the value (0, 0).
        """
        moved_names = self._settings.folder / "names.moved"
        files = (
            self._watched,
            self._settings.access_file,
            *self._access_files,
            moved_names if moved_names.exists() else None,
        )
        pair = self._settings.certificate
        # A missing certificate does not block a reload, because Envoy keeps the last certificate that it loaded.
        certificate = tuple(_stamp(path) or (0, 0) for path in (pair.chain, pair.key)) if pair is not None else ()
        return (*(_stamp(path) for path in files if path is not None), *certificate)

    def reload(self) -> None:
        """Reload the fleet.

        If a file cannot be read, or Envoy rejects the new configuration, the old fleet stays in use.
        """
        try:
            access = access_of(self._settings.access_file)
            fleet = self._load(self._generation + 1).with_access(access)
            files = envoy_files(fleet, self._settings, access)
            # Validate without certificates. Envoy keeps the last valid one, and an invalid one must not block a reload.
            self._validate({name: content for name, content in files.items() if name != CERTIFICATES})
            if self._settings.inside:
                settings = self._settings
                reserve_tables(settings.folder, fleet, settings.pickers, sample_every=settings.sample_every)
            write_files(self._settings.folder, fleet, files)
            if self._settings.inside:
                self._write_module_table(fleet, self.fleet)
        except PenstockError as error:
            log.error("fleet not reloaded: %s", error)  # noqa: TRY400 - expected error, one line is enough
            return
        except Exception:
            log.exception("fleet not reloaded because of an internal error; the last version stays in use")
            return
        self._generation += 1
        self.fleet, self._access_files = fleet, access.files if access is not None else ()
        for name, child in self.children.items():
            if name != "envoy":
                child.send(signal.SIGHUP)
        # Delete the tables from two reloads ago. A process that still maps such a table can use it until it has read
        # the new fleet.
        for path in self._settings.folder.glob(f"*-{self._generation - 2}.table"):
            path.unlink()
        log.warning("fleet reloaded: %d endpoints", len(fleet.addresses))

    def _announce_shutdown(self) -> None:
        """Fail health checks and keep serving for the grace period, in which load balancers notice the shutdown."""
        draining_file(self._settings.folder).touch()
        begun_s = time.monotonic()
        while True:
            # Repeat this in every iteration, because a restarted Envoy has lost the setting.
            ask_admin(self._settings.admin, "POST", "/healthcheck/fail")
            if time.monotonic() - begun_s >= self._grace_s:
                return
            time.sleep(_TURN_S)
            self._check_children()

    def _drain(self) -> None:
        """Make Envoy accept no new connections, and wait up to `drain_s` seconds for its requests in flight.

        Do nothing if the gateway runs no Envoy. Without Envoy, each picker drains when it ends.
        """
        if "envoy" not in self.children:
            return
        ask_admin(self._settings.admin, "POST", "/drain_listeners?graceful&skip_exit")
        begun = time.monotonic()
        while time.monotonic() - begun < self._drain_s and self.children["envoy"].running:
            active = stats(self._settings.admin, "http.clients.downstream_rq_active")
            if not sum(active.values()):
                return
            time.sleep(_TURN_S)

    def _end(self) -> None:
        """End Envoy, then all pickers at once, then the scraper.

        If the gateway runs no Envoy, pickers may take `drain_s` seconds longer, to wait for requests in flight.
        """
        last = {"envoy": 0, "scraper": 2}
        for turn in range(3):
            children = [child for name, child in self.children.items() if last.get(name, 1) == turn]
            for child in children:
                child.send(signal.SIGTERM)
            for child in children:
                child.wait(_END_S if "envoy" in self.children else _END_S + self._drain_s)
        for descriptor in self._pipes:
            os.close(descriptor)


def _compile_first() -> None:
    if not is_ready():
        log.warning("compiling the policy, once per machine and version: %s", BUILD_COST)
    load()


def _check_free(address: str) -> None:
    """Raise an error if a port is in use.

    Without this check, two Envoys could share the port, and requests could reach the wrong fleet.
    """
    host, port = split_address(address)
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise UsageError(f"cannot listen on {address}: {error.strerror or error}; choose another port") from None


def _heartbeat_of(states: Records, number: int) -> Callable[[], float]:
    return lambda: float(states["alive_s"][number])


def _stamp(path: Path) -> _FileStamp:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size  # two versions written within one clock tick usually have different sizes


def write_files(folder: Path, fleet: RoutedFleet, files: dict[str, Value]) -> None:
    """Write the fleet file for the pickers and the scraper, and the configuration files for Envoy."""
    fleet.write(folder / "fleet.bin")
    for name, content in files.items():
        if name != READY_FILE or not (folder / name).exists():
            write_json(folder / name, content)
