"""Hostile metrics pages stop neither the scraper nor the pickers."""

import asyncio
import math
import os
import random
from collections.abc import Iterator
from dataclasses import astuple

import numpy as np
import pytest

from gateway_fakes import Clock, body_fields, fleet, picker_of, state
from penstock.emulator.metrics_page import sglang_page, vllm_page
from penstock.gateway.picker.picker import EndpointChoice
from penstock.gateway.picker.request_body import RequestHints
from penstock.gateway.state.shared_tables import REPORT
from penstock.gateway.telemetry import scraped_endpoint
from penstock.gateway.telemetry.engine_metrics import read_page

CASES = int(os.environ.get("PENSTOCK_FUZZ_CASES", "3000"))
NUMBERS = [
    b"0",
    b"1e14",
    b"9" * 15,
    b"1e308",
    b"-1",
    b"NaN",
    b"+Inf",
    b"9" * 400,
    b"1e-300",
    b"0x10",
    b"",
    b"1_0",
]


def page(rng: random.Random) -> bytes:
    """One page: true, with wrong numbers, with lines repeated, mixed, cut or noise."""
    text: bytes = rng.choice([vllm_page, sglang_page])(state(running=rng.randrange(9)))
    lines = text.split(b"\n")
    for _ in range(rng.randrange(6)):
        at, kind = rng.randrange(len(lines)), rng.randrange(5)
        if kind == 0:
            lines[at] = lines[at].rpartition(b" ")[0] + b" " + rng.choice(NUMBERS)
        elif kind == 1:
            lines[at:at] = [lines[at]] * rng.choice([1, 3, 200])
        elif kind == 2:
            lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
        elif kind == 3:
            lines[at] = rng.randbytes(rng.randrange(60))
        else:
            blocks, size = rng.choice(NUMBERS).decode(), rng.choice(["16", "0", "99999999999999", "x"])
            lines[at] = f'vllm:cache_config_info{{num_gpu_blocks="{blocks}",block_size="{size}"}} 1.0'.encode()
    return b"\n".join(lines)


def test_no_page_overflows_a_table_or_stops_a_picker() -> None:
    rng, clock = random.Random(16), Clock()
    picker, tables = picker_of(fleet(), clock)
    for case in range(CASES):
        report = read_page(page(rng))
        clock.now_s += 0.01
        row = tables.reports[0]
        row["healthy"], row["sequence"] = 1, row["sequence"] + 2
        if report is not None:
            *figures, models = astuple(report)
            assert all(0 <= value < 2**53 for value in np.hstack(figures)), report
            assert all(0 < len(name) <= 256 for name in models), report
            row["reported_s"] = clock.now_s
            for name in ("running", "waiting", "kv_used_tokens", "kv_tokens", "prompt_tokens"):
                row[name] = getattr(report, name)
            row["ttft_sum_s"], row["ttft_count"] = report.ttft
            row["itl_sum_s"], row["itl_count"] = report.itl
            row["output_sum"], row["output_count"] = report.output
        for model in ("a", "b"):
            named = picker.decide(body_fields(model), b"x" * 400, RequestHints())
            # An endpoint that says anything at all keeps nobody from the others, of its model or another.
            assert isinstance(named, EndpointChoice), (case, named)
            assert named.order
            assert {picker.fleet.served[index] for index in named.order} == {model}
            clock.now_s += 0.001
            picker.state.end(named.ticket, picker.fleet.addresses[named.order[0]], 200, "-", 1)
        assert all(math.isfinite(record["wait_s"]) for record in picker.state.endpoints)


def answers(rng: random.Random) -> Iterator[bytes]:
    """What an endpoint sends for a question: right, of another length than it says, not HTTP, too much, nothing."""
    while True:
        body, kind = page(rng), rng.randrange(12)
        length = rng.choice([len(body), 0, len(body) + 7, len(body) - 7, -1, 2**40])
        head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % length
        if kind == 0:
            yield rng.randbytes(rng.randrange(400))
        elif kind == 1:
            yield b"HTTP/1.1 " + rng.choice([b"abc", b"", b"99999", "²³¹".encode()]) + b"\r\n\r\n"
        elif kind == 2:
            yield b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 30_000 + b"\r\n"
        elif kind in {3, 4}:
            size = rng.choice([b"%x" % len(body), b"-5", b"", b"zz", b"f" * 300, b"%x" % (len(body) + 9), b"7fffffff"])
            end = rng.choice([b"0\r\n\r\n", b"", b"0\r\n"])
            yield b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + size + b"\r\n" + body + b"\r\n" + end
        elif kind == 5:
            yield b""
        elif kind == 6:
            yield head + body[: len(body) // 2]
        else:
            yield b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body if kind > 8 else head + body


def test_no_response_stops_the_scraper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scraped_endpoint, "_TIMEOUT_S", 0.02)
    rng, reports = random.Random(16), np.zeros(1, REPORT)

    async def scene() -> int:
        told, open_ = answers(rng), set[asyncio.StreamWriter]()

        async def endpoint(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            open_.add(writer)
            try:
                while await reader.readuntil(b"\r\n\r\n"):
                    writer.write(next(told))
                    if rng.random() < 0.2:
                        break
            except (OSError, asyncio.IncompleteReadError):
                pass
            open_.discard(writer)
            writer.close()

        server = await asyncio.start_server(endpoint, "127.0.0.1", 0)
        watched = scraped_endpoint.ScrapedEndpoint(0, f"127.0.0.1:{server.sockets[0].getsockname()[1]}", reports)
        looks = max(200, CASES // 10)
        for _ in range(looks):
            await watched.scrape()
            assert reports["sequence"][0] % 2 == 0
        watched.close()
        server.close()
        for writer in open_:
            writer.transport.abort()
        await asyncio.sleep(0.05)
        return looks

    looks = asyncio.run(scene())
    assert int(reports["scrapes"][0]) == looks
    assert 0 < int(reports["failures"][0]) < looks
