"""Endpoints, pickers or the scraper fail: no request is lost that a healthy endpoint could have served."""

import asyncio
import json
import os
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from ports import free_ports

pytest.importorskip("httptools", reason='the gateway is an extra: pip install "penstock[gateway]"')

from gateway_stack import Running, chat, running, until
from penstock.gateway.picker.decision_receipts import DecisionReceipt, read_receipts
from penstock.gateway.supervisor import STABLE_UPTIME_S
from penstock.routing.picker_calls import picker_table, rank


@pytest.fixture(scope="module", params=["module", "ext_proc_buffered"])
def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("faults")
    log = folder / "access.json"
    with running(
        folder,
        endpoints=4,
        pickers=2,
        protocol=request.param,
        access_log=str(log),
        watched=str(folder / "addresses.json"),
        receipts=str(folder / "receipts"),
        metrics=f"127.0.0.1:{free_ports(1)[0]}",
    ) as stack:
        yield stack


@pytest.fixture(autouse=True)
def well_again(stack: Running) -> Iterator[None]:
    yield
    stack.fault("none")
    parts = {"picker": 0 if decides_inside(stack) else 2, "scraper": 1, "envoy": 1}
    until(lambda: {name: len(stack.children(name)) for name in parts} == parts)
    until(lambda: set(endpoints_up(stack).values()) == {1.0} and len(endpoints_up(stack)) == 4)
    time.sleep(0.3)  # every picker reads a report made since


def decides_inside(stack: Running) -> bool:
    return stack.stack.protocol == "module"


def counted(stack: Running, metric: str) -> float:
    """Return the sum of a metric of the gateway's page over its labels."""
    page = urllib.request.urlopen(f"http://{stack.stack.metrics}/metrics", timeout=5).read().decode()
    lines = (line for line in page.splitlines() if line.startswith(f"{metric}{{"))
    return sum(float(line.split()[-1]) for line in lines)


def endpoints_up(stack: Running) -> dict[str, float]:
    """Return whether each endpoint is up, as the metrics page says; empty while there is no page."""
    from penstock.api.top import read_gateway  # noqa: PLC0415
    from penstock.errors import PenstockError  # noqa: PLC0415

    try:
        page = read_gateway(str(stack.stack.metrics))
    except PenstockError:
        return {}
    return {one.address: one.values["endpoint_up"] for one in page.endpoints}


def kill(stack: Running, name: str, number: signal.Signals) -> None:
    for pid in stack.children(name):
        os.kill(pid, number)


def stop_and_go_on(stack: Running, name: str) -> None:
    pids = stack.children(name)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(1.0)
    for pid in pids:
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            continue  # the supervisor ended it, as it should


def one_picker_dies(stack: Running) -> None:
    os.kill(stack.children("picker")[0], signal.SIGKILL)


def python_is_stopped(stack: Running) -> None:
    """Stop everything that is written in Python for as long as the load lasts."""
    pids = [*stack.children("scraper"), stack.processes["gateway"].pid]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(1.5)
    for pid in reversed(pids):
        os.kill(pid, signal.SIGCONT)


def endpoints_die(stack: Running, count: int) -> None:
    for index in range(count):
        stack.fault("die", index)


ACTS: dict[str, Callable[[Running], None]] = {
    "an endpoint dies": lambda stack: stack.fault("die", 0),
    "half of the endpoints die": lambda stack: endpoints_die(stack, 2),
    "all endpoints but one die": lambda stack: endpoints_die(stack, 3),
    "an endpoint refuses": lambda stack: stack.fault("refuse", 1),
    "an endpoint is slow": lambda stack: stack.fault("slow", 1, 20),
    "an endpoint lies": lambda stack: stack.fault("lie", 2),
    "metrics stand still": lambda stack: stack.fault("stale", "all"),
    "a picker dies": one_picker_dies,
    "all pickers die": lambda stack: kill(stack, "picker", signal.SIGKILL),
    "all pickers hang": lambda stack: stop_and_go_on(stack, "picker"),
    "the scraper dies": lambda stack: kill(stack, "scraper", signal.SIGKILL),
    "the scraper hangs": lambda stack: stop_and_go_on(stack, "scraper"),
    "Python is stopped": python_is_stopped,
}


@pytest.mark.parametrize("name", ACTS)
def test_no_request_is_lost_when(stack: Running, name: str) -> None:
    if decides_inside(stack) and "picker" in name:
        pytest.skip("there is no picker")
    seen = asyncio.run(stack.load_during(lambda: ACTS[name](stack), 300))
    assert seen.count == 300
    assert seen.failed == 0, (name, seen.statuses, seen.cut)


def test_logs_and_receipts_are_the_owners(stack: Running) -> None:
    """They name tenants and endpoints."""
    asyncio.run(stack.load(4, 2))
    written = [Path(str(stack.stack.access_log)), *Path(str(stack.stack.receipts)).parent.glob("receipts.*.jsonl")]
    assert len(written) >= 2
    assert {path.stat().st_mode & 0o777 for path in written} == {0o600}


def test_a_hung_endpoint_is_replaced_by_another(stack: Running) -> None:
    lost = counted(stack, "penstock_lost_decisions_total")
    seen = asyncio.run(stack.load_during(lambda: stack.fault("hang", 0), 300))
    assert seen.failed == 0, (seen.statuses, seen.cut)
    # Whoever was there waits for the try to be given up; nobody comes after.
    assert max(seen.seconds) < 20
    assert counted(stack, "penstock_lost_decisions_total") == lost


def test_only_streams_of_a_dead_endpoint_break_off(stack: Running) -> None:
    before = counted(stack, "penstock_failed_answers_total")
    seen = asyncio.run(stack.load_during(lambda: stack.fault("die", 0), 100, body=chat(100, stream=True)))
    assert seen.statuses == {200: 100 - seen.cut}
    assert seen.cut <= 8  # no more than were under way
    until(lambda: counted(stack, "penstock_failed_answers_total") - before >= seen.cut)


def test_a_dead_picker_is_restarted_within_a_second(stack: Running) -> None:
    if decides_inside(stack):
        pytest.skip("there is no picker")
    # Earlier tests ended pickers, and a picker that ends again soon is restarted only after a back-off.
    time.sleep(STABLE_UPTIME_S + 0.5)
    before = set(stack.children("picker"))
    one_picker_dies(stack)
    until(lambda: len(stack.children("picker")) == 2 and set(stack.children("picker")) != before, 1.0)


def test_ten_reloads_lose_nothing_and_a_removed_endpoint_gets_nothing(stack: Running) -> None:
    watched = Path(str(stack.stack.watched))
    # No earlier turn has this set, so seeing it on the metrics page means that the last reload is in use.
    removed, *kept = stack.stack.addresses

    def reload() -> None:
        for turn in range(10):
            watched.write_text(json.dumps(stack.stack.addresses[: 3 + turn % 2]))
            time.sleep(0.3)
        watched.write_text(json.dumps(kept))
        until(lambda: set(endpoints_up(stack)) == set(kept))
        time.sleep(0.3)  # decisions made before are on their way

    try:
        seen = asyncio.run(stack.load_during(reload, 600))
        assert seen.failed == 0, (seen.statuses, seen.cut)
        before = stack.served()
        asyncio.run(stack.load(60, 8))
        after = stack.served()
        assert after[removed] == before[removed]
        assert len(list(Path(stack.stack.folder).glob("reports-*.table"))) <= 3  # fleets that were are not kept
    finally:
        watched.write_text(json.dumps(stack.stack.addresses))


def test_counters_continue_across_a_reload(stack: Running) -> None:
    from penstock.api.top import read_gateway  # noqa: PLC0415

    watched, seen = Path(str(stack.stack.watched)), list[dict[tuple[str, str], float]]()

    def look() -> float:
        page = read_gateway(str(stack.stack.metrics))
        names = ("picks_total", "answers_total", "prompt_bytes_total", "predicted_ttft_seconds_total", "scrapes_total")
        seen.append({(one.address, name): one.values[name] for one in page.endpoints for name in names})
        picked = sum(one.values["picks_total"] for one in page.endpoints)
        return picked - sum(one["decisions_total"] for one in page.pickers.values())

    def reload() -> None:
        for turn in range(6):
            watched.write_text(json.dumps(stack.stack.addresses[:: -1 if turn % 2 else 1]))
            for _ in range(20):
                look()
                time.sleep(0.02)

    asyncio.run(stack.load(20, 4))
    time.sleep(0.5)
    before = look()
    asyncio.run(stack.load_during(reload, 300))
    time.sleep(0.5)
    assert look() == before, "every decision since is a pick of somebody"
    for earlier, later in pairwise(seen):
        assert [key for key in earlier if later[key] < earlier[key]] == []


def test_requests_in_flight_come_back_to_zero(stack: Running) -> None:
    from penstock.gateway.state.shared_tables import COUNTS, shared_array  # noqa: PLC0415

    asyncio.run(stack.load(100, 8))
    newest = max(Path(stack.stack.folder).glob("counts-*.table"), key=lambda path: path.stat().st_mtime_ns)
    counts = shared_array(newest, COUNTS, (2, newest.stat().st_size // COUNTS.itemsize // 2))
    # A request whose end was not seen is found by several looks, a second apart.
    until(lambda: counts["in_flight"].sum() == 0, 12.0)
    assert counts["picked"].sum() >= 100


def ranked_again(receipt: DecisionReceipt) -> tuple[int, ...]:
    order, harms = np.zeros(len(receipt.order) or 1, np.int64), np.zeros(len(receipt.endpoints))
    table = picker_table(
        request=receipt.request,
        endpoints=receipt.endpoints,
        hits=receipt.hits,
        parameters=receipt.parameters,
        order=order,
        harms=harms,
    )
    count = rank(table)
    return tuple(order[:count].tolist())


def test_every_receipt_replays_to_the_same_decision(stack: Running) -> None:
    from penstock.api.receipts import receipts as asked_again  # noqa: PLC0415

    asyncio.run(stack.load(50, 8))
    files = list(Path(str(stack.stack.receipts)).parent.glob("receipts.*.jsonl"))
    receipts = [receipt for file in files for receipt in read_receipts(file)]
    # The module records a decision only when the last one was read, 20 times a second.
    assert len(receipts) > (20 if decides_inside(stack) else 1000)
    assert all(ranked_again(receipt) == receipt.order for receipt in receipts)
    assert {receipt.addresses[index] for receipt in receipts for index in receipt.order} <= set(stack.stack.addresses)
    (ours,) = asked_again(files, policy="penstock").replays
    assert ours.agreed_fraction == 1.0


def test_metrics_count_the_requests(stack: Running) -> None:
    from penstock.api.top import read_gateway  # noqa: PLC0415

    until(lambda: "requests_total" in read_gateway(str(stack.stack.metrics)).totals)
    before = read_gateway(str(stack.stack.metrics))
    asyncio.run(stack.load(50, 8))
    stack.fault("die", 1)
    expected = {address: float(index != 1) for index, address in enumerate(stack.stack.addresses)}
    until(lambda: endpoints_up(stack) == expected, 2.5)
    asked = before.totals["requests_total"] + 50
    until(lambda: read_gateway(str(stack.stack.metrics)).totals["requests_total"] >= asked, 2.5)
    after = read_gateway(str(stack.stack.metrics))
    assert after.totals["requests_5xx_total"] == before.totals["requests_5xx_total"]


def test_no_prompt_is_in_any_log(stack: Running) -> None:
    word = "a-word-nobody-else-says"
    asyncio.run(stack.ask(chat(2, prompt=word), headers="authorization: Bearer hidden-key\r\n"))
    time.sleep(0.3)
    written = Path(str(stack.stack.access_log)).read_text()
    assert written.count("\n") > 10
    assert word not in written
    assert all(json.loads(line)["status"] for line in written.splitlines())
    for file in Path(str(stack.stack.receipts)).parent.glob("receipts.*.jsonl"):
        assert word not in file.read_text()
    assert "hidden-key" not in written
