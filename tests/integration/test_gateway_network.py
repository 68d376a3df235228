"""Slow, lossy and broken network paths lose no request."""

import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import pytest

pytest.importorskip("httptools", reason='the gateway is an extra: pip install "penstock[gateway]"')

import gateway_stack
from gateway_stack import Answers, Running, Stack
from network_paths import IP, NetworkPath, hosts, on_host, path, refused

LISTEN = "10.217.3.2:8080"
Note = Callable[[str, object], None]
SIDES = ("10.217.1.2", "10.217.2.2")
CONTROL_PORT, FIRST_PORT, COUNT = 9000, 9001, 300


@dataclass(frozen=True)
class PhaseFactors:
    """A gateway whose parts are hosts: the client's, its own, and two with endpoints."""

    running: Running
    client: str
    paths: dict[str, NetworkPath]

    def load(self, count: int = COUNT) -> Answers:
        return on_host(self.client, lambda: asyncio.run(self.running.load(count, 8)))


def addresses(side: str) -> tuple[str, ...]:
    return tuple(f"{side}:{FIRST_PORT + number}" for number in range(2))


@contextmanager
def started(host: str, part: str, stack: Stack, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    told = folder / f"{part}-{host}.json"
    told.write_text(json.dumps(asdict(stack)))
    command = [IP, "netns", "exec", host, sys.executable, gateway_stack.__file__, part, str(told)]
    process = subprocess.Popen(command)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(45)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=1).read()  # noqa: S310 - a namespace of our own
    except OSError:
        return False
    return True


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PhaseFactors]:
    reason = refused()
    if reason is not None:
        pytest.skip(reason)
    folder, both = tmp_path_factory.mktemp("network"), (*addresses(SIDES[0]), *addresses(SIDES[1]))
    with ExitStack() as held:
        client, gateway, *sides = held.enter_context(hosts("client", "gateway", "a", "b"))
        paths = {
            "a": held.enter_context(path(1, gateway, sides[0])),
            "b": held.enter_context(path(2, gateway, sides[1])),
            "client": held.enter_context(path(3, client, gateway)),
        }
        for host, side in zip(sides, SIDES, strict=True):
            stack = Stack(listen="", addresses=addresses(side), control=f"{side}:{CONTROL_PORT}")
            held.enter_context(started(host, "endpoints", stack, folder))
        folder_of_gateway = tempfile.mkdtemp(prefix="penstock-")
        whole = Stack(listen=LISTEN, addresses=both, control="", folder=folder_of_gateway, pickers=2, one_pool=True)
        process = held.enter_context(started(gateway, "gateway", whole, folder))
        begun_s = time.monotonic()
        while not on_host(client, lambda: answers(f"http://{LISTEN}/health")):
            assert process.poll() is None, "the gateway has ended"
            assert time.monotonic() - begun_s < 120, "the gateway does not answer"
            time.sleep(0.2)
        yield PhaseFactors(Running(whole, {"gateway": process}), client, paths)


def said(note: Note, name: str, seen: Answers) -> None:
    shown = sorted(seen.seconds)
    p50, p99 = median(shown), shown[int(0.99 * len(shown))]
    note(name, f"{seen.count} asked, {seen.failed} lost, p50 {p50:.2f} s, p99 {p99:.2f} s, worst {shown[-1]:.2f} s")


@pytest.mark.parametrize("name", ["a", "client"])
@pytest.mark.parametrize("trouble", [{"delay_s": 0.2}, {"loss_fraction": 0.05}], ids=["200 ms", "5% loss"])
def test_a_bad_path_loses_nothing(
    apart: PhaseFactors, name: str, trouble: dict[str, float], record_property: Note
) -> None:
    apart.paths[name].become(**trouble)  # type: ignore[arg-type]
    try:
        seen = apart.load()
    finally:
        apart.paths[name].become()
    said(record_property, f"{trouble} to {name}", seen)
    assert seen.failed == 0, (seen.statuses, seen.cut)


@pytest.mark.timed
def test_endpoints_behind_a_broken_path_are_excluded_and_return(apart: PhaseFactors, record_property: Note) -> None:
    with ExitStack() as held:
        held.callback(apart.paths["a"].become)
        seen = on_host(apart.client, lambda: asyncio.run(apart.running.load_during(cut(apart, "a"), COUNT)))
        said(record_property, "cut from a, under load", seen)
        assert seen.failed == 0, (seen.statuses, seen.cut)
        after = apart.load(100)
        said(record_property, "cut from a, later", after)
        assert after.failed == 0
        assert median(after.seconds) < 1.0
    begun_s = time.monotonic()
    before = picked(apart, SIDES[0])
    while apart.load(20).failed or picked(apart, SIDES[0]) == before:
        assert time.monotonic() - begun_s < 60, "endpoints that are back get nothing"
    record_property("back in the choice", f"{time.monotonic() - begun_s:.1f} s after the path")


def test_clients_behind_a_path_that_was_cut_for_two_seconds_get_their_answers(
    apart: PhaseFactors, record_property: Note
) -> None:
    def act() -> None:
        cut(apart, "client")()
        time.sleep(2.0)
        apart.paths["client"].become()

    seen = on_host(apart.client, lambda: asyncio.run(apart.running.load_during(act, COUNT)))
    said(record_property, "client cut for two seconds", seen)
    assert seen.failed == 0, (seen.statuses, seen.cut)


def cut(apart: PhaseFactors, name: str) -> Callable[[], None]:
    return lambda: apart.paths[name].become(cut=True)


def picked(apart: PhaseFactors, side: str) -> int:
    """Picks of a side's endpoints so far, from the tables the gateway's processes share."""
    from penstock.gateway.state.shared_tables import COUNTS, shared_array  # noqa: PLC0415

    known = apart.running.stack.addresses
    counts = shared_array(Path(apart.running.stack.folder) / "counts-0.table", COUNTS, (2, len(known)))
    return sum(int(counts["picked"][:, known.index(place)].sum()) for place in addresses(side))
