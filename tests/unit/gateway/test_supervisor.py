"""Child processes, and reloads of the fleet and access files."""

import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("httptools", reason='the gateway is an extra: pip install "penstock[gateway]"')

from gateway_fakes import fleet
from penstock.errors import UsageError
from penstock.gateway.child_processes import Child
from penstock.gateway.envoy.envoy_config import EnvoySettings
from penstock.gateway.state.routed_fleet import RoutedFleet
from penstock.gateway.supervisor import Supervisor
from penstock.reading.text import read_text


def test_a_reload_does_not_end_a_program_that_is_still_starting() -> None:
    child = Child("slow", [sys.executable, "-c", "import time; time.sleep(30)"])
    child.start()
    try:
        child.send(signal.SIGHUP)
        time.sleep(0.3)
        assert child.running
    finally:
        child.send(signal.SIGKILL)
        child.wait(5)


@pytest.mark.parametrize(
    ("ends", "told"), [("raise SystemExit(3)", "status 3"), ("os.kill(os.getpid(), 11)", "SIGSEGV")]
)
def test_a_child_says_how_it_ended(ends: str, told: str) -> None:
    child = Child("short", [sys.executable, "-c", f"import os; {ends}"])
    child.start()
    child.wait(10.0)
    assert child.ending == told


def test_a_missing_fleet_file_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = EnvoySettings(listen="127.0.0.1:1", folder=tmp_path, pickers=1)
    supervisor = Supervisor(settings, lambda _: fleet(), tmp_path / "fleet.yaml")
    for _ in range(5):
        supervisor.settled((None,))
    supervisor.settled(((1, 1),))  # it was being replaced
    assert not caplog.records
    for _ in range(50):
        supervisor.settled((None,))
    assert [record.message for record in caplog.records] == [
        f"{tmp_path}/fleet.yaml is missing; the last version stays in use"
    ]


def test_a_file_is_reloaded_once_it_is_stable(tmp_path: Path) -> None:
    settings = EnvoySettings(listen="127.0.0.1:1", folder=tmp_path, pickers=1)
    supervisor = Supervisor(settings, lambda _: fleet(), tmp_path / "fleet.yaml")
    looks: list[tuple[int, int] | None] = [None, (1, 0), (1, 80), (2, 120), (2, 120)]
    assert [supervisor.settled((look,)) for look in looks] == [False, False, False, False, True]


@pytest.mark.parametrize("failure", [UsageError("half a file"), ValueError("half a line"), OSError("a disk")])
def test_a_failed_reload_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture, failure: Exception) -> None:
    def read(made: int) -> RoutedFleet:
        if made:
            raise failure
        return fleet()

    supervisor = Supervisor(EnvoySettings(listen="127.0.0.1:1", folder=tmp_path, pickers=1), read, None)
    supervisor.reload()
    assert "fleet not reloaded" in caplog.records[0].message


def test_the_access_file_is_read_once_per_reload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read twice, it could be one file for Envoy and another for who watches what it names."""
    access, seen = tmp_path / "access.yaml", list[str]()
    (tmp_path / "xds").mkdir()
    for name in ("first.json", "second.json"):
        (tmp_path / name).write_text('{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}')

    def counted(path: Path, remedy: str) -> str:
        seen.append(path.name)
        return read_text(path, remedy)

    monkeypatch.setattr("penstock.gateway.state.access_rules.read_text", counted)
    settings = EnvoySettings(listen="127.0.0.1:1", folder=tmp_path, pickers=1, access_file=access)
    supervisor = Supervisor(settings, lambda made: replace(fleet(), generation=made), None)
    for name in ("first.json", "second.json"):
        seen.clear()
        access.write_text(f"version: 1\ntokens: {{issuer: me, audiences: [us], jwks: {name}}}\n")
        supervisor.reload()
        assert seen.count("access.yaml") == seen.count(name) == 1
        assert supervisor._access_files == (tmp_path / name,)  # noqa: SLF001 - what is watched from then on
