"""A reload closes the connections of the old fleet."""

import asyncio
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from gateway_fakes import fleet, state
from penstock.emulator.metrics_page import vllm_page
from penstock.gateway.telemetry.scraper import Scraper

_PAGE = vllm_page(state())
_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(_PAGE), _PAGE)


def test_a_reload_closes_old_connections(tmp_path: Path) -> None:
    open_: set[asyncio.StreamWriter] = set()

    async def endpoint(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_.add(writer)
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(_ANSWER)
        except (OSError, asyncio.IncompleteReadError):
            open_.discard(writer)
            writer.close()

    async def scene() -> list[int]:
        server = await asyncio.start_server(endpoint, "127.0.0.1", 0)
        port, counted = server.sockets[0].getsockname()[1], []
        scraper = Scraper(tmp_path, 1)
        for generation in range(5):
            addresses = (f"127.0.0.1:{port}",) * 4
            replace(fleet(), generation=generation, addresses=addresses).write(tmp_path / "fleet.bin")
            scraper.start()
            await asyncio.sleep(0.3)
            for _ in range(200):  # on a busy machine the new ones come late, or the old ones go late
                if len(open_) == len(addresses):
                    break
                await asyncio.sleep(0.05)
            counted.append(len(open_))
        scraper.stop()
        server.close()
        await asyncio.sleep(0.1)
        return [*counted, len(open_)]

    (tmp_path / "xds").mkdir()
    assert asyncio.run(scene()) == [4, 4, 4, 4, 4, 0]


def test_concurrent_writes_of_a_json_file_are_atomic(tmp_path: Path) -> None:
    """The supervisor and the scraper both write Envoy's endpoints when a fleet is reloaded."""
    program = (
        "import sys, pathlib; from penstock.gateway.telemetry.scraper import write_json\n"
        "for turn in range(400): write_json(pathlib.Path(sys.argv[1]), {'turn': turn})"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "eds-0.json")]
    writers = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(2)]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    assert [path.name for path in tmp_path.iterdir()] == ["eds-0.json"]
