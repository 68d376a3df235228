"""How does a process end with its parent? By Linux's parent-death signal; elsewhere it looks at who its parent is."""

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
"""Whether the kernel ends orphans itself, also programs that know nothing of it."""


def end_with_parent(parent: int) -> None:
    """Have this process killed when its parent ends, whatever ended it; to be called first in a child.

    `parent` is the parent's process id as it was before the fork: a parent that ended since then is noticed. Linux
    counts the thread that forked as the parent, so that must be one that lasts, as the supervisor's main thread does.
    """
    if _PRCTL is None:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    elif _PRCTL(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "the kernel does not take a parent-death signal")
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    os.kill(os.getpid(), signal.SIGKILL)


def guarded(command: list[str]) -> list[str]:
    """Write a command that runs another one and ends it with this process, where the kernel does not."""
    return [sys.executable, "-m", "penstock.gateway.parent_death", str(os.getpid()), *command]


def main(arguments: list[str]) -> int:
    """Run a command until it ends or the parent does; pass signals on to it."""
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
