"""Configurations that Envoy rejects are not adopted; a killed supervisor leaves no process."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httptools", reason='the gateway is an extra: pip install "penstock[gateway]"')

from gateway_stack import Running, chat, running

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


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


NO_PORT = "127.0.0.1:99999"


@pytest.fixture(scope="module", params=["module", "ext_proc_buffered"])
def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("supervisor")
    files = {"watched": str(folder / "addresses.json"), "own_log": str(folder / "own.log")}
    more: dict[str, Any] = {**files, "pickers": 2, "protocol": request.param, "grace_s": 60.0, "real": (NO_PORT,)}
    with running(folder, endpoints=2, **more) as started:
        yield started


def test_a_fleet_that_envoy_rejects_is_not_adopted(stack: Running) -> None:
    """One line says why; pickers, scraper and Envoy go on with the fleet they have."""
    assert stack.stack.watched is not None
    assert stack.stack.own_log is not None
    watched, log, kept = Path(stack.stack.watched), Path(stack.stack.own_log), Path(stack.stack.folder) / "fleet.bin"
    fleet, words = kept.read_bytes(), log.read_text()
    watched.write_text(json.dumps([*stack.stack.addresses, NO_PORT]))
    until(lambda: "fleet not reloaded" in log.read_text(), 15)
    time.sleep(0.5)  # as long as Envoy takes to read files that change
    (said,) = log.read_text().removeprefix(words).splitlines()
    assert "fleet not reloaded: Envoy rejects the configuration: " in said
    assert "LbEndpoints[2].Endpoint.Address.SocketAddress.PortValue: value must be less than or equal to 65535" in said
    assert kept.read_bytes() == fleet
    assert "99999" not in (Path(stack.stack.folder) / "xds" / "eds-0.json").read_text()
    assert asyncio.run(stack.load(20, 4)).failed == 0
    watched.write_text(json.dumps(stack.stack.addresses[::-1]))
    until(lambda: "fleet reloaded: 2 endpoints" in log.read_text(), 15)
    assert kept.read_bytes() != fleet
    assert asyncio.run(stack.load(20, 4)).failed == 0


def test_a_hung_envoy_is_restarted(stack: Running) -> None:
    """Attack: an Envoy that was stopped for 15 s was neither told of nor killed."""
    (envoy,) = stack.children("envoy")
    assert stack.stack.own_log is not None
    log = Path(stack.stack.own_log)
    os.kill(envoy, signal.SIGSTOP)
    time.sleep(4.0)
    assert stack.children("envoy") == [envoy]  # it may be short of time
    until(lambda: "envoy missed its heartbeat" in log.read_text(), 20)
    until(lambda: stack.children("envoy") not in ([], [envoy]), 10)
    until(lambda: asyncio.run(stack.ask(chat()))[0] == 200, 20)


def test_a_killed_supervisor_leaves_no_process_and_the_same_command_starts_again(stack: Running) -> None:
    parts = {name: stack.children(name) for name in ("envoy", "picker", "scraper")}
    assert {name: len(pids) for name, pids in parts.items()} == {
        "envoy": 1,
        "picker": 0 if stack.stack.protocol == "module" else 2,
        "scraper": 1,
    }
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
