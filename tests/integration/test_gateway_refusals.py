"""One endpoint refuses what its peers answer: wrong key, full queue, redirect. No client sees it."""

import asyncio
import time
import urllib.request
from collections.abc import Iterator

import pytest

from ports import free_ports

pytest.importorskip("httptools", reason='the gateway is an extra: pip install "penstock[gateway]"')

from gateway_stack import Running, chat, running, until
from penstock.api.top import read_gateway
from penstock.prometheus_text import read_samples


@pytest.fixture(scope="module", params=["module", "ext_proc_buffered"])
def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder, metrics = tmp_path_factory.mktemp("refusals"), f"127.0.0.1:{free_ports(1)[0]}"
    with running(folder, endpoints=4, protocol=request.param, one_pool=True, metrics=metrics) as stack:
        yield stack


@pytest.fixture(autouse=True)
def well_again(stack: Running) -> Iterator[None]:
    yield
    stack.fault("none")
    time.sleep(1.1)  # first suspicions end


def break_favourite(stack: Running, status: int) -> str:
    """Have the endpoint that gets the most requests answer all with a status. Return its address."""
    before = stack.served()
    assert asyncio.run(stack.load(160, 16)).failed == 0
    after = stack.served()
    bad = max(after, key=lambda address: after[address] - before[address])
    stack.fault("status", stack.stack.addresses.index(bad), status)
    return bad


def struck(stack: Running) -> dict[str, float]:
    """Tries that were counted against each endpoint, as `penstock top` reads them."""
    page = read_gateway(str(stack.stack.metrics))
    return {one.address: one.values["struck_tries_total"] for one in page.endpoints}


def missed(stack: Running) -> float:
    with urllib.request.urlopen(f"http://{stack.stack.metrics}/metrics", timeout=5) as answer:
        samples = list(read_samples(answer.read().decode()))
    return sum(value for name, labels, value in samples if labels.get("slo") == "missed" and "slo_requests" in name)


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("status", [401, 403, 429, 307])
def test_a_refusing_endpoint_loses_no_request(stack: Running, status: int, *, streamed: bool) -> None:
    """Attack: a fast refusal left the endpoint idle, so it got 75 to 90% of the requests, and all were lost."""
    before, bad = struck(stack), break_favourite(stack, status)
    asked = stack.served()[bad]
    seen = asyncio.run(stack.load(240, 8, chat(stream=streamed)))
    assert (seen.count, seen.failed) == (240, 0), seen.statuses
    assert 0 < stack.served()[bad] - asked <= 240 / 8
    until(lambda: struck(stack)[bad] > before[bad])
    assert {address for address, count in struck(stack).items() if count > before[address]} == {bad}


@pytest.mark.parametrize("status", [400, 422])
def test_a_bad_request_only_one_endpoint_sees(stack: Running, status: int) -> None:
    """One client may be told; from then on peers are asked too, and the endpoint gets next to nothing."""
    before, bad = struck(stack), break_favourite(stack, status)
    seen = asyncio.run(stack.load(240, 8))
    assert seen.failed <= 8, seen.statuses  # those that were under way at the first one
    until(lambda: struck(stack)[bad] > before[bad])
    assert {address for address, count in struck(stack).items() if count > before[address]} == {bad}


@pytest.mark.parametrize("status", [400, 401, 429])
def test_a_refusal_by_all_blames_none(stack: Running, status: int) -> None:
    before, lost = struck(stack), missed(stack)
    stack.fault("status", "all", status)
    seen = asyncio.run(stack.load(20, 4))
    assert seen.statuses == {status: 20}
    time.sleep(1.5)
    assert struck(stack) == before
    # A client may be wrong with 400; keys and queues of engines are not its fault.
    assert missed(stack) - lost == (0 if status == 400 else 20)


def test_no_internal_address_reaches_a_client(stack: Running) -> None:
    stack.fault("status", "all", 307)
    request = urllib.request.Request(f"http://{stack.stack.listen}/v1/chat/completions", chat())

    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None:
            return None

    with pytest.raises(urllib.request.HTTPError) as error:
        urllib.request.build_opener(Stay).open(request, timeout=10)
    assert error.value.code == 307
    error.value.close()
    assert not [name for name in error.value.headers if "location" in name.lower()]
