"""A streaming client that notes when each response's first piece and last token arrive, and what a gateway says."""

import asyncio
import json
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from penstock.prometheus_text import read_samples


@dataclass(frozen=True, slots=True)
class Timed:
    """One streamed response."""

    tenant: str
    sent_s: float
    first_s: float
    last_s: float
    tokens: int

    @property
    def ttft_s(self) -> float:
        return self.first_s - self.sent_s

    @property
    def tpot_s(self) -> float:
        return (self.last_s - self.first_s) / (self.tokens - 1)

    @property
    def duration_s(self) -> float:
        return self.last_s - self.sent_s


async def stream(port: int, path: str, body: bytes, tenant: str) -> Timed:
    """Send one request, which asks for `usage`, and read its stream."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nx-penstock-tenant: {tenant}\r\n"
    sent_s = time.perf_counter()
    writer.write(f"{head}connection: close\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
    pieces = await reader.readuntil(b"\r\n\r\n")
    assert b" 200 " in pieces.partition(b"\r\n")[0], pieces
    first_s = last_s = 0.0
    text = b""
    while piece := await reader.read(65536):
        last_s = time.perf_counter()
        first_s = first_s or (last_s if b"data:" in piece else 0.0)
        text += piece
    writer.close()
    assert b"[DONE]" in text, text[-200:]
    usage = text[text.rindex(b'"completion_tokens"') :]
    return Timed(tenant, sent_s, first_s, last_s, int(usage.partition(b":")[2].strip().split(b",")[0].split(b"}")[0]))


def stream_all(port: int, path: str, bodies: Sequence[tuple[str, bytes]], at_once: int) -> list[Timed]:
    """Send requests of tenants, so many at once."""
    answers: list[Timed] = []
    left = iter(bodies)

    async def client() -> None:
        for tenant, body in left:
            answers.append(await stream(port, path, body, tenant))

    async def clients() -> None:
        await asyncio.gather(*(client() for _ in range(at_once)))

    asyncio.run(clients())
    return answers


def reported(metrics: str) -> tuple[int, float, float]:
    """Return how many first tokens a gateway has seen, and the mean time to first token and per token it reports."""
    page = urllib.request.urlopen(f"http://{metrics}/metrics", timeout=5).read().decode()
    sums = {
        name: fsum(one.value for one in read_samples(page) if one.name == f"penstock_request_{name}")
        for name in ("ttft_seconds_sum", "ttft_seconds_count", "tpot_seconds_sum", "tpot_seconds_count")
    }
    count = int(sums["ttft_seconds_count"])
    if not count:
        return 0, 0.0, 0.0
    return count, sums["ttft_seconds_sum"] / count, sums["tpot_seconds_sum"] / sums["tpot_seconds_count"]


def request_body(prompt: object, tokens: int, model: str) -> bytes:
    """A streamed completion that says what it used."""
    asked = {"prompt": prompt, "model": model, "max_tokens": tokens, "ignore_eos": True, "stream": True}
    return json.dumps({**asked, "stream_options": {"include_usage": True}}).encode()
