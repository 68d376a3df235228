"""A gateway's tables have room or are refused, and no gateway removes the folder of another one that runs."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest

from ports import free_ports

pytest.importorskip("httptools", reason='the gateway is an extra: pip install "penstock[gateway]"')

from gateway_stack import Answers, Running, Stack, chat, until

MODEL, MEMORY = "llama-3.1-8b", "/dev/shm"  # noqa: S108 - where gateways make their folders
UNSHARE = shutil.which("unshare")
FLEET = """\
version: 1
name: folder
nodes: [{accelerator: h100_sxm, site: site, nodes: 1, spare_nodes: 0}]
pools:
- {name: h100, model: llama-3.1-8b, weights: bf16, kv: bf16, accelerator: h100_sxm, vendor: nvidia, site: site,
   replicas: 2, split: {tp: 1, pp: 1, dp: 1, ep: false}, engine: {name: vllm, version: 0.32.0, settings: {}},
   role: both, usd_per_hour: 2.5, endpoints: [%s]}
routes:
- {workload: chat, input_tokens: 1024, output_tokens: 200, peak_requests_per_s: 20.0, weights: {h100: 1.0},
   slo: {ttft_s: 10.0, tpot_s: 0.5, e2e_s: null, attainment_fraction: 0.95}}
"""


def isolated(*flags: str, first: str = "true") -> list[str]:
    """The start of a command that runs in namespaces of its own, after a shell command there."""
    if UNSHARE is None or subprocess.run([UNSHARE, *flags, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine allows no namespaces")
    return [UNSHARE, *flags, "sh", "-c", f'{first} && exec "$@"', "sh"]


@pytest.fixture(autouse=True)
def endpoints(tmp_path: Path) -> Iterator[Running]:
    control, *ports = free_ports(3)
    addresses = tuple(f"127.0.0.1:{port}" for port in ports)
    stack = Stack(listen="127.0.0.1:0", control=f"127.0.0.1:{control}", addresses=addresses, models=(MODEL,))
    told = tmp_path / "stack.json"
    told.write_text(json.dumps(asdict(stack)))
    (tmp_path / "fleet.yaml").write_text(FLEET % ", ".join(f'"{one}"' for one in addresses))
    started = Running(stack, {}, told)
    started.start("endpoints")
    try:
        yield started
    finally:
        started.processes["endpoints"].terminate()
        started.processes["endpoints"].wait(20)


@contextmanager
def gateway(folder: Path, *before: str, number: int = 0) -> Iterator[tuple[Running, "subprocess.Popen[bytes]", Path]]:
    """Run `penstock route` in front of the endpoints, and wait until it routes or has ended."""
    listen, metrics = (f"127.0.0.1:{port}" for port in free_ports(2))
    words = folder / f"words-{number}"
    route = [
        sys.executable,
        "-m",
        "penstock",
        "route",
        str(folder / "fleet.yaml"),
        "--listen",
        listen,
        "--workers",
        "2",
    ]
    with words.open("wb") as said:
        process = subprocess.Popen([*before, *route, "--metrics", metrics, "--drain-grace", "0"], stderr=said)
    stack = Stack(listen=listen, control="", addresses=(), metrics=metrics)
    try:
        until(lambda: "routing on" in words.read_text() or process.poll() is not None, 120)
        yield Running(stack, {"gateway": process}), process, words
    finally:
        if process.poll() is None:
            inner = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            for pid in inner if "--fork" in before else [str(process.pid)]:
                os.kill(int(pid), signal.SIGTERM)
            process.wait(45)


async def long_prompts(stack: Running, count: int) -> Answers:
    seen, left = Answers(), iter(range(count))

    async def client() -> None:
        for number in left:
            body = chat(prompt=f"{number} " + "x" * 20_000, model=MODEL)
            status, _ = await stack.ask(body)
            seen.statuses[status] += 1

    await asyncio.gather(*(client() for _ in range(8)))
    return seen


def test_little_shared_memory_loses_no_request(tmp_path: Path) -> None:
    """Attack: with 2.5 MB of /dev/shm, Envoy started and was killed by SIGBUS at the first long prompts, for ever."""
    small = isolated("--mount", first="mount -t tmpfs -o size=2500k tmpfs /dev/shm")
    with gateway(tmp_path, *small) as (stack, _, words):
        seen = asyncio.run(long_prompts(stack, 700))
        assert seen.statuses == {200: 700}, words.read_text()
        assert f"{MEMORY} has 2.6 MB free" in words.read_text()
        assert "SIGBUS" not in words.read_text()


def test_no_room_anywhere_is_refused_at_start(tmp_path: Path) -> None:
    full = "mount -t tmpfs -o size=2500k tmpfs /dev/shm && mount -t tmpfs -o size=1m tmpfs /mnt && export TMPDIR=/mnt"
    with gateway(tmp_path, *isolated("--mount", first=full)) as (_, process, words):
        assert process.wait(30) == 2
        (line,) = [one for one in words.read_text().splitlines() if "tables need" in one]
        assert "lower --workers" in line


def folders() -> set[Path]:
    return {lock.parent for lock in Path(MEMORY).glob("penstock-*/lock")}


def test_a_gateway_elsewhere_keeps_its_folder(tmp_path: Path) -> None:
    """Attack: a second gateway in another PID namespace saw no process of the first one, and removed its folder."""
    other = isolated("--pid", "--fork", "--mount-proc", "--kill-child")
    earlier = folders()
    with gateway(tmp_path) as (first, process, _):
        (own,) = folders() - earlier
        with gateway(tmp_path, *other, number=1) as (second, *_):
            assert own in folders()
            for one in (first, second):
                assert asyncio.run(one.ask(chat(model=MODEL)))[0] == 200
                with urllib.request.urlopen(f"http://{one.stack.metrics}/metrics", timeout=5) as page:
                    assert b"penstock_picker_up" in page.read()
        process.kill()  # its folder, with keys, is left over
        process.wait(10)
        time.sleep(1)
        assert own in folders()
        with gateway(tmp_path, *other, number=2):
            assert own not in folders()
    assert folders() == earlier
