"""A process ends with its parent, by the kernel's signal or by polling."""

import os
import signal
import subprocess
import sys
import time

import pytest

from penstock.gateway.parent_death import guard

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX processes")
_PARENT = """
import subprocess, sys, time
from penstock.gateway.parent_death import guard
print(subprocess.Popen(guard([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"])).pid)
sys.stdout.flush()
time.sleep(60)
"""


def test_a_child_ends_if_its_parent_ended_first() -> None:
    said = f"from penstock.gateway.parent_death import end_with_parent; end_with_parent({os.getpid()}{{}})"
    ended = [
        subprocess.run([sys.executable, "-c", said.format(other)], check=False).returncode
        for other in ("", " + 1")  # the parent's id, and one of another process
    ]
    assert ended == [0, -signal.SIGKILL]


def test_a_guarded_program_ends_with_the_process_that_started_it() -> None:
    """Where the kernel does not end orphans, a process between them looks for the parent."""
    parent = subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    lines = {parent.stdout.readline(), parent.stdout.readline()}
    assert b"up\n" in lines
    parent.kill()
    parent.wait(5)
    # The program and its guard hold the pipe open until they end.
    begun = time.monotonic()
    assert parent.stdout.read() == b""
    assert time.monotonic() - begun < 5
    parent.stdout.close()


def test_a_guard_passes_signals_and_the_exit_status_on() -> None:
    wait = "print('up', flush=True); time.sleep(60)"
    program = f"import signal, time; signal.signal(signal.SIGTERM, lambda *_: exit(7)); {wait}"
    child = subprocess.Popen(guard([sys.executable, "-c", program]), stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"up\n"
    child.send_signal(signal.SIGTERM)
    assert child.wait(5) == 7
    child.stdout.close()
