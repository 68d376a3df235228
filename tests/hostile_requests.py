"""Hostile requests: bodies, encodings, framing and headers that are almost right, wrong or malicious."""

import gzip
import json
import random
from dataclasses import dataclass
from typing import Final

PROMPT: Final = "the-prompt-nobody-may-write-down"
"""In the prompt of every request that has one."""
MODELS: Final = ("one", "two", "three")
"""The last is served by nobody."""
_WORDS: Final = ["model", "messages", "prompt", "stream", "max_tokens", "one", "two", "x" * 3000, "\ud800", "\0", "é"]
_HEADERS: Final = [
    "x-gateway-destination-endpoint: 10.1.2.3:80",
    "X-Gateway-Destination-Endpoint: 127.0.0.1:1",
    "x-gateway-destination-endpoint-served: 127.0.0.1:1",
    "x-penstock-model: two",
    "X-Penstock-Model: one",
    "x-penstock-ticket: 1",
    "x-penstock-picker: 0",
    "x-penstock-length: 5",
    "x-envoy-upstream-rq-per-try-timeout-ms: 1",
    "x-envoy-upstream-rq-timeout-ms: 1",
    "x-envoy-upstream-alt-stat-name: " + PROMPT,
    "x-envoy-retry-on: 5xx",
    "x-envoy-original-dst-host: 127.0.0.1:1",
    "x-envoy-auth-failure-mode-allowed: true",
    "x-envoy-auth-partial-body: true",
    "x-penstock-objective: batch",
    "x-slo-ttft-ms: nan",
    "x-slo-tpot-ms: -1e309",
    "x-llm-d-slo-ttft-ms: 1e-400",
    "x-llm-d-inference-fairness-id: " + "y" * 5000,
    "content-encoding: gzip",
    "transfer-encoding: identity",
    "content-type: multipart/form-data",
    "expect: 100-continue",
    "connection: upgrade",
    "upgrade: h2c",
    "te: trailers",
    "x-\x01: 1",
    "no-colon",
    ": empty",
    " folded: 1",
    "x-many: 1\r\nx-many: 2\r\nx-many: 3",
]
_PATHS: Final = [
    *["/v1/chat/completions"] * 8,
    "/v1/completions",
    "/v1/../admin",
    '/v1/"x',
    "/metrics",
    "/v1/chat/completions?x=" + "y" * 2000,
    "//v1/chat/completions",
    "/v1/chat%2fcompletions",
    "http://10.1.2.3/v1/chat/completions",
    "*",
]


@dataclass(frozen=True, slots=True)
class Hostile:
    """One connection: what is sent on it, how, and whether anybody waits for the answer."""

    parts: tuple[bytes, ...]
    pause_s: float = 0.0
    """Between the parts."""
    leaves: bool = False


def hostile(rng: random.Random) -> Hostile:
    """Draw a request."""
    headers = [rng.choice(_HEADERS) for _ in range(rng.randrange(3) if rng.random() < 0.98 else 300)]
    method = rng.choice(["POST"] * 20 + ["GET", "PUT", "OPTIONS", "TRACE", "CONNECT", "post", "P\0ST"])
    version = rng.choice(["HTTP/1.1"] * 20 + ["HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "HTTX/1.1"])
    head = f"{method} {rng.choice(_PATHS)} {version}\r\nhost: x\r\nconnection: close\r\n"
    head += "content-type: application/json\r\n" + "".join(f"{header}\r\n" for header in headers)
    sent = _framed(rng, head.encode("utf-8", "surrogatepass"), body(rng))
    leaves = rng.random() < 0.03
    if leaves:
        sent = sent[: rng.randrange(1, len(sent) + 1)]
    if rng.random() < 0.03:
        at = sorted(rng.randrange(len(sent) + 1) for _ in range(4))
        pieces = tuple(sent[start:end] for start, end in zip([0, *at], [*at, len(sent)], strict=True))
        return Hostile(pieces, rng.choice([0.001, 0.05]), leaves)
    return Hostile((sent,), 0.0, leaves)


def _framed(rng: random.Random, head: bytes, content: bytes) -> bytes:
    """Say a body's length: rightly, wrongly, twice, in chunks, or not at all."""
    kind = rng.randrange(24)
    length = b"content-length: %d\r\n" % len(content)
    chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(content), content)
    if kind == 0:
        return head + b"content-length: %d\r\n\r\n" % max(0, len(content) - rng.randrange(20)) + content
    if kind == 1:
        return head + length + b"content-length: 7\r\n\r\n" + content
    if kind == 2:
        return (
            head
            + rng.choice([b"content-length: -1", b"content-length: 9" + b"9" * 30, b"content-length: 0x10"])
            + (b"\r\n\r\n" + content)
        )
    if kind == 3:
        return head + length + b"transfer-encoding: chunked\r\n\r\n" + chunks
    if kind in {4, 5}:
        return head + b"transfer-encoding: chunked\r\n\r\n" + chunks
    if kind == 6:
        size = rng.choice([b"zz", b"-1", b"f" * 40, b"", b"5;" + b"x" * 900])
        return head + b"transfer-encoding: chunked\r\n\r\n" + size + b"\r\n" + content + b"\r\n0\r\n\r\n"
    if kind == 7:
        return head + b"\r\n" + content
    if kind == 8:
        # A second request behind the first: what one parser takes for a body another must not take for a request.
        return head + b"content-length: 0\r\n\r\n" + content + head + length + b"\r\n" + content
    return head + length + b"\r\n" + content


def body(rng: random.Random) -> bytes:
    """Draw a body: nearly right, wrong in a field, of another encoding, cut, deep, large, or noise."""
    kind = rng.randrange(16)
    if kind == 0:
        return rng.randbytes(rng.randrange(300))
    if kind == 1:
        return rng.choice([b"[", b'{"a":', b"{"]) * rng.randrange(1, 20_000)
    said = [{"role": "user", "content": PROMPT}]
    right: dict[str, object] = {
        "messages": said,
        "model": rng.choice(MODELS),
        "max_tokens": rng.randrange(1, 4),
        "stream": kind == 2,
    }
    if kind in {3, 4}:
        right[rng.choice(_WORDS)] = _value(rng)
    if kind == 5 and rng.random() < 0.1:
        right["padding"] = "x" * rng.choice([70_000, 300_000, 9_000_000])
    text = json.dumps(right)
    if kind in {6, 7}:
        return _twice(rng, text)
    raw = text.encode()
    if kind == 8:
        return raw[: rng.randrange(len(raw))]
    if kind == 9:
        at = rng.randrange(len(raw))
        return raw[:at] + rng.randbytes(3) + raw[at:]
    if kind == 10:
        return rng.choice([text.encode("utf-16"), text.encode("utf-32-be"), b"\xef\xbb\xbf" + raw, gzip.compress(raw)])
    return raw


def _twice(rng: random.Random, text: str) -> bytes:
    """Name the model twice, inside something else, or by another spelling of its key."""
    other = rng.choice(MODELS)
    form = rng.choice(
        [
            f'{{"model":"{other}",{text[1:]}',
            f'{text[:-1]},"model":"{other}"}}',
            f'{{"metadata":{{"model":"{other}"}},{text[1:]}',
            text.replace('"model"', '"mod\\u0065l"'),
            text.replace('"model"', '"Model"'),
            f'{{"model":["{other}"],{text[1:]}',
            f'{{"x":"\\",\\"model\\":\\"{other}","y":{"9" * rng.choice([4, 5000])},{text[1:]}',
        ]
    )
    return form.encode()


def _value(rng: random.Random, depth: int = 0) -> object:
    kind = rng.randrange(8 if depth < 4 else 5)
    if kind == 0:
        return rng.choice(_WORDS)
    if kind == 1:
        return rng.choice([0, -1, 2**63, 10**400 if rng.random() < 0.02 else 7, 1e308])
    if kind == 2:
        return rng.choice([True, False, None])
    if kind in {3, 4}:
        return [{"role": "user", "content": rng.choice(_WORDS)}]
    if kind == 5:
        return [_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(_WORDS): _value(rng, depth + 1) for _ in range(rng.randrange(4))}
