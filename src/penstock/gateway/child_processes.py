"""What are a gateway's processes? Programs, or copies of the supervisor; each ends with it."""

import os
import signal
import subprocess
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from penstock.gateway.parent_death import HAS_SIGNAL, end_with_parent, guarded

_SILENT_S: Final = 3.0
"""A picker or scraper that gives no sign of life for so long is ended and started again."""
START_S: Final = 90.0
"""Until all is up: a machine that compiles the policy for the first time takes half a minute."""


class Forked:
    """A process that began as a copy of this one, with everything compiled."""

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
            except BaseException:  # noqa: BLE001 - the last frame of a process: all that is left is to say so
                traceback.print_exc()
            finally:
                os._exit(status)

    def poll(self) -> int | None:
        """Its exit status; None while it runs."""
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = os.waitstatus_to_exitcode(status) if pid else None
        return self._status

    def send_signal(self, number: int) -> None:
        """Tell it something."""
        os.kill(self.pid, number)


@dataclass(slots=True, eq=False)
class Child:
    """One process of the gateway: a program, or a copy of this process that calls something."""

    name: str
    command: list[str] | Callable[[], None]
    process: "subprocess.Popen[bytes] | Forked | None" = None
    started_s: float = 0.0
    restarts: int = 0
    wait_until_s: float = 0.0
    signs: Callable[[], float] | None = None
    """When it last gave a sign of life, by the monotonic clock."""

    def start(self) -> None:
        """Start it, apart from the terminal's signals; it ends with this process."""
        self.started_s = time.monotonic()
        if callable(self.command):
            self.process = Forked(self.command)
        else:
            # What is ignored here stays so until the program listens: a reload must not end one that is starting.
            before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
            command = self.command if HAS_SIGNAL else guarded(self.command)
            with_parent = partial(end_with_parent, os.getpid()) if HAS_SIGNAL else None
            self.process = subprocess.Popen(  # noqa: S603 - own programs
                command,
                start_new_session=True,
                preexec_fn=with_parent,  # noqa: PLW1509 - one call of the kernel's, which takes no lock
            )
            signal.signal(signal.SIGHUP, before)

    @property
    def running(self) -> bool:
        """Whether it runs."""
        return self.process is not None and self.process.poll() is None

    def silent(self, now_s: float) -> bool:
        """Whether it gives no sign of life, though it has had the time to."""
        if self.signs is None:
            return False
        last_s = self.signs()
        allowed_s = _SILENT_S if last_s > self.started_s else START_S
        return now_s - max(last_s, self.started_s) > allowed_s

    def tell(self, number: signal.Signals) -> None:
        """Send it a signal, where it runs; one that cannot be passed on goes to all of its session."""
        if self.process is None or not self.running:
            return
        if number == signal.SIGKILL and not HAS_SIGNAL:
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)

    def wait(self, seconds: float) -> None:
        """Wait for its end, and kill it where that takes longer."""
        begun_s = time.monotonic()
        while self.running:
            if time.monotonic() - begun_s > seconds:
                self.tell(signal.SIGKILL)
            time.sleep(0.01)
