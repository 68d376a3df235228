"""When did each token of each request arrive? An open-loop streaming client that costs its core little."""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_HEAD = b"POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One completion to ask for: its prompt as token ids, so that lengths are exact, and when to send it."""

    at_s: float
    prompt: Sequence[int]
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back, on the clock of `time.perf_counter`: `token_s[k]` is when token k was in hand."""

    sent_s: float
    token_s: tuple[float, ...]

    @property
    def ttft_s(self) -> float:
        return self.token_s[0] - self.sent_s

    @property
    def e2e_s(self) -> float:
        return self.token_s[-1] - self.sent_s


def replay(port: int, calls: Sequence[Call], *, also: tuple[float, Callable[[], None]] | None = None) -> list[Answer]:
    """Send every call at its time whatever the server does, and return the answers in the order of the calls.

    `also` is one more thing to do, and when.
    """
    return asyncio.run(_replay(port, calls, also))


async def _replay(port: int, calls: Sequence[Call], also: tuple[float, Callable[[], None]] | None) -> list[Answer]:
    # Encoding before the start and decoding after the end keep the client off the core while the clock runs.
    bodies = [_encode(call) for call in calls]
    start = time.perf_counter()
    aside = asyncio.create_task(_later(*also)) if also else None
    streams = await asyncio.gather(
        *(_stream(port, start, call.at_s, body) for call, body in zip(calls, bodies, strict=True))
    )
    if aside:
        await aside
    return [
        Answer(sent_s=sent_s, token_s=token_times(lines, call.output_tokens))
        for call, (sent_s, lines) in zip(calls, streams, strict=True)
    ]


async def _later(at_s: float, act: Callable[[], None]) -> None:
    await asyncio.sleep(at_s)
    await asyncio.to_thread(act)


def _encode(call: Call) -> bytes:
    body = {
        "model": "tiny",
        "prompt": list(call.prompt),
        "max_tokens": call.output_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    return json.dumps(body).encode()


async def _stream(port: int, start: float, at_s: float, body: bytes) -> tuple[float, list[tuple[float, bytes]]]:
    await asyncio.sleep(start + at_s - time.perf_counter())
    sent_s = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(_HEAD % len(body) + body)
    # HTTP/1.0 answers without chunked framing: every line that begins with "data: {" is one event.
    lines = []
    while line := await reader.readline():
        if line.startswith(b"data: {"):
            lines.append((time.perf_counter(), line))
    writer.close()
    await writer.wait_closed()
    return sent_s, lines


def token_times(lines: Sequence[tuple[float, bytes]], expected: int) -> tuple[float, ...]:
    """One time per token; an event carries several where the server's front end fell behind the engine."""
    times: list[float] = []
    for at_s, line in lines:
        event = json.loads(line.removeprefix(b"data: "))
        if "usage" not in event:
            raise RuntimeError(f"the engine answered {event}")
        times.extend([at_s] * (event["usage"]["completion_tokens"] - len(times)))
    if len(times) != expected:
        raise RuntimeError(f"the engine sent {len(times)} tokens where {expected} were asked for")
    return tuple(times)
