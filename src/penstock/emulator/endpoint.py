"""How does one emulated endpoint answer? Requests go through its engine on a real clock, which may run faster."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from penstock.emulator.engine import EmulatedEngine, EmulatedRequest, Totals
from penstock.emulator.faults import EndpointFault
from penstock.emulator.metrics_page import EngineState, Observed, sglang_page, vllm_page
from penstock.emulator.openai import CompletionAnswer, CompletionAsked, error_body, models_body, read_completion
from penstock.errors import UsageError
from penstock.serving import TEXT, Exchange
from penstock.simulation.replica import Replica

_COMPLETIONS: Final = (b"/v1/chat/completions", b"/v1/completions")
_EVENTS: Final = b"text/event-stream; charset=utf-8"
_TRIES: Final = 3
"""Times a step is planned anew when the only request that ran was preempted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatedReplica:
    """What one endpoint stands for."""

    address: str
    pool: str
    model: str
    adapters: tuple[str, ...] = ()
    """What else is answered to."""
    engine: str
    replica: Replica
    max_tokens: int
    """Prompt and answer of one request."""
    usual_output_tokens: int
    """Mean length of an answer whose end nobody sets."""


@dataclass(slots=True, eq=False)
class _Served:
    """A request with whom it is for."""

    request: EmulatedRequest
    asked: CompletionAsked
    answer: CompletionAnswer
    exchange: Exchange
    lag_s: float = 0.0
    """How much later than the engine a client sees tokens: detokenising and HTTP."""
    sent: int = 0
    last_s: float = 0.0


class EmulatedEndpoint:
    """One endpoint. Seconds are the engine's own; `speed` of them pass in a second of the clock."""

    def __init__(self, of: EmulatedReplica, *, speed: float, seed: int) -> None:
        self.of, self.speed = of, speed
        self.fault = EndpointFault()
        self.requests = 0
        """Completions that were asked for, whatever became of them."""
        self.latest_s = 0.0
        """How late the clock was at worst, in its own seconds: beyond a step the emulator is too slow for its load."""
        self._random = Random(seed)  # noqa: S311 - lengths of answers
        self._loop = asyncio.get_running_loop()
        self._start = self._loop.time()
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.engine = EmulatedEngine(self.of.replica)
        self._observed = Observed()
        self._served: dict[int, _Served] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._end_s = 0.0
        self._page: bytes | None = None
        self._hung: list[Exchange] = []

    @property
    def now_s(self) -> float:
        """The engine's time."""
        return (self._loop.time() - self._start) * self.speed

    def handle(self, exchange: Exchange) -> None:
        """CompletionAnswer a request, or have it wait for its tokens."""
        if self.fault.name == "hang":
            self._hung.append(exchange)
            return
        path = exchange.path.partition(b"?")[0]
        if exchange.method == b"POST" and path in _COMPLETIONS:
            self._complete(exchange, path)
        elif exchange.method != b"GET":
            exchange.reply(405, error_body("Method Not Allowed", "BadRequestError", 405))
        elif path == b"/metrics":
            exchange.reply(200, self._metrics(), TEXT)
        elif path in {b"/health", b"/ping"}:
            exchange.reply(200, b"")
        elif path == b"/v1/models":
            exchange.reply(200, models_body(self.of.model, self.of.adapters, self.of.max_tokens))
        else:
            exchange.reply(404, error_body("Not Found", "NotFoundError", 404))

    def set_fault(self, fault: EndpointFault) -> None:
        """Fail from now on, or be well again."""
        was, self.fault = self.fault.name, fault
        self._page = self._current_page() if fault.name in {"stale", "lie"} else None
        if fault.name == "hang":
            self._stop()
        elif was == "hang":
            self._wake()
            hung, self._hung = self._hung, []
            for exchange in hung:
                if not exchange.answered:
                    self.handle(exchange)

    def forget(self) -> None:
        """Lose everything, as a process that died has."""
        self._stop()
        self._begin_anew()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _complete(self, exchange: Exchange, path: bytes) -> None:
        self.requests += 1
        if self.fault.name == "refuse":
            exchange.reply(503, error_body("the engine refuses requests", "ServiceUnavailable", 503))
            return
        try:
            asked = read_completion(path, exchange.body)
            request = self._request(asked)
        except UsageError as error:
            exchange.reply(400, error_body(str(error), "BadRequestError", 400))
            return
        if asked.model not in (self.of.model, *self.of.adapters):
            message = f"The model `{asked.model[:200]}` does not exist."
            exchange.reply(404, error_body(message, "NotFoundError", 404))
            return
        served = _Served(request, asked, CompletionAnswer(asked, self.requests, int(time.time())), exchange)
        exchange.on_gone = lambda: self._abort(served)
        if asked.stream:
            exchange.start(_EVENTS)
        self._later(self.of.replica.request_s, lambda: self._arrive(served))

    def _request(self, asked: CompletionAsked) -> EmulatedRequest:
        room = self.of.max_tokens - asked.input_tokens
        limit = asked.limit_tokens if asked.limit_tokens is not None else room
        if room < 1 or limit > room:
            raise UsageError(
                f"This model's maximum context length is {self.of.max_tokens} tokens; "
                f"the prompt has {asked.input_tokens} and {limit} are asked for"
            )
        drawn = limit if asked.ignore_eos else 1 + int(self._random.expovariate(1 / self.of.usual_output_tokens))
        keys = asked.keys(self.of.replica.block_tokens) if self.of.replica.prefix_caching else []
        return EmulatedRequest(input_tokens=asked.input_tokens, output_tokens=min(drawn, limit), keys=keys)

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        """Call when so many of the engine's seconds have passed."""
        if seconds / self.speed < 1e-3:  # noqa: PLR2004 - finer than a timer of the loop
            call()
        else:
            self._loop.call_later(seconds / self.speed, call)

    def _arrive(self, served: _Served) -> None:
        if served.exchange.answered:
            return
        served.request.arrival_s = self.now_s
        self._served[id(served.request)] = served
        self.engine.add(served.request)
        self._wake()

    def _abort(self, served: _Served) -> None:
        if self._served.pop(id(served.request), None) is not None:
            self.engine.remove(served.request)
        self._observed.ended["abort"] += 1

    def _wake(self) -> None:
        if self._timer is None and self.fault.name != "hang" and not self.engine.idle:
            self._begin(self.now_s)

    def _begin(self, now_s: float) -> None:
        for _ in range(_TRIES):
            seconds = self.engine.begin(now_s) * self.fault.step_factor
            if seconds > 0 or self.engine.idle:
                break
        if seconds > 0:
            self._end_s = now_s + seconds
            self._timer = self._loop.call_at(self._start + self._end_s / self.speed, self._end)

    def _end(self) -> None:
        self._timer = None
        now_s = self._end_s
        self.latest_s = max(self.latest_s, self.now_s - now_s)
        for request in self.engine.end(now_s):
            served = self._served.get(id(request))
            if served is None:
                continue
            if request.generated == 1:
                self._first(served)
            else:
                self._observed.itl_s.add(now_s - served.last_s)
            served.last_s = now_s
            if request.finished:
                del self._served[id(request)]
            self._later(served.lag_s, lambda served=served: self._deliver(served))  # type: ignore[misc]
        if not self.engine.idle:
            # From the planned end and not from now: lateness of the clock must not add up.
            self._begin(now_s)

    def _first(self, served: _Served) -> None:
        request, replica = served.request, self.of.replica
        first_s, admitted_s = request.first_s or 0.0, request.admitted_s or 0.0
        served.lag_s = max(0.0, (replica.first_ratio - 1) * (first_s - admitted_s))
        waited_s = admitted_s - request.arrival_s
        self._observed.queue_s.add(max(0.0, waited_s))
        self._observed.ttft_s.add(replica.request_s + first_s - request.arrival_s + served.lag_s)

    def _deliver(self, served: _Served) -> None:
        exchange, request = served.exchange, served.request
        if exchange.answered:
            return
        served.sent += 1
        if self.fault.name == "drop" and exchange.started and served.sent >= self.fault.times:
            exchange.cut()
            self._abort(served)
            return
        last = request.finished and served.sent == request.generated
        if served.asked.stream:
            exchange.send(served.answer.tokens(1))
        if last:
            self._finish(served)

    def _finish(self, served: _Served) -> None:
        request, asked = served.request, served.asked
        reason = "length" if request.output_tokens == asked.limit_tokens else "stop"
        seen = self._observed
        seen.ended[reason] += 1
        seen.e2e_s.add(self.of.replica.request_s + served.last_s - request.arrival_s + served.lag_s)
        seen.input_tokens.add(request.input_tokens)
        seen.output_tokens.add(request.generated)
        if asked.stream:
            served.exchange.send(served.answer.closing(request.generated, reason))
            served.exchange.finish()
        else:
            served.exchange.reply(200, served.answer.whole(request.generated, reason))

    def _metrics(self) -> bytes:
        if self.fault.name == "stale" and self._page is not None:
            return self._page
        return self._current_page()

    def _current_page(self) -> bytes:
        lying, engine, replica = self.fault.name == "lie", self.engine, self.of.replica
        state = EngineState(
            model=self.of.model,
            running=0 if lying else len(engine.running),
            waiting=0 if lying else len(engine.waiting),
            used_blocks=0 if lying else engine.cache.used,
            blocks=replica.kv_blocks,
            block_tokens=replica.block_tokens,
            totals=Totals() if lying else engine.totals,
            observed=Observed() if lying else self._observed,
        )
        return sglang_page(state) if self.of.engine == "sglang" else vllm_page(state)
