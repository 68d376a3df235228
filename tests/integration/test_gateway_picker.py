"""A picker behind an external gateway follows the endpoint-picker protocol."""

import json
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from ports import free_ports

pytest.importorskip("httptools", reason='the gateway is an extra: pip install "penstock[gateway]"')

from gateway_stack import Running, chat, running
from picker_protocol import DUPLEX, asked


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    pick, metrics = free_ports(2)
    more: dict[str, Any] = {"only_pick": f"127.0.0.1:{pick}", "metrics": f"127.0.0.1:{metrics}", "pickers": 2}
    with running(tmp_path_factory.mktemp("picker"), protocol="ext_proc", step_s=0.001, **more) as started:
        yield started


def address(stack: Running) -> str:
    assert stack.stack.only_pick is not None
    return stack.stack.only_pick


def in_flight(stack: Running) -> float:
    page = urllib.request.urlopen(f"http://{stack.stack.metrics}/metrics", timeout=5).read().decode()
    return sum(float(line.split()[-1]) for line in page.splitlines() if line.startswith("penstock_in_flight_requests{"))


def test_it_chooses_endpoints_and_returns_the_body(stack: Running) -> None:
    body = chat(4)
    answer = asked(address(stack), DUPLEX, body)
    assert set(answer.named) <= set(stack.stack.addresses)
    assert len(set(answer.named)) == len(answer.named) >= 2
    assert answer.body == body
    assert answer.metadata == answer.header


def test_it_rejects_an_unknown_model(stack: Running) -> None:
    answer = asked(address(stack), DUPLEX, chat(model="another"))
    assert (answer.status, json.loads(answer.refusal)["error"]["type"]) == (404, "no-such-model")


def test_requests_without_a_reported_end_leave_in_flight(stack: Running) -> None:
    """Some gateways do not show answers to a picker: an answer is then taken to end when that is predicted."""
    for _ in range(20):
        asked(address(stack), DUPLEX, chat(5))
    for _ in range(100):
        if in_flight(stack) == 0:
            break
        time.sleep(0.1)
    assert in_flight(stack) == 0
