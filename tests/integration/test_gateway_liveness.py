"""Pickers that do not listen are detected through the socket that Envoy uses."""

import asyncio
import json
import os
import signal
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from ports import free_ports

pytest.importorskip("httptools", reason='the gateway is an extra: pip install "penstock[gateway]"')

from gateway_stack import Answers, Running, chat, running


def until(there: Callable[[], bool], seconds: float = 15.0) -> None:
    begun = time.monotonic()
    while not there():
        assert time.monotonic() - begun < seconds
        time.sleep(0.2)


def decided(stack: Running) -> float:
    page = urllib.request.urlopen(f"http://{stack.stack.metrics}/metrics", timeout=5).read().decode()
    return sum(float(line.split()[-1]) for line in page.splitlines() if line.startswith("penstock_decisions_total{"))


@pytest.mark.parametrize("protocol", ["ext_proc", "ext_proc_buffered"])
def test_a_reload_before_the_first_request_leaves_pickers_listening(tmp_path: Path, protocol: str) -> None:
    metrics = f"127.0.0.1:{free_ports(1)[0]}"
    with running(tmp_path, protocol=protocol, pickers=2, metrics=metrics, own_log=str(tmp_path / "own.log")) as stack:
        stack.processes["gateway"].send_signal(signal.SIGHUP)
        until(lambda: "fleet reloaded" in (tmp_path / "own.log").read_text())
        time.sleep(1.0)
        seen = asyncio.run(stack.load(40, 4))
        assert seen.failed == 0
        until(lambda: decided(stack) > 20)  # on a busy machine one or the other comes too late
        for number in range(2):
            (Path(stack.stack.folder) / f"picker-{number}.sock").unlink()
        before = set(stack.children("picker"))
        until(lambda: not before & set(stack.children("picker")) and len(stack.children("picker")) == 2)
        time.sleep(1.5)
        assert asyncio.run(stack.load(20, 4)).failed == 0
        until(lambda: decided(stack) > 10)


def test_dead_pickers_behind_ext_proc_lose_few_requests_and_errors_are_json(
    tmp_path: Path,
) -> None:
    def kill(pids: list[int]) -> None:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    async def dying(stack: Running, pids: list[int]) -> Answers:
        return await stack.load_during(lambda: kill(pids), 100, 3)

    with running(tmp_path, protocol="ext_proc", pickers=2) as stack:
        # A question that was half answered when its picker died is not asked again: docs/evidence.md.
        one = asyncio.run(dying(stack, stack.children("picker")[:1]))
        assert one.failed <= 1, (one.statuses, one.cut)
        assert set(one.statuses) <= {200, 500}
        until(lambda: len(stack.children("picker")) == 2)
        time.sleep(1.0)
        assert asyncio.run(dying(stack, stack.children("picker"))).failed <= 2
        stack.fault("die")
        time.sleep(1.0)
        status, body = asyncio.run(stack.ask(chat()))
        assert status == 503
        assert json.loads(body)["error"]["code"] == 503
