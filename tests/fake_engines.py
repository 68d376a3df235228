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
    more_headers: str = ""
    """Further lines in the head of each completion."""
    in_pieces: bool = False
    """Whether a stream comes in chunks of an event each. Otherwise it is one piece, of which no pace is learned."""
    _free: asyncio.Event = field(default_factory=asyncio.Event)
    _loop: asyncio.AbstractEventLoop | None = None

    async def listen(self) -> asyncio.Server:
        self._loop = asyncio.get_running_loop()
        self._free.set()
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0, limit=2**20)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return server

    @contextmanager
    def held(self) -> Iterator[None]:
        """Answer nothing meanwhile, and of a stream in pieces only the first event."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._free.clear)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._free.set)

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
            said = json.loads(body) if body.startswith(b"{") else {}
            fails, streams = self.status != 200 or POISON in body, bool(said.get("stream"))
            if streams and self.in_pieces and not fails and not writer.transport.is_closing():
                writer.write(_stream_head(self.more_headers) + _chunk(_event(str(len(body)))))
            await self._free.wait()
            if writer.transport.is_closing():
                return
            if fails:
                status = self.status if self.status != 200 else 500
                writer.write(_reply(status, b'{"error": {"message": "this engine fails"}}'))
            elif streams and not self.in_pieces:
                text = _event(str(len(body))) + b"data: [DONE]\n\n"
                writer.write(_reply(200, text, "text/event-stream", self.more_headers))
            elif streams:
                writer.write(_chunk(_event("")) + _chunk(b"data: [DONE]\n\n") + _chunk(b""))
            else:
                writer.write(_reply(200, json.dumps(_completion(len(body))).encode(), more=self.more_headers))
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


def _event(text: str) -> bytes:
    choice = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
    event = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": MODEL, "choices": [choice]}
    return f"data: {json.dumps(event)}\n\n".encode()


def _stream_head(more: str) -> bytes:
    return f"HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\n{more}transfer-encoding: chunked\r\n\r\n".encode()


def _chunk(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece)


def _reply(status: int, body: bytes, kind: str = "application/json", more: str = "") -> bytes:
    head = f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\n{more}content-length: {len(body)}\r\n\r\n"
    return head.encode() + body


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
            servers.append(await engine.listen())
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
