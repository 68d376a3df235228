"""A supervisor that is killed takes its processes with it, and the same command starts again."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("httptools", reason='the gateway is an extra: pip install "penstock[gateway]"')

from gateway_stack import chat, running

pytestmark = [
    pytest.mark.xdist_group("gateway"),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]


def until(there: Callable[[], bool], seconds: float) -> float:
    begun = time.monotonic()
    while not there():
        assert time.monotonic() - begun < seconds
        time.sleep(0.01)
    return time.monotonic() - begun


def runs(pid: int) -> bool:
    """Whether a process is there and not just waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_killed_supervisor_leaves_no_process_and_the_same_command_starts_again(tmp_path: Path) -> None:
    with running(tmp_path, endpoints=2, pickers=2, grace_s=60.0) as stack:
        parts = {name: stack.children(name) for name in ("envoy", "picker", "scraper")}
        assert {name: len(pids) for name, pids in parts.items()} == {"envoy": 1, "picker": 2, "scraper": 1}
        os.kill(stack.processes["gateway"].pid, signal.SIGKILL)
        stack.processes["gateway"].wait(5)
        try:
            until(lambda: not any(runs(pid) for pids in parts.values() for pid in pids), 3)
        finally:
            for pid in (pid for pids in parts.values() for pid in pids if runs(pid)):
                os.kill(pid, signal.SIGKILL)
        stack.start_gateway()
        assert asyncio.run(stack.ask(chat()))[0] == 200
        assert asyncio.run(stack.load(20, 4)).failed == 0
        # Whoever ends it at a terminal is not kept waiting for load balancers.
        stack.processes["gateway"].send_signal(signal.SIGINT)
        assert stack.processes["gateway"].wait(20) == 0
