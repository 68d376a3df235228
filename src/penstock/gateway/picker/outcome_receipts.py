"""Records how requests ended, for metrics and for the bill by tenant: tokens, times and promises, without any text.

With receipts, these lines are in the same files as recorded decisions. A decision has no key `version`. An outcome, a
meter and a gap line have version 3. An outcome line is written for every request, a meter line by picker 0 every ten
seconds: the engines' own counts of tokens, by which estimates of tokens are scaled. A gap line tells where lines are
missing, because the disk was full.
"""

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from penstock.gateway.picker.in_flight import InFlightRequest
from penstock.gateway.picker.outcome_rules import ENDED_REQUEST, EndedRequest, request_outcomes
from penstock.gateway.state.request_outcome import outcome_lines
from penstock.routing.records import Records

VERSION: Final = 3
METER_EVERY_S: Final = 10.0
STREAM_TYPE: Final = "text/event-stream"
"""Start of the content type of a streamed response."""
_GENERATING: Final = ("/completions", "/responses", "/messages", "/transcriptions", "/translations")


class ObservedAnswer(NamedTuple):
    """What is known of a response at its end."""

    response_bytes: int
    streamed: bool
    generates: bool
    """Whether the path generates tokens. Embeddings and scores do not."""
    first_s: float | None = None
    """Time of the first piece of the response on the picker's clock; None if it was not seen."""
    prompt_tokens: int | None = None
    """This and the next two: counts that the engine wrote into the response; None if it wrote none."""
    cached_tokens: int | None = None
    output_tokens: int | None = None


_UNSEEN: Final = ObservedAnswer(-1, streamed=False, generates=False)


def generates_tokens(path: str) -> bool:
    """Return whether an engine generates tokens for a path. Embeddings and scores are computed without output."""
    return path.partition("?")[0].endswith(_GENERATING)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestEnd:
    """End of a request: where it was served, and what was seen of it."""

    endpoint: str
    pool: str
    index: int
    status: int
    failed: bool
    ended_s: float
    """End on the picker's clock."""
    flight: InFlightRequest
    answer: ObservedAnswer | None


class OutcomeBook:
    """Recorder of ended requests, for receipts and metrics, and writer of meters."""

    def __init__(
        self,
        write: Callable[..., None] | None = None,
        *,
        meters: bool = False,
        publish: Callable[[Records], None] | None = None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._write, self._publish = write, publish
        self._meters, self._wall_clock = meters, wall_clock
        self._open: dict[int, tuple[EndedRequest, tuple[int, ...]]] = {}
        self._ended: list[EndedRequest] = []
        self._metered_s = -math.inf
        self._read_meters: Callable[[], dict[str, list[float]]] = dict

    def begin(self, ticket: int, request: EndedRequest, cached_tokens: tuple[int, ...]) -> None:
        """Remember a request that is sent, with the tokens of its prompt that are expected in each endpoint's cache."""
        self._open[ticket] = request, cached_tokens

    def drop(self, ticket: int) -> None:
        """Forget a request that no endpoint answers."""
        self._open.pop(ticket, None)

    def adopt(self, before: "OutcomeBook") -> None:
        """Take over the requests in flight from before a fleet reload. They are charged without cached prefixes."""
        before.flush()
        opened = before._open  # noqa: SLF001 - same class
        self._open |= {ticket: (request, ()) for ticket, (request, _) in opened.items()}

    def end(self, ticket: int, ending: RequestEnd) -> None:
        """Note how a request ended. It is recorded at the next tick."""
        if ticket not in self._open:
            return
        request, cached = self._open.pop(ticket)
        flight, answer = ending.flight, ending.answer or _UNSEEN
        counts = (answer.prompt_tokens, answer.cached_tokens, answer.output_tokens)
        prompt, prefix, output = (-1 if count is None else count for count in counts)
        ended = request._replace(
            ended_unix_s=self._wall_clock(),
            status=ending.status,
            waited_s=flight.waited_s,
            pool=ending.pool,
            endpoint=ending.endpoint,
            sent_s=flight.sent_s,
            first_s=answer.first_s or 0.0,
            ended_s=ending.ended_s,
            failed=ending.failed,
            streamed=answer.streamed,
            generates=answer.generates,
            cached_tokens=cached[ending.index] if ending.index < len(cached) else 0,
            expected_output_tokens=flight.expected_output_tokens,
            response_bytes=answer.response_bytes,
            counted_prompt=prompt,
            counted_cached=prefix,
            counted_output=output,
            ttft_limit_s=flight.ttft_limit_s,
            tpot_limit_s=flight.tpot_limit_s,
            e2e_limit_s=flight.e2e_limit_s,
        )
        self._ended.append(ended)

    def refuse(self, request: EndedRequest) -> None:
        """Note that a request was refused because of overload. It is recorded at the next tick."""
        self._ended.append(request._replace(ended_unix_s=self._wall_clock()))

    def flush(self) -> None:
        """Record the requests that have ended."""
        ended, self._ended = self._ended, []
        if ended:
            self.record(np.array(ended, ENDED_REQUEST))

    def record(self, ended: Records) -> None:
        """Record ended requests, given as an array of `ENDED_REQUEST`."""
        outcomes = request_outcomes(ended)
        if self._publish is not None:
            self._publish(outcomes)
        if self._write is not None:
            lines = [f'{{"version": {VERSION}, "ended": {line}}}' for line in outcome_lines(outcomes)]
            self._write(lines, len(lines))

    def tick(self, now_s: float, addresses: tuple[str, ...], reports: Records) -> None:
        """Record the requests that have ended. Write the engines' counts of tokens if the last ones are 10 s old."""
        self.flush()
        if not self._meters or now_s - self._metered_s < METER_EVERY_S or not reports["reported_s"].any():
            return
        self._metered_s = now_s
        self._read_meters = lambda: _meters(addresses, reports)
        self._write_meter()

    def close(self) -> None:
        """Record the last requests, and write the engines' counts of tokens for the last time."""
        self.flush()
        if self._metered_s > -math.inf:
            self._write_meter()

    def _write_meter(self) -> None:
        if self._write is None:
            return
        meter = {"at_unix_s": round(self._wall_clock(), 6), "tokens": self._read_meters()}
        self._write([json.dumps({"version": VERSION, "meter": meter})])


def gap_line(from_unix_s: float, to_unix_s: float, lost: int) -> str:
    """Return the line that tells where lines are missing, and of how many ended requests."""
    gap = {"from_unix_s": round(from_unix_s, 6), "to_unix_s": round(to_unix_s, 6), "lost": lost}
    return json.dumps({"version": VERSION, "gap": gap})


def _meters(addresses: tuple[str, ...], reports: Records) -> dict[str, list[float]]:
    """Return the prompt and output tokens that each engine has counted since it started.

    An engine that does not publish its generated tokens counts first tokens and the tokens after them.
    """
    return {
        address: [
            float(row["prompt_tokens"]),
            float(row["generated_tokens"] if row["generated_tokens"] > 0 else row["ttft_count"] + row["itl_count"]),
        ]
        for address, row in zip(addresses, reports, strict=True)
        if row["reported_s"] > 0
    }
