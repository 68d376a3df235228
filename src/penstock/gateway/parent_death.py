"""Ends a process when its parent ends: by Linux's parent-death signal, or by polling the parent's process id."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from types import FrameType
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_LOOK_S: Final = 0.5
_PRCTL: Final = ctypes.CDLL(None, use_errno=True).prctl if sys.platform == "linux" else None
HAS_SIGNAL: Final = _PRCTL is not None
"""True if the kernel can kill a process when its parent ends, even a program that does not use this module."""


def end_with_parent(parent: int) -> None:
    """Kill this process when its parent ends for any reason. Call this first in a child.

    `parent` is the parent's process id from before the fork, so a parent that ended since then is noticed. Linux treats
    the forking thread as the parent. That thread must therefore live as long as the process, as the supervisor's main
    thread does.
    """
    if _PRCTL is None:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    elif _PRCTL(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "the kernel rejects PR_SET_PDEATHSIG")
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    os.kill(os.getpid(), signal.SIGKILL)


def guard(command: list[str]) -> list[str]:
    """Return a command that runs `command` and ends it when this process ends. For kernels without the signal."""
    return [sys.executable, "-m", "penstock.gateway.parent_death", str(os.getpid()), *command]


def main(arguments: list[str]) -> int:
    """Run a command until it or the parent ends. Forward SIGTERM, SIGINT and SIGHUP to it."""
    parent, *command = arguments
    child = subprocess.Popen(command)  # noqa: S603 - own programs

    def pass_on(number: int, frame: FrameType | None) -> None:
        del frame
        child.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, pass_on)
    while child.poll() is None:
        if os.getppid() != int(parent):
            child.kill()
        try:
            child.wait(_LOOK_S)
        except subprocess.TimeoutExpired:
            continue
    return child.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
