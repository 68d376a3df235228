"""Records how requests ended, for the bill by tenant: tokens, times and promises, without any text.

These lines are in the same files as recorded decisions. A decision has no key `version`. An outcome and a meter line
have version 2. An outcome line is written for every request, a meter line by picker 0 every ten seconds: the engines'
own counts of tokens, by which estimates of tokens are scaled.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from penstock.gateway.picker.in_flight import InFlightRequest
from penstock.routing.records import Records

VERSION: Final = 2
METER_EVERY_S: Final = 10.0
_STREAM_TOKEN_BYTES: Final = 220.0
"""Bytes of a streamed chunk with one token, without the name of the model: `data: {"id": ..., "choices": [...]}`."""
_TOKEN_BYTES: Final = 4.5
_WHOLE_BYTES: Final = 450.0
"""Bytes of a whole response without its text."""
STREAM_TYPE: Final = "text/event-stream"
"""Start of the content type of a streamed response."""
_GENERATING: Final = ("/completions", "/responses", "/messages", "/transcriptions", "/translations")
_BAD: Final = 400
_SERVER_ERROR: Final = 500


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


def generates_tokens(path: str) -> bool:
    """Return whether an engine generates tokens for a path. Embeddings and scores are computed without output."""
    return path.partition("?")[0].endswith(_GENERATING)


class OpenRequest(NamedTuple):
    """What the bill needs of a request in flight."""

    tenant: str
    model: str
    slo_class: str
    request_bytes: int
    input_tokens: int
    cached_tokens: tuple[int, ...]
    """Cached tokens of the prompt that are expected at each endpoint."""


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
    """Writer of the lines of ended requests and of meters."""

    def __init__(
        self, write: Callable[[dict[str, Any]], None], *, meters: bool, wall_clock: Callable[[], float] = time.time
    ) -> None:
        self._write, self._meters, self._wall_clock = write, meters, wall_clock
        self._open: dict[int, OpenRequest] = {}
        self._metered_s = -math.inf
        self._read_meters: Callable[[], dict[str, list[float]]] = dict

    def begin(self, ticket: int, request: OpenRequest) -> None:
        """Remember a request that is sent to an endpoint."""
        self._open[ticket] = request

    def drop(self, ticket: int) -> None:
        """Forget a request that no endpoint answers."""
        self._open.pop(ticket, None)

    def adopt(self, before: "OutcomeBook") -> None:
        """Take over the requests in flight from before a fleet reload. They are charged without cached prefixes."""
        opened = before._open  # noqa: SLF001 - same class
        self._open |= {ticket: one._replace(cached_tokens=()) for ticket, one in opened.items()}

    def end(self, ticket: int, ending: RequestEnd) -> None:
        """Write how a request ended."""
        request = self._open.pop(ticket, None)
        if request is None:
            return
        flight, answer = ending.flight, ending.answer
        tokens = output_tokens(answer, request.model, ending.status)
        counted = None if answer is None else answer.output_tokens
        first_s = None if answer is None or answer.first_s is None else answer.first_s - flight.sent_s
        self._write_outcome(
            request,
            pool=ending.pool,
            endpoint=ending.endpoint,
            status=ending.status,
            duration_s=round(max(0.0, ending.ended_s - flight.sent_s), 6),
            waited_s=round(flight.waited_s, 6),
            ttft_s=None if first_s is None else round(first_s, 6),
            **_prompt(request, ending),
            output_tokens=flight.expected_output_tokens if tokens is None else tokens,
            tokens_from="expected" if tokens is None else "bytes" if counted is None else "engine",
            response_bytes=None if answer is None else answer.response_bytes,
            streamed=answer is not None and answer.streamed,
            kept=is_kept(ending, first_s, tokens),
        )

    def refuse(self, request: OpenRequest, status: int, waited_s: float) -> None:
        """Write that a request was refused because of overload."""
        self._write_outcome(
            request,
            pool="",
            endpoint="",
            status=status,
            duration_s=0.0,
            waited_s=round(waited_s, 6),
            ttft_s=None,
            cached_tokens=0,
            output_tokens=0,
            tokens_from="bytes",
            response_bytes=None,
            streamed=False,
            kept=False,
        )

    def _write_outcome(self, request: OpenRequest, **more: object) -> None:
        ended = {
            "ended_unix_s": round(self._wall_clock(), 6),
            "tenant": request.tenant,
            "model": request.model,
            "class": request.slo_class,
            "request_bytes": request.request_bytes,
            "input_tokens": request.input_tokens,
            "prompt_from": "bytes",
            **more,
        }
        self._write({"version": VERSION, "ended": ended})

    def tick(self, now_s: float, addresses: tuple[str, ...], reports: Records) -> None:
        """Write the engines' counts of tokens if the last ones are ten seconds old."""
        if not self._meters or now_s - self._metered_s < METER_EVERY_S or not reports["reported_s"].any():
            return
        self._metered_s = now_s
        self._read_meters = lambda: _meters(addresses, reports)
        self._write_meter()

    def close(self) -> None:
        """Write the engines' counts of tokens for the last time."""
        if self._metered_s > -math.inf:
            self._write_meter()

    def _write_meter(self) -> None:
        self._write(
            {"version": VERSION, "meter": {"at_unix_s": round(self._wall_clock(), 6), "tokens": self._read_meters()}}
        )


def _meters(addresses: tuple[str, ...], reports: Records) -> dict[str, list[float]]:
    """Return the prompt and output tokens that each engine has counted since it started.

    SGLang publishes output tokens only on request, but counts first tokens and the tokens after them.
    """
    return {
        address: [
            float(row["prompt_tokens"]),
            float(row["output_sum"] if row["output_count"] > 0 else row["ttft_count"] + row["itl_count"]),
        ]
        for address, row in zip(addresses, reports, strict=True)
        if row["reported_s"] > 0
    }


def _prompt(request: OpenRequest, ending: RequestEnd) -> dict[str, object]:
    """Return the tokens of a prompt and its cached prefix: the engine's counts, or else those of the picker."""
    answer, expected = ending.answer, 0
    if ending.index < len(request.cached_tokens):
        expected = min(request.cached_tokens[ending.index], request.input_tokens)
    if answer is None or answer.prompt_tokens is None:
        return {"cached_tokens": expected}
    known = expected if answer.cached_tokens is None else answer.cached_tokens
    return {
        "input_tokens": answer.prompt_tokens,
        "cached_tokens": min(known, answer.prompt_tokens),
        "prompt_from": "engine",
    }


def output_tokens(answer: ObservedAnswer | None, model: str, status: int) -> int | None:
    """Return the tokens of a response that the engine counted, or an estimate from its bytes.

    The result is None if nothing is known of the response.
    """
    if status >= _BAD:
        return 0
    if answer is None:
        return None
    if not answer.generates:
        return 0
    if answer.output_tokens is not None:
        return answer.output_tokens
    if answer.streamed:
        return round(answer.response_bytes / (_STREAM_TOKEN_BYTES + len(model)))
    return max(1, round((answer.response_bytes - _WHOLE_BYTES) / _TOKEN_BYTES)) if answer.response_bytes else 0


def is_kept(ending: RequestEnd, ttft_s: float | None, tokens: int | None) -> bool | None:
    """Return whether a request met its SLO. The result is None if that was not seen, or if there is no SLO.

    Without a seen first token, a limit still is known to be met if the whole response took no longer.
    """
    flight = ending.flight
    if ending.failed or ending.status >= _SERVER_ERROR:
        return False
    whole_s = ending.ended_s - flight.sent_s + flight.waited_s
    if not 0 < ending.status < _BAD:  # the client left, or its request was wrong
        return None
    judged: list[bool | None] = []
    if flight.e2e_limit_s < math.inf:
        judged.append(whole_s <= flight.e2e_limit_s)
    if flight.ttft_limit_s < math.inf:
        judged.append(_within(whole_s, None if ttft_s is None else ttft_s + flight.waited_s, flight.ttft_limit_s))
    if flight.tpot_limit_s < math.inf and tokens is not None:
        limit_s = flight.tpot_limit_s * max(0, tokens - 1)
        judged.append(_within(whole_s, None if ttft_s is None else whole_s - flight.waited_s - ttft_s, limit_s))
    if False in judged:
        return False
    return True if judged and None not in judged else None


def _within(most_s: float, seen_s: float | None, limit_s: float) -> bool | None:
    """Return whether a time is within a limit. If it was not seen, it is known to be at most `most_s`."""
    if seen_s is not None:
        return seen_s <= limit_s
    return True if most_s <= limit_s else None
