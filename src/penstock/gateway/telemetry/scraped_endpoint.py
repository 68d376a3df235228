"""Scrapes one endpoint: its health, its load and what its engine has counted."""

import asyncio
import time
from typing import TYPE_CHECKING, Final

from penstock.gateway.state.addresses import split_address
from penstock.gateway.state.shared_tables import begin_write, end_write
from penstock.gateway.telemetry.engine_metrics import PageReport, read_page
from penstock.gateway.telemetry.served_model import ServedModel
from penstock.routing.records import Records

if TYPE_CHECKING:
    from penstock.gateway.telemetry.model_waker import ResidentModel

_TIMEOUT_S: Final = 1.0
_FAILURES: Final = 2
"""Number of consecutive late or wrong responses after which an endpoint counts as down.

An endpoint whose port is closed counts as down at once.
"""
_MAX_PAGE_BYTES: Final = 4 * 2**20


class ScrapedEndpoint:
    """One endpoint to scrape, and the connection to the endpoint."""

    def __init__(self, index: int, address: str, reports: Records, served: ServedModel | None = None) -> None:
        self._index, self._reports, self._served = index, reports, served
        self._host, self._port = split_address(address)
        self._request = f"GET %b HTTP/1.1\r\nhost: {address}\r\n\r\n".encode()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._failed = 0
        self.healthy = True
        self.resident: ResidentModel | None = None
        """The endpoint's model on a shared device, if its engine says whether it sleeps."""
        self.scraped = False
        """True after the first scrape."""

    async def scrape(self) -> bool:
        """Scrape the endpoint once. Return whether the endpoint has running or waiting requests."""
        begun_s = time.monotonic()
        try:
            status, page = await self._ask(b"/metrics")
            report = read_page(page) if status == 200 else None
            if report is not None and self._served is not None and self._served.needs_check(report.models, begun_s):
                _, models = await self._ask(b"/v1/models")
                self._served.apply_list(models, begun_s)
            if report is not None and self.resident is not None:
                answered, state = await self._ask(b"/is_sleeping")
                self.resident.observe(asleep=answered == 200 and b"true" in state)
            failed = status >= 500
        except ConnectionRefusedError:
            self._failed = _FAILURES
            report, failed = None, True
        except asyncio.CancelledError:
            self.close()  # of a fleet that was replaced while the connection was opened
            raise
        except (
            OSError,
            TimeoutError,
            ValueError,
            KeyError,
            TypeError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
        ):
            report, failed = None, True
        if failed:
            self.close()
        self._failed = self._failed + 1 if failed else 0
        self.healthy, self.scraped = self._failed < _FAILURES and not self._serves_other_model, True
        self._write(report, begun_s, failed=failed)
        return report is not None and report.running + report.waiting > 0

    @property
    def _serves_other_model(self) -> bool:
        return self._served is not None and self._served.other

    async def _ask(self, path: bytes) -> tuple[int, bytes]:
        # `wait_for` of Python 3.11 may swallow the cancellation of a task whose fleet was replaced, which then goes on.
        async with asyncio.timeout(_TIMEOUT_S):
            return await self._read(path)

    async def _read(self, path: bytes) -> tuple[int, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port, limit=2**17)
        reader, writer = self._streams
        writer.write(self._request % path)
        head = await reader.readuntil(b"\r\n\r\n")
        lowered = head.lower()
        status = int(head[9:12])
        if b"transfer-encoding: chunked" in lowered:
            page = await _chunks(reader)
        else:
            at = lowered.find(b"content-length:")
            length = int(lowered[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if not 0 <= length <= _MAX_PAGE_BYTES:
                raise ValueError("the metrics page is too long")
            page = await reader.readexactly(length)
        if b"connection: close" in lowered:
            self.close()
        return status, page

    def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    def _write(self, report: PageReport | None, at_s: float, *, failed: bool) -> None:
        rows, index = self._reports, self._index
        begin_write(rows, index)
        row = rows[index]
        row["healthy"], row["other_model"] = self.healthy, self._serves_other_model
        row["scrapes"] += 1
        row["failures"] += failed
        if report is not None:
            row["reported_s"] = at_s
            row["running"], row["waiting"] = report.running, report.waiting
            row["kv_used_tokens"], row["kv_tokens"] = report.kv_used_tokens, report.kv_tokens
            row["ttft_sum_s"], row["ttft_count"] = report.ttft
            row["itl_sum_s"], row["itl_count"] = report.itl
            row["output_sum"], row["output_count"] = report.output
            row["prompt_tokens"], row["generated_tokens"] = report.prompt_tokens, report.generated_tokens
        end_write(rows, index)


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    parts: list[bytes] = []
    total = 0
    while True:
        size = int((await reader.readline()).split(b";")[0], 16)
        total += size
        if not 0 <= total <= _MAX_PAGE_BYTES:
            raise ValueError("the metrics page is too long")
        piece = await reader.readexactly(size + 2)
        if size == 0:
            return b"".join(parts)
        parts.append(piece[:-2])
