"""The policy inside Envoy: a real Envoy loads the module, which counts, records and holds requests."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ports import free_ports

pytest.importorskip("httptools", reason='the gateway is an extra: pip install "penstock[gateway]"')

from fake_engines import FakeEngine, fake_engines
from gateway_stack import Running, chat, running, until
from penstock.api.top import read_gateway
from penstock.errors import PenstockError
from penstock.gateway.picker.recorded_outcomes import read_traffic
from penstock.gateway.state.shared_tables import COUNTS, shared_array
from penstock.routing import harm

WORKERS = 2


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("module")
    with running(
        folder,
        endpoints=4,
        pickers=WORKERS,
        protocol="module",
        watched=str(folder / "addresses.json"),
        receipts=str(folder / "receipts"),
        metrics=f"127.0.0.1:{free_ports(1)[0]}",
    ) as stack:
        yield stack


@pytest.fixture(autouse=True)
def well_again(stack: Running) -> Iterator[None]:
    yield
    stack.fault("none")
    until(lambda: all_up(stack))
    time.sleep(0.3)


def all_up(stack: Running) -> bool:
    try:
        page = read_gateway(str(stack.stack.metrics))
    except PenstockError:  # the scraper is being started again
        return False
    return len(page.endpoints) == 4 and all(one.values["endpoint_up"] for one in page.endpoints)


def totals(stack: Running) -> dict[str, float]:
    """Return the newest counters of the module, summed over workers and endpoints."""
    newest = max(Path(stack.stack.folder).glob("counts-*.table"), key=lambda path: int(path.stem.partition("-")[2]))
    counts = shared_array(newest, COUNTS, (WORKERS, newest.stat().st_size // COUNTS.itemsize // WORKERS))
    return {name: float(counts[name].sum()) for name in COUNTS.names or ()}


def difference(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    return {name: after[name] - before[name] for name in after}


def test_counts_and_observed_times_are_exact(stack: Running) -> None:
    before = totals(stack)
    seen = asyncio.run(stack.load(60, 6, body=chat(40, stream=True)))
    assert seen.failed == 0
    until(lambda: totals(stack)["in_flight"] == 0)
    found = difference(before, totals(stack))
    assert (found["picked"], found["ended"], found["failed"], found["moved"]) == (60, 60, 0, 0)
    assert found["first_tokens"] == 60
    assert found["decoded_tokens"] == pytest.approx(60 * 39, rel=0.06)  # events that carry no token are among them
    seconds = sum(seen.seconds)
    assert found["ttft_sum_s"] + found["decode_sum_s"] == pytest.approx(seconds, rel=0.25)
    page = read_gateway(str(stack.stack.metrics))
    assert sum(one.values["picks_total"] for one in page.endpoints) == totals(stack)["picked"]


def test_receipts_hold_each_request_and_replay_each_recorded_decision(stack: Running) -> None:
    path = Path(str(stack.stack.receipts)).with_suffix(".0.jsonl")
    tenant = "x-penstock-tenant: search\r\n"
    before = len(read_traffic([path]).outcomes)
    for stream in (True, False):
        assert asyncio.run(stack.ask(chat(12, stream=stream), headers=tenant))[0] == 200
    until(lambda: len(read_traffic([path]).outcomes) >= before + 2)
    traffic = read_traffic([path])
    of_tenant = [one for one in traffic.outcomes if one.tenant == "search"]
    whole, streamed = sorted(of_tenant, key=lambda one: one.streamed)  # each worker thread has a ring
    assert (streamed.streamed, whole.streamed) == (True, False)
    assert (whole.output_tokens, whole.output_counted, whole.prompt_counted) == (12, True, True)
    assert streamed.output_tokens == pytest.approx(12, abs=3)  # estimated from its bytes
    assert {streamed.endpoint, whole.endpoint} <= set(stack.stack.addresses)
    assert streamed.kept is whole.kept is True
    assert 0 < streamed.duration_s < 5
    assert traffic.meters
    assert traffic.decisions
    for one in traffic.decisions:
        assert harm.pick(one.request, one.endpoints, one.hits, one.parameters) == (one.order[0] if one.order else -1)


def test_reloads_lose_no_request_and_no_count(stack: Running) -> None:
    watched, before = Path(str(stack.stack.watched)), totals(stack)
    removed, *kept = stack.stack.addresses

    def reload() -> None:
        for turn in range(8):
            watched.write_text(json.dumps(stack.stack.addresses[:: -1 if turn % 2 else 1]))
            time.sleep(0.3)

    def endpoints() -> set[str]:
        return {one.address for one in read_gateway(str(stack.stack.metrics)).endpoints}

    seen = asyncio.run(stack.load_during(reload, 500))
    assert seen.failed == 0, (seen.statuses, seen.cut)
    until(lambda: totals(stack)["in_flight"] == 0)
    found = difference(before, totals(stack))
    assert (found["picked"], found["ended"]) == (500, 500)
    try:
        watched.write_text(json.dumps(kept))
        until(lambda: endpoints() == set(kept))
        asyncio.run(stack.load(4, 1))
        served = stack.served()
        assert asyncio.run(stack.load(60, 8)).failed == 0
        assert stack.served()[removed] == served[removed]
    finally:
        watched.write_text(json.dumps(stack.stack.addresses))
        until(lambda: endpoints() == set(stack.stack.addresses))


def test_counters_go_on_after_envoy_is_restarted(stack: Running) -> None:
    assert asyncio.run(stack.load(20, 4)).failed == 0
    before = totals(stack)
    (old,) = stack.children("envoy")
    os.kill(old, signal.SIGKILL)
    until(lambda: stack.children("envoy") not in ([], [old]) and asyncio.run(stack.ask(chat()))[0] == 200)
    assert asyncio.run(stack.load(40, 8)).failed == 0
    until(lambda: totals(stack)["in_flight"] == 0)
    assert totals(stack)["picked"] >= before["picked"] + 41


def test_what_python_learns_and_the_module_counts_is_in_one_table(stack: Running) -> None:
    from penstock.gateway.inside_envoy.module_table import ModuleTable  # noqa: PLC0415

    long = chat(8, prompt="word " * 4000)
    assert asyncio.run(stack.load(60, 6, body=long)).failed == 0
    newest = max(Path(stack.stack.folder).glob("module-*.table"), key=lambda path: int(path.stem.partition("-")[2]))
    table = ModuleTable(newest)
    until(lambda: table.endpoints["in_flight"].sum() == 0)
    assert table.endpoints["prefilling"].sum() == 0
    assert table.endpoints["resident_tokens"].sum() == 0
    until(lambda: bool(np.all(table.names["bytes_per_token"] != 4.0)))
    assert table.endpoints["sent"].sum() > 0


@pytest.fixture(scope="module")
def fakes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, list[FakeEngine]]]:
    with (
        fake_engines(3) as engines,
        running(
            tmp_path_factory.mktemp("fakes"),
            endpoints=0,
            real=tuple(one.address for one in engines),
            protocol="module",
            min_silence_s=1.0,
        ) as stack,
    ):
        yield stack, engines


def test_bodies_of_every_size_arrive_whole(fakes: tuple[Running, list[FakeEngine]]) -> None:
    stack, _ = fakes
    for size in (10, 1_000, 65_536, 70_000, 400_000, 3_000_000):
        body = chat(2, prompt="x" * size)
        status, answer = asyncio.run(stack.ask(body))
        assert (status, json.loads(answer)["choices"][0]["message"]["content"]) == (200, str(len(body)))


def test_an_endpoint_that_fails_fast_attracts_no_traffic(fakes: tuple[Running, list[FakeEngine]]) -> None:
    stack, engines = fakes
    engines[0].status = 500
    for one in engines[1:]:
        one.delay_s = 0.1
    seen = asyncio.run(stack.load(120, 6))
    assert seen.failed == 0, seen.statuses
    assert engines[0].asked.total() <= 30  # three strikes, and a trial after each suspicion
    engines[0].status = 200
    for one in engines:
        one.delay_s = 0.0


@pytest.mark.timed
def test_a_slow_first_token_is_waited_for(fakes: tuple[Running, list[FakeEngine]]) -> None:
    stack, engines = fakes
    for one in engines:
        one.delay_s = 5.0
    seen = asyncio.run(stack.load(3, 3, body=chat(4, stream=True)))
    assert seen.statuses == {200: 3}
    assert max(seen.seconds) < 8.0
    for one in engines:
        one.delay_s = 0.0


def test_a_body_whose_model_is_unknown_is_refused_by_the_module(fakes: tuple[Running, list[FakeEngine]]) -> None:
    stack, engines = fakes
    before = sum(one.asked.total() for one in engines)
    status, body = asyncio.run(stack.ask(chat(model="other")))
    assert (status, json.loads(body)["error"]["type"]) == (404, "no-such-model")
    assert sum(one.asked.total() for one in engines) == before


@pytest.fixture(scope="module")
def holding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """An endpoint whose tokens take longer than promised, so that it gets a request only while it is idle."""
    folder = tmp_path_factory.mktemp("holding")
    metrics = f"127.0.0.1:{free_ports(1)[0]}"
    with running(
        folder,
        endpoints=1,
        pickers=WORKERS,
        protocol="module",
        step_s=0.06,
        overload="hold",
        receipts=str(folder / "receipts"),
        metrics=metrics,
    ) as stack:
        yield stack


@pytest.mark.timed
def test_a_held_request_is_sent_as_soon_as_there_is_room(holding: Running) -> None:
    async def two() -> tuple[tuple[int, bytes], tuple[int, bytes], float]:
        first = asyncio.create_task(holding.ask(chat(6)))
        await asyncio.sleep(0.05)
        begun = time.perf_counter()
        second = await holding.ask(chat(1))
        return await first, second, time.perf_counter() - begun

    first, second, took_s = asyncio.run(two())
    assert (first[0], second[0]) == (200, 200)
    assert 0.25 < took_s < 1.0  # the first answer takes 0.4 s
    path = Path(str(holding.stack.receipts)).with_suffix(".0.jsonl")
    until(lambda: len(read_traffic([path]).outcomes) == 2)
    page = read_gateway(str(holding.stack.metrics))
    assert sum(picker["held_requests_total"] for picker in page.pickers.values()) == 1


@pytest.mark.timed
def test_a_held_request_is_refused_after_half_of_its_limit_and_clients_may_leave(holding: Running) -> None:
    async def leave() -> None:
        reader, writer = await asyncio.open_connection(holding.host, holding.port)
        body = chat(1)
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        await asyncio.sleep(0.1)
        writer.close()
        del reader

    async def crowd() -> list[tuple[int, float]]:
        busy = asyncio.create_task(holding.ask(chat(30)))
        await asyncio.sleep(0.05)
        begun = time.perf_counter()

        async def one() -> tuple[int, float]:
            status, _ = await holding.ask(chat(1))
            return status, time.perf_counter() - begun

        asked = [asyncio.create_task(one()) for _ in range(40)]
        await asyncio.gather(*(leave() for _ in range(40)))
        answers = [await one for one in asked]
        assert (await busy)[0] == 200
        return answers

    answers = asyncio.run(crowd())
    assert {status for status, _ in answers} == {429}
    assert min(seconds for _, seconds in answers) > 0.4
    assert max(seconds for _, seconds in answers) < 2.0
    assert asyncio.run(holding.ask(chat(1)))[0] == 200
