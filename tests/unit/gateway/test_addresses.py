"""DNS names resolve to all their addresses. A DNS server that does not answer changes nothing."""

import asyncio
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("httptools", reason='the gateway is an extra: pip install "penstock[gateway]"')

from penstock.errors import UsageError
from penstock.gateway.state import addresses
from penstock.gateway.state.routed_fleet import RoutedFleet
from penstock.gateway.telemetry import scraper
from penstock.routing.records import new_endpoints

V4, V6 = socket.AF_INET, socket.AF_INET6


def answering(monkeypatch: pytest.MonkeyPatch, answer: object) -> None:
    def ask(host: str, port: int, **_: object) -> list[Any]:
        del host
        if isinstance(answer, Exception):
            raise answer
        entries = cast("list[tuple[int, str]]", answer)
        return [(family, 1, 6, "", (address, port)) for family, address in entries]

    monkeypatch.setattr(socket, "getaddrinfo", ask)


def test_every_address_of_one_family_is_an_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, [(V4, "10.0.0.2"), (V4, "10.0.0.1"), (V4, "10.0.0.2"), (V6, "fd00::1")])
    assert addresses.addresses_of("pool.svc:8000") == ("10.0.0.1:8000", "10.0.0.2:8000")
    answering(monkeypatch, [(V6, "fd00::1")])
    assert addresses.addresses_of("pool.svc:8000") == ("[fd00::1]:8000",)


def test_a_name_without_addresses_differs_from_a_silent_dns_server(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, socket.gaierror(socket.EAI_NONAME, "not known"))
    assert addresses.addresses_of("pool.svc:8000") == ()
    with pytest.raises(UsageError, match="has no address"):
        addresses.address_of("pool.svc:8000")
    answering(monkeypatch, socket.gaierror(socket.EAI_AGAIN, "try again"))
    with pytest.raises(UsageError, match="try again"):
        addresses.addresses_of("pool.svc:8000")


FLEET = RoutedFleet(
    name="one",
    addresses=("10.0.0.1:8000",),
    pools=("pool",),
    engines=("vllm",),
    models=("llama",),
    served=("llama",),
    classes=(),
    endpoints=new_endpoints(1),
)


@pytest.mark.parametrize(
    ("answer", "moved"),
    [
        ([(V4, "10.0.0.1")], False),
        ([(V4, "10.0.0.1"), (V4, "10.0.0.2")], True),
        (socket.gaierror(socket.EAI_AGAIN, "try again"), False),
        (socket.gaierror(socket.EAI_NONAME, "not known"), False),  # none at all: the last ones are still tried
    ],
)
def test_a_changed_address_signals_the_supervisor(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: object,
    *,
    moved: bool,
) -> None:
    answering(monkeypatch, answer)
    monkeypatch.setattr(scraper, "_NAMES_EVERY_S", 0.01)
    watching = scraper.Scraper(tmp_path, 1)

    async def follow() -> None:
        task = asyncio.create_task(watching._follow(replace(FLEET, followed=("pool.svc:8000",))))  # noqa: SLF001
        await asyncio.sleep(0.2)
        task.cancel()

    asyncio.run(follow())
    assert (tmp_path / "names.moved").exists() == moved
