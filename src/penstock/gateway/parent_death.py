"""Ends a process when its parent ends. Uses Linux's parent-death signal, or else polls the parent's process id."""

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
"""True if the kernel can kill a process when its parent ends.

The parent-death signal works for any program, not only for Python.
"""


def end_with_parent(parent: int) -> None:
    """Arrange that this process is killed when its parent ends for any reason.

    A child process calls this function first. `parent` is the parent's process id, read before the fork. If the parent
    has already ended, this process is killed at once. Linux treats the forking thread as the parent. The thread that
    forks must therefore live as long as the parent process, as the supervisor's main thread does.
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
    """Return a command that runs `command` and ends it when this process ends.

    The returned command is for kernels without a parent-death signal.
    """
    return [sys.executable, "-m", "penstock.gateway.parent_death", str(os.getpid()), *command]


def main(arguments: list[str]) -> int:
    """Run a command, and kill it if the parent process ends. Forward SIGTERM, SIGINT and SIGHUP to the command.

    The first argument is the parent's process id, and the others are the command. Return the command's exit status.
    """
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
