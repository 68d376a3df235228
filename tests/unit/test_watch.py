"""A wait is shown on a terminal after one second, and never in a pipe or on stdout."""

import os
import pty
import subprocess
import sys

CODE = """
import time
from penstock.cli import console
console.DELAY_S = 0.2
with console.Watch("computing the answer") as watch:
    watch.progress("first step", 0, 2)
    time.sleep({seconds})
    watch.message("a message")
print("result")
"""


def run_in_terminal(seconds: float) -> tuple[str, str]:
    """Return stdout, which is a pipe, and stderr, which is a terminal."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    code = [sys.executable, "-c", CODE.format(seconds=seconds)]
    result = subprocess.run(code, stdout=subprocess.PIPE, stderr=theirs, text=True, check=True, env=env)
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    return result.stdout, shown.decode()


def test_a_long_wait_is_shown_on_a_terminal_and_leaves_stdout_alone() -> None:
    stdout, stderr = run_in_terminal(1.0)
    assert stdout == "result\n"
    assert "first step" in stderr
    assert "a message" in stderr


def test_a_short_wait_is_not_shown() -> None:
    stdout, stderr = run_in_terminal(0)
    assert stdout == "result\n"
    assert "first step" not in stderr


def test_a_pipe_gets_messages_only() -> None:
    code = [sys.executable, "-c", CODE.format(seconds=0.6)]
    result = subprocess.run(code, capture_output=True, text=True, check=True)
    assert (result.stdout, result.stderr) == ("result\n", "a message\n")
