"""What the supervisor starts, and what it tells it."""

import signal
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("httptools", reason='the gateway is an extra: pip install "penstock[gateway]"')

from desks import fleet
from penstock.gateway.envoy.config import EnvoySettings
from penstock.gateway.supervisor import Child, Supervisor


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


def test_a_fleet_file_that_is_gone_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = EnvoySettings(listen="127.0.0.1:1", folder=tmp_path, pickers=1)
    supervisor = Supervisor(settings, lambda _: fleet(), tmp_path / "fleet.yaml")
    for _ in range(5):
        supervisor.note_missing((0,))
    supervisor.note_missing((1,))  # it was being replaced
    assert not caplog.records
    for _ in range(50):
        supervisor.note_missing((0,))
    assert [record.message for record in caplog.records] == [
        f"{tmp_path}/fleet.yaml cannot be found any more; what was read last stays"
    ]
