"""Engines that fail, are slow, or return what they received; one thread serves all of a test."""

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

MODEL = "llama"
POISON = b"poison"
"""What every engine answers 500 to."""


@dataclass
class FakeEngine:
    """One endpoint, whose behaviour may be changed while it runs."""

    model: str = MODEL
    status: int = 200
    delay_s: float = 0.0
    """Before the first byte of an answer, its headers included, as SGLang answers streams."""
    busy: bool = True
    """Whether its metrics show the requests it has."""
    address: str = ""
    asked: Counter[str] = field(default_factory=Counter)
    """Requests by path."""
    running: int = 0
    heads: list[str] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).decode("latin-1"):
                body = await _body(reader, head)
                await self._answer(head, body, writer)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    async def _answer(self, head: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        method, path, _ = head.split(" ", 2)
        if method == "GET" and path in {"/metrics", "/v1/models"}:
            writer.write(_reply(200, self._page() if path == "/metrics" else self._cards()))
            return
        self.asked[path] += 1
        self.heads.append(head)
        self.running += 1
        try:
            await asyncio.sleep(self.delay_s)
            if writer.transport.is_closing():
                return
            said = json.loads(body) if body.startswith(b"{") else {}
            if self.status != 200 or POISON in body:
                writer.write(_reply(max(500, self.status), b'{"error": {"message": "this engine fails"}}'))
            elif said.get("stream"):
                writer.write(_stream(len(body)))
            else:
                writer.write(_reply(200, json.dumps(_completion(len(body))).encode()))
        finally:
            self.running -= 1

    def _page(self) -> bytes:
        label = f'{{engine="0",model_name="{self.model}"}}'
        running = self.running if self.busy else 0
        return f"vllm:num_requests_running{label} {running}\nvllm:num_requests_waiting{label} 0\n".encode()

    def _cards(self) -> bytes:
        return json.dumps({"object": "list", "data": [{"id": self.model}]}).encode()


def _completion(size: int) -> dict[str, object]:
    """A chat completion whose text is the length of the body that was received."""
    message = {"role": "assistant", "content": str(size)}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"id": "x", "object": "chat.completion", "created": 0, "model": MODEL, "choices": [choice]}


def _stream(size: int) -> bytes:
    choice = {"index": 0, "delta": {"role": "assistant", "content": str(size)}, "finish_reason": None}
    event = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": MODEL, "choices": [choice]}
    return _reply(200, f"data: {json.dumps(event)}\n\ndata: [DONE]\n\n".encode(), "text/event-stream")


def _reply(status: int, body: bytes, kind: str = "application/json") -> bytes:
    return f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


async def _body(reader: asyncio.StreamReader, head: str) -> bytes:
    lowered = head.lower()
    if "transfer-encoding: chunked" in lowered:
        parts = []
        while size := int(await reader.readline(), 16):
            parts.append((await reader.readexactly(size + 2))[:-2])
        await reader.readline()
        return b"".join(parts)
    _, found, rest = lowered.partition("content-length: ")
    return await reader.readexactly(int(rest.split("\r\n", 1)[0])) if found else b""


@contextmanager
def fake_engines(count: int, models: Sequence[str] = (MODEL,)) -> Iterator[list[FakeEngine]]:
    """Serve some engines on ports of their own, each with the next of the models."""
    engines = [FakeEngine(model=models[number % len(models)]) for number in range(count)]
    ready, ends = threading.Event(), list[tuple[asyncio.AbstractEventLoop, asyncio.Event]]()

    async def serve() -> None:
        servers, stopped = [], asyncio.Event()
        for engine in engines:
            servers.append(await asyncio.start_server(engine.serve, "127.0.0.1", 0, limit=2**20))
            engine.address = f"127.0.0.1:{servers[-1].sockets[0].getsockname()[1]}"
        ends.append((asyncio.get_running_loop(), stopped))
        ready.set()
        await stopped.wait()
        for server in servers:
            server.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield engines
    finally:
        for loop, stopped in ends:
            loop.call_soon_threadsafe(stopped.set)
        thread.join(10)
