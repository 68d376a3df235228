"""Two models take turns on one emulated device behind a real Envoy: the gateway wakes them, and no request is lost."""

import asyncio
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ports import free_ports

pytest.importorskip("httptools", reason='the gateway is an extra: pip install "penstock[gateway]"')

from gateway_stack import chat, until
from penstock.api.arguments.shared_device_argument import swapping_devices
from penstock.fleet.fleet_file import read_fleet, write_fleet
from shared_fleets import MODELS, shared_fleet

_READY_S = 60.0


def answers(url: str) -> bool:
    try:
        return bool(urllib.request.urlopen(url, timeout=2).status == 200)  # noqa: S310 - http
    except OSError:
        return False


@contextmanager
def gateway(folder: Path) -> Iterator[tuple[str, str]]:
    """Start `penstock emulate` and `penstock route` for a fleet file; yield the addresses of clients and metrics."""
    first, listen, metrics = free_ports(3)
    (folder / "fleet.yaml").write_text(write_fleet(shared_fleet(40 * 2**30)), encoding="utf-8")
    run = [sys.executable, "-m", "penstock"]
    parts = [
        [*run, "emulate", "fleet.yaml", "--port", str(first), "--write", "running.yaml"],
        [*run, "route", "running.yaml", "--listen", f"127.0.0.1:{listen}", "--metrics", f"127.0.0.1:{metrics}"],
    ]
    started = []
    try:
        started.append(subprocess.Popen(parts[0], cwd=folder))
        until((folder / "running.yaml").exists, _READY_S)
        started.append(subprocess.Popen(parts[1], cwd=folder))
        until(lambda: answers(f"http://127.0.0.1:{listen}/ready"), _READY_S)
        yield f"127.0.0.1:{listen}", f"127.0.0.1:{metrics}"
    finally:
        for process in reversed(started):
            process.send_signal(signal.SIGTERM)
        for process in reversed(started):
            process.wait(60)


def metric(metrics: str, name: str, model: str = "") -> float:
    page = urllib.request.urlopen(f"http://{metrics}/metrics", timeout=5).read().decode()
    return sum(float(line.split()[-1]) for line in page.splitlines() if re.match(f"{name}.*{model}", line))


def ask(listen: str, model: str) -> float:
    """Ask for one token and return the seconds until the answer."""
    begun_s = time.monotonic()
    request = urllib.request.Request(f"http://{listen}/v1/chat/completions", chat(1, model=model))
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - http
        assert answer.status == 200
        answer.read()
    return time.monotonic() - begun_s


async def ask_together(listen: str, count: int) -> list[float]:
    return await asyncio.gather(*(asyncio.to_thread(ask, listen, MODELS[at % 2]) for at in range(count)))


@pytest.mark.timed
def test_models_that_take_turns_are_woken_and_no_request_is_lost(tmp_path: Path) -> None:
    with gateway(tmp_path) as (listen, metrics):
        (device,) = swapping_devices(read_fleet((tmp_path / "running.yaml").read_text(), "running.yaml"))
        wake_s, sleep_s = device.models[0].wake_s, device.models[0].sleep_s
        assert metric(metrics, "penstock_endpoint_asleep") == 2
        first_s = ask(listen, MODELS[0])
        assert wake_s <= first_s < wake_s + 2.0
        warm_s = min(ask(listen, MODELS[0]) for _ in range(3))
        assert warm_s < wake_s / 2
        for turn in range(1, 5):  # each request is for the model that sleeps
            cold_s = ask(listen, MODELS[turn % 2])
            assert cold_s >= wake_s + sleep_s
        until(lambda: metric(metrics, "penstock_wakes_total") == 5)
        seconds = metric(metrics, "penstock_wake_seconds_total") / 5
        assert wake_s - 0.01 <= seconds < wake_s + 1.0  # timers have a resolution of 1 ms
        assert metric(metrics, "penstock_predicted_ttft_seconds_total") >= 5 * wake_s
        # Both models at once: both are served, one after the other, and each is woken once or stays awake.
        before = metric(metrics, "penstock_wakes_total")
        assert len(asyncio.run(ask_together(listen, 20))) == 20
        assert metric(metrics, "penstock_wakes_total") - before <= 4
        assert metric(metrics, "penstock_failed_answers_total") == 0
        assert metric(metrics, "penstock_endpoint_asleep") == 1
