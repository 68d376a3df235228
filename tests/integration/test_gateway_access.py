"""Envoy checks keys and tokens, sets the tenant, serves TLS and exports spans."""

import asyncio
import base64
import hmac
import json
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from ports import free_ports

pytest.importorskip("httptools", reason='the gateway is an extra: pip install "penstock[gateway]"')

from gateway_stack import Running, chat, running

KEY, OTHER, NEW = "sk-search-0123456789abcdef", "sk-batch-0123456789abcdef", "sk-new-0123456789abcdef00"
SECRET = b"a-secret-of-thirty-two-bytes-len"


def keys_file(path: Path, **keys: str) -> None:
    lines = [f"  - {{tenant: {tenant}, key: {key}}}" for tenant, key in keys.items()]
    path.write_text("\n".join(["version: 1", "engine_key: sk-the-engines-own", "keys:", *lines, ""]))


def status(stack: Running, headers: str = "", path: str = "/v1/chat/completions") -> int:
    return asyncio.run(stack.ask(chat(), headers=headers, path=path))[0]


def error(stack: Running, headers: str = "", body: bytes | None = None) -> tuple[int, str]:
    """What kind of error is answered, as OpenAI's clients read it."""
    seen, said = asyncio.run(stack.ask(body or chat(), headers=headers))
    told = json.loads(said)["error"]
    assert told["code"] == seen
    assert told["message"]
    return seen, told["type"]


def bearer(key: str) -> str:
    return f"authorization: Bearer {key}\r\n"


def tenants(log: Path) -> list[str | None]:
    """Whose the requests were, by the access log."""
    time.sleep(0.3)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [line["tenant"] for line in lines if line["path"].startswith("/v1") and line["status"] == 200]


@pytest.mark.parametrize("protocol", ["module", "ext_proc"])
def test_a_key_is_required_and_sets_the_tenant(tmp_path: Path, protocol: str) -> None:
    access, log = tmp_path / "access.yaml", tmp_path / "access.log"
    keys_file(access, search=KEY, batch=OTHER)
    # Of several models a whole body is read, or none.
    several = ("llama", "other")
    with running(tmp_path, protocol=protocol, access=str(access), access_log=str(log), models=several) as stack:
        assert error(stack) == (401, "authentication_error")
        assert error(stack, bearer("sk-wrong-0123456789abcdef")) == (401, "authentication_error")
        assert error(stack, bearer(KEY), chat(prompt="x" * 9 * 2**20)) == (413, "invalid_request_error")
        assert sum(stack.served().values()) == 0
        assert status(stack, bearer(KEY)) == 200
        assert status(stack, f"x-api-key: {OTHER}\r\n") == 200
        assert status(stack, bearer(KEY) + "x-penstock-tenant: batch\r\n") == 200
        assert status(stack, f"authorization: bearer {KEY}\r\n") == 200
        assert tenants(log) == ["search", "batch", "search", "search"]
        assert KEY not in log.read_text()


def test_a_change_of_keys_closes_no_connection(tmp_path: Path) -> None:
    access = tmp_path / "access.yaml"
    keys_file(access, search=KEY)
    with running(tmp_path, access=str(access), step_s=0.02) as stack:

        async def change_meanwhile() -> tuple[int, bytes]:
            answer = asyncio.create_task(stack.ask(chat(150, stream=True), headers=bearer(KEY)))
            await asyncio.sleep(0.5)
            keys_file(access, search=NEW)
            for _ in range(50):
                await asyncio.sleep(0.1)
                if (await stack.ask(chat(), headers=bearer(NEW)))[0] == 200:
                    break
            assert not answer.done()
            return await answer

        seen, body = asyncio.run(change_meanwhile())
        assert (seen, body.count(b" penstock")) == (200, 150)
        assert status(stack, bearer(KEY)) == 401
        access.write_text("version: 1\nkeys: nonsense\n")
        time.sleep(0.5)
        assert status(stack, bearer(NEW)) == 200


def token(secret: bytes = SECRET, /, **claims: object) -> str:
    def part(raw: bytes) -> str:
        return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()

    head = part(json.dumps({"alg": "HS256", "typ": "JWT"}).encode())
    signed = f"{head}.{part(json.dumps(claims).encode())}"
    return f"{signed}.{part(hmac.digest(secret, signed.encode(), 'sha256'))}"


def public_keys(path: Path, secret: bytes) -> None:
    key = {"kty": "oct", "alg": "HS256", "k": base64.urlsafe_b64encode(secret).rstrip(b"=").decode()}
    path.write_text(json.dumps({"keys": [key]}))


def test_a_token_sets_the_tenant(tmp_path: Path) -> None:
    access, log = tmp_path / "access.yaml", tmp_path / "access.log"
    public_keys(tmp_path / "jwks.json", SECRET)
    access.write_text(
        "version: 1\ntokens: {issuer: 'https://login.example', audiences: [penstock], jwks: jwks.json,"
        " tenant_claim: team}\n"
    )
    good = {"iss": "https://login.example", "aud": "penstock", "exp": time.time() + 600, "team": "search"}
    with running(tmp_path, access=str(access), access_log=str(log)) as stack:
        assert error(stack) == (401, "authentication_error")
        for scheme in ("Bearer", "bearer"):
            assert status(stack, f"authorization: {scheme} {token(**good)}\r\n") == 200
        for wrong in ({"exp": time.time() - 600}, {"iss": "https://elsewhere.example"}, {"nbf": time.time() + 600}):
            assert error(stack, bearer(token(**{**good, **wrong}))) == (401, "authentication_error")
        assert error(stack, bearer(token(**{**good, "aud": "others"}))) == (403, "permission_error")
        # Clocks differ: a minute is Envoy's own allowance.
        assert status(stack, bearer(token(**{**good, "exp": time.time() - 30}))) == 200
        # Signed or not, no header can have it: not the gateway's failure, and not served as somebody else's.
        for torn in ("search\r\nx-other: 1", "a\nb", "a\0b"):
            assert error(stack, bearer(token(**{**good, "team": torn}))) == (403, "permission_error")
        nameless = {name: value for name, value in good.items() if name != "team"}
        assert status(stack, bearer(token(**nameless))) == 200
        endless = {name: value for name, value in good.items() if name != "exp"}
        assert status(stack, bearer(token(**endless))) == 401
        # In a query it would go on to the engine, and into its log.
        assert status(stack, path=f"/v1/chat/completions?access_token={token(**good)}") == 401
        head, claims, signature = token(**good).split(".")
        unsigned = base64.urlsafe_b64encode(b'{"alg":"none"}').rstrip(b"=").decode()
        for forged in (
            f"{head}.{claims}.{signature[::-1]}",
            f"{unsigned}.{claims}.",
            f"{unsigned}.{claims}.{signature}",
        ):
            assert status(stack, bearer(forged)) == 401
        assert tenants(log) == ["search", "search", "search", None]


def test_a_jwks_file_is_reloaded_when_it_changes(tmp_path: Path) -> None:
    access, keys, new = tmp_path / "access.yaml", tmp_path / "jwks.json", SECRET[::-1]
    public_keys(keys, SECRET)
    access.write_text("version: 1\ntokens: {issuer: me, audiences: [penstock], jwks: jwks.json}\n")
    good = {"iss": "me", "aud": "penstock", "exp": time.time() + 600, "sub": "search"}
    with running(tmp_path, access=str(access)) as stack:
        assert status(stack, bearer(token(**good))) == 200
        public_keys(keys, new)
        for _ in range(50):
            time.sleep(0.1)
            if status(stack, bearer(token(new, **good))) == 200:
                break
        assert status(stack, bearer(token(new, **good))) == 200
        assert status(stack, bearer(token(**good))) == 401
        keys.write_text("{}")
        time.sleep(0.5)
        assert status(stack, bearer(token(new, **good))) == 200


@contextmanager
def collector() -> Iterator[tuple[str, list[bytes]]]:
    """Something that takes spans."""
    taken: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            while size := int(self.rfile.readline(), 16):
                taken.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    port = free_ports(1)[0]
    server = HTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{port}/v1/traces", taken
    finally:
        server.shutdown()
        server.server_close()


def certificate(chain: Path, key: Path, name: str) -> None:
    """Write files in place, as who copies them does."""
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
    made += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(chain)]
    subprocess.run(made, check=True, capture_output=True)


@contextmanager
def key_server(folder: Path, name: str) -> Iterator[int]:
    """Serve a JWKS on loopback, with a certificate for a name from a root that the gateway trusts."""
    openssl = ["openssl", "x509", "-req", "-days", "2", "-CA", "root.pem", "-CAkey", "root.key", "-CAcreateserial"]
    request = ["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", "server.key"]
    (folder / "names").write_text(f"subjectAltName=DNS:{name}\n")
    root = [*request[:2], "-x509", *request[2:5], "-subj", "/CN=root", "-keyout", "root.key", "-out", "root.pem"]
    for made in (
        root,
        [*request, "-out", "asked"],
        [*openssl, "-in", "asked", "-extfile", "names", "-out", "server.pem"],
    ):
        subprocess.run(made, check=True, capture_output=True, cwd=folder)
    public_keys(folder / "jwks.json", SECRET)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            keys = (folder / "jwks.json").read_bytes()
            self.send_response(200)
            self.send_header("content-length", str(len(keys)))
            self.end_headers()
            self.wfile.write(keys)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(("name", "expected"), [("localhost", 200), ("attacker.example", 401)])
def test_only_the_named_key_server_is_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, expected: int
) -> None:
    """Attack: a trusted certificate of any other name made whoever is on the path every tenant."""
    access = tmp_path / "access.yaml"
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "root.pem"))
    signed = bearer(token(iss="me", aud="penstock", exp=time.time() + 600, sub="search"))
    with key_server(tmp_path, name) as port:
        where = f"https://localhost:{port}/jwks.json"
        access.write_text(f"version: 1\ntokens: {{issuer: me, audiences: [penstock], jwks: '{where}'}}\n")
        with running(tmp_path, access=str(access)) as stack:
            time.sleep(2)
            assert status(stack, signed) == expected


def shown(stack: Running) -> str:
    """The certificate a client is shown."""
    return ssl.get_server_certificate((stack.host, stack.port)).strip()


def test_a_certificate_is_reloaded_however_it_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "shown"
    folder.mkdir()
    chain, key = folder / "gateway.pem", folder / "gateway.key"
    certificate(chain, key, "first")
    with running(tmp_path, tls=(str(chain), str(key)), step_s=0.02) as stack:
        for turn in range(3):
            assert shown(stack) == chain.read_text().strip()
            certificate(chain, key, f"in place {turn}")
            begun = time.monotonic()
            while shown(stack) != chain.read_text().strip() and time.monotonic() - begun < 10:
                time.sleep(0.1)
        certificate(tmp_path / "new.pem", tmp_path / "new.key", "moved")
        (tmp_path / "new.key").replace(key)
        (tmp_path / "new.pem").replace(chain)
        time.sleep(1)
        assert shown(stack) == (last := chain.read_text().strip())
        chain.write_text("nonsense")
        time.sleep(1)
        assert shown(stack) == last


def test_tls_for_clients_and_spans_for_a_collector(tmp_path: Path) -> None:
    chain, key = tmp_path / "gateway.pem", tmp_path / "gateway.key"
    certificate(chain, key, "gateway")
    with collector() as (address, taken), running(tmp_path, tls=(str(chain), str(key)), traces=address) as stack:
        trusted = ssl.create_default_context(cafile=str(chain))
        asked = urllib.request.Request(
            f"https://{stack.stack.listen}/v1/chat/completions?trial=nobody-elses",
            chat(prompt="nobody else's business"),
            {"content-type": "application/json"},
        )
        assert urllib.request.urlopen(asked, timeout=10, context=trusted).status == 200  # noqa: S310 - loopback
        with pytest.raises((urllib.error.URLError, ConnectionError)):
            urllib.request.urlopen(f"http://{stack.stack.listen}/v1/models", timeout=5)
        for _ in range(100):
            if b"penstock.endpoints" in b"".join(taken):
                break
            time.sleep(0.1)
        spans = b"".join(taken)
    for word in (
        b"penstock-gateway",
        b"gen_ai.request.model",
        b"penstock.endpoints",
        stack.stack.addresses[0].encode(),
    ):
        assert word in spans
    assert b"/v1/chat/completions" in spans
    assert b"nobody else" not in spans
    assert b"nobody-else" not in spans
