"""Runs the child processes of a gateway's supervisor. Each child process ends when the supervisor ends."""

import os
import signal
import subprocess
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from penstock.gateway.parent_death import HAS_SIGNAL, end_with_parent, guard

_SILENT_S: Final = 3.0
START_S: Final = 90.0
"""Timeout in seconds for the start of a process. The first compilation of the policy takes half a minute."""


class Forked:
    """Child process, forked from this process, that calls one function.

    All code is already compiled when the fork starts.
    """

    def __init__(self, call: Callable[[], None]) -> None:
        self._status: int | None = None
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                os.setsid()
                end_with_parent(parent)
                call()
                status = 0
            except BaseException:  # noqa: BLE001 - last frame of the process: it can only print the error
                traceback.print_exc()
            finally:
                os._exit(status)

    def poll(self) -> int | None:
        """Return the exit status, or None while the process runs."""
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = os.waitstatus_to_exitcode(status) if pid else None
        return self._status

    def send_signal(self, number: int) -> None:
        """Send the process a signal."""
        os.kill(self.pid, number)


@dataclass(slots=True, eq=False)
class Child:
    """One process of the gateway: a program, or a fork of this process that calls a function."""

    name: str
    command: list[str] | Callable[[], None]
    process: "subprocess.Popen[bytes] | Forked | None" = None
    started_s: float = 0.0
    restarts: int = 0
    wait_until_s: float = 0.0
    heartbeat_s: Callable[[], float] | None = None
    """Function that returns the time of the last heartbeat, in seconds of the monotonic clock.

    None if the process writes no heartbeat.
    """
    silent_s: float = _SILENT_S
    """Seconds without a heartbeat after which the process is killed and restarted."""

    def start(self) -> None:
        """Start the process in a new session, so that signals from the terminal do not reach it."""
        self.started_s = time.monotonic()
        if callable(self.command):
            self.process = Forked(self.command)
        else:
            # The program inherits that SIGHUP is ignored, until it installs a handler. So a reload does not end a
            # program that is still starting.
            before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
            command = self.command if HAS_SIGNAL else guard(self.command)
            with_parent = partial(end_with_parent, os.getpid()) if HAS_SIGNAL else None
            self.process = subprocess.Popen(  # noqa: S603 - own programs
                command,
                start_new_session=True,
                umask=0o077,  # an access log names tenants
                preexec_fn=with_parent,  # noqa: PLW1509 - a single system call that takes no lock
            )
            signal.signal(signal.SIGHUP, before)

    @property
    def running(self) -> bool:
        """True while the process runs."""
        return self.process is not None and self.process.poll() is None

    @property
    def ending(self) -> str:
        """How the process ended: its exit status, or the signal that killed it."""
        status = None if self.process is None else self.process.poll()
        if status is None or status >= 0:
            return f"status {status}"
        return signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"

    def missed_heartbeat(self, now_s: float) -> bool:
        """Return whether the last heartbeat is too old. The first heartbeat may take START_S seconds."""
        if self.heartbeat_s is None:
            return False
        last_s = self.heartbeat_s()
        allowed_s = self.silent_s if last_s > self.started_s else START_S
        return now_s - max(last_s, self.started_s) > allowed_s

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process if it runs.

        If the kernel has no parent-death signal, SIGKILL goes to the whole process group of the child.
        """
        if self.process is None or not self.running:
            return
        if number == signal.SIGKILL and not HAS_SIGNAL:
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)

    def wait(self, seconds: float) -> None:
        """Wait until the process has ended. If the process still runs after `seconds`, kill it."""
        begun_s = time.monotonic()
        while self.running:
            if time.monotonic() - begun_s > seconds:
                self.send(signal.SIGKILL)
            time.sleep(0.01)
