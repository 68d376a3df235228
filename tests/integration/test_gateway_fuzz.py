"""Hostile requests through a real Envoy: no crash, no wrong model, no foreign destination, no prompt in a log."""

import asyncio
import json
import os
import random
import stat
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ports import free_ports

pytest.importorskip("httptools", reason='the gateway is an extra: pip install "penstock[gateway]"')

from gateway_stack import Running, chat, running
from hostile_requests import PROMPT, Hostile, hostile

CASES = int(os.environ.get("PENSTOCK_FUZZ_CASES", "300"))
"""Of each protocol."""
AT_ONCE = 48
WAIT_S, PATIENCE_S = 1.0, 30.0


@pytest.fixture(scope="module", params=["module", "ext_proc"])
def stack(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("fuzz")
    with running(
        folder,
        endpoints=4,
        models=("one", "two"),
        protocol=request.param,
        access_log=str(folder / "access.json"),
        own_log=str(folder / "own.log"),
        receipts=str(folder / "receipts.jsonl"),
        metrics=f"127.0.0.1:{free_ports(1)[0]}",
    ) as stack:
        yield stack


async def send(stack: Running, case: Hostile) -> int:
    """Send what a case says; the status of the first answer, 0 where there was none."""
    reader, writer = await asyncio.open_connection("127.0.0.1", stack.port)
    try:
        for part in case.parts:
            writer.write(part)
            await writer.drain()
            if case.pause_s:
                await asyncio.sleep(case.pause_s)
        raw = b"" if case.leaves else await answer(reader, writer)
    except OSError:
        return 0
    finally:
        writer.transport.abort()
    words = raw.split(maxsplit=2)
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Read until the other side closes; one that waits for more of a body than there is sees that no more comes."""
    raw, told = b"", False
    while True:
        try:
            piece = await asyncio.wait_for(reader.read(2**16), PATIENCE_S if told else WAIT_S)
        except TimeoutError:
            assert not told, "a client is left waiting"
            told = True
            writer.write_eof()
            continue
        if not piece:
            return raw
        raw += piece


def written(stack: Running) -> Iterator[Path]:
    """Every file the gateway writes: its folder, its logs, its receipts."""
    logs = Path(str(stack.stack.access_log)).parent
    for path in (*Path(stack.stack.folder).rglob("*"), *logs.iterdir()):
        if stat.S_ISREG(path.stat().st_mode):
            yield path


def test_hostile_requests_do_no_harm(stack: Running) -> None:
    rng, seen = random.Random(16), Counter[int]()
    before = {name: stack.children(name) for name in ("picker", "scraper", "envoy")}

    async def client(cases: Iterator[int]) -> None:
        for _ in cases:
            seen[await send(stack, hostile(rng))] += 1

    async def all_of_them() -> None:
        cases = iter(range(CASES))
        await asyncio.gather(*(client(cases) for _ in range(AT_ONCE)))

    asyncio.run(all_of_them())
    assert sum(seen.values()) == CASES
    assert {name: stack.children(name) for name in before} == before  # nothing had to be started again
    assert seen[200] > CASES / 20
    assert [asyncio.run(stack.ask(chat(model=model)))[0] for model in ("one", "two")] == [200, 200]
    lines: list[dict[str, Any]] = [
        json.loads(line) for line in Path(str(stack.stack.access_log)).read_text().splitlines()
    ]
    # Envoy answers 501 to an unknown transfer encoding, and breaks off what is not HTTP; other 5xx would be ours.
    ours = [line for line in lines if int(line["status"] or 0) >= 500 and line["flags"] != "DPE"]
    assert not ours, ours[:5]
    # An endpoint answers 404 for a model it does not have, as it does where it knows no such path.
    known = {"/v1/chat/completions", "/v1/completions"}
    wrong = [line for line in lines if line["status"] == 404 and line["served"] and line["path"] in known]
    assert not wrong, wrong[:5]
    assert {line["served"] for line in lines if line["served"]} <= set(stack.stack.addresses)
    page = urllib.request.urlopen(f"http://{stack.stack.metrics}/metrics", timeout=5).read()
    told = [str(path) for path in written(stack) if PROMPT.encode() in path.read_bytes()]
    assert not told, told
    assert PROMPT.encode() not in page


def test_slow_clients_do_not_delay_others(stack: Running) -> None:
    async def scene() -> list[int]:
        slow = []
        for _ in range(50):
            reader, writer = await asyncio.open_connection("127.0.0.1", stack.port)
            writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
            slow.append((reader, writer))
        answers = [(await stack.ask(chat(model="one")))[0] for _ in range(20)]
        for _, writer in slow:
            writer.close()
        return answers

    assert asyncio.run(scene()) == [200] * 20
