"""The fast path of an ext_authz connection returns the same answers as the HTTP parser."""

import json
from dataclasses import replace
from typing import Any, cast

import pytest

pytest.importorskip("httptools", reason='serving is an extra: pip install "penstock[gateway]"')

from hypothesis import given
from hypothesis import strategies as st

from gateway_fakes import Clock, fleet, picker_of
from penstock.gateway.servers.ext_authz_server import AuthzConnection, AuthzServer
from penstock.gateway.state.headers import SHOWN_BYTES
from penstock.http_server import HttpConnection

BODY = json.dumps({"messages": [{"role": "user", "content": "hello\r\n\r\n"}], "model": "a", "max_tokens": 4}).encode()
HEADS = {
    "whole": b"content-length: %d\r\n" % len(BODY),
    "cut": b"content-length: %d\r\nx-penstock-length: 90000\r\nx-envoy-auth-partial-body: true\r\n" % len(BODY),
    "batch": b"x-penstock-objective: batch\r\ncontent-length: %d\r\n" % len(BODY),
}
CHUNKED = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)


def question(more: bytes = HEADS["whole"], body: bytes = BODY, first: bytes = b"POST /v1/chat/completions") -> bytes:
    return first + b" HTTP/1.1\r\nhost: x\r\n" + more + b"\r\n" + body


class Wire:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        self.written += b"closed"


def answered(pieces: list[bytes], *, plain: bool = False) -> bytes:
    server, wire = AuthzServer(picker_of(fleet(), Clock())[0], 0), Wire()
    line = HttpConnection(server.handle) if plain else AuthzConnection(server)
    line.connection_made(cast("Any", wire))
    for piece in pieces:
        line.data_received(piece)
    return wire.written


@pytest.mark.parametrize(
    "sent",
    [
        *(question(head) for head in HEADS.values()),
        question(b"transfer-encoding: chunked\r\n", CHUNKED),
        question(b"transfer-encoding: chunked\r\ncontent-length: %d\r\n" % len(BODY), CHUNKED),
        question(b"content-length: 0\r\n", b""),
        question(b"", b"", b"GET /v1/models"),
        question(b"connection: close\r\n" + HEADS["whole"]),
        question(b"Content-Length: %d\r\n" % len(BODY)),
        question(b"content-length: %d\r\n" % (len(BODY) + 5), BODY + b"     "),
        question() + question(),
        question(body=b"x" * len(BODY)),
        question(b"no colon\r\n" + HEADS["whole"]),
        b"not HTTP at all\r\n\r\n",
    ],
)
def test_fast_path_equals_http_parser(sent: bytes) -> None:
    assert answered([sent]) == answered([sent], plain=True) != b""


@given(st.lists(st.sampled_from(sorted(HEADS)), min_size=1, max_size=4), st.data())
def test_packet_boundaries_do_not_change_the_answer(names: list[str], data: st.DataObject) -> None:
    sent = b"".join(question(HEADS[name]) for name in names)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(sent) - 1), max_size=6)))
    pieces = [sent[a:b] for a, b in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
    assert answered(pieces) == answered([sent], plain=True)


def long_body(size: int) -> bytes:
    """A body whose model comes last, as OpenAI's client writes it."""
    start, end = b'{"messages":[{"role":"user","content":"', b'"}],"model":"a"}'
    return start + b"x" * (size - len(start) - len(end)) + end


@pytest.mark.parametrize("declared", [True, False], ids=["length", "no length"])
@pytest.mark.parametrize("size", [SHOWN_BYTES - 1, SHOWN_BYTES, SHOWN_BYTES + 1, 2**20])
def test_a_full_buffer_counts_as_truncated(size: int, declared: bool) -> None:  # noqa: FBT001 - a case
    """Envoy says that the body is not partial when its buffer is exactly full, though more of it follows."""
    shown = long_body(size)[:SHOWN_BYTES]
    length = b"x-penstock-length: %d\r\n" % size if declared else b"x-penstock-length: -\r\n"
    head = length + b"x-envoy-auth-partial-body: false\r\ncontent-length: %d\r\n" % len(shown)
    picker = picker_of(replace(fleet(), models=("a",), served=("a",) * 4, classes=()), Clock())[0]
    wire = Wire()
    line = AuthzConnection(AuthzServer(picker, 0))
    line.connection_made(cast("Any", wire))
    line.data_received(question(head, shown))
    assert wire.written.startswith(b"HTTP/1.1 200 "), wire.written


def test_an_internal_error_is_answered_and_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    server, wire = AuthzServer(picker_of(fleet(), Clock())[0], 0), Wire()
    server.picker.decide_or_hold = None  # type: ignore[method-assign, assignment]
    line = AuthzConnection(server)
    line.connection_made(cast("Any", wire))
    line.data_received(question())
    assert wire.written.startswith(b"HTTP/1.1 500 ")
    assert wire.written.endswith(b"closed")
    assert "could not be answered" in caplog.text
