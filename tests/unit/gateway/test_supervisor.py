"""What the supervisor starts, and what it tells it."""

import signal
import sys
import time

import pytest

pytest.importorskip("httptools", reason='the gateway is an extra: pip install "penstock[gateway]"')

from penstock.gateway.supervisor import Child


def test_a_reload_does_not_end_a_program_that_is_still_starting() -> None:
    child = Child("slow", [sys.executable, "-c", "import time; time.sleep(30)"])
    child.start()
    try:
        child.tell(signal.SIGHUP)
        time.sleep(0.3)
        assert child.running
    finally:
        child.tell(signal.SIGKILL)
        assert child.process is not None
        child.process.wait(5)
