"""Serves one emulated endpoint. The emulated engine runs in real time, or faster or slower by a constant factor."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from penstock.emulator.completion_request import CompletionRequest, Prompt, read_completion
from penstock.emulator.emulated_engine import EmulatedEngine, EmulatedRequest, Totals
from penstock.emulator.endpoint_faults import EndpointFault
from penstock.emulator.metrics_page import EngineState, Observed, sglang_page, vllm_page
from penstock.emulator.openai_responses import CompletionAnswer, Ending, models_body
from penstock.emulator.served_paths import SLEEP_PATHS, allowed_methods
from penstock.emulator.server_facts import ServedLimits, ServerFacts, describe
from penstock.emulator.sleep_mode import NO_TIMES, MemoryShare, SleepMode, SleepTimes
from penstock.errors import UsageError
from penstock.http_server import Exchange, error_body
from penstock.prometheus_text import CONTENT_TYPE
from penstock.simulation.replica import Replica

_EVENTS: Final = b"text/event-stream; charset=utf-8"
_TRIES: Final = 3
"""Maximum attempts to plan a step. A step must be planned again if the only running request was preempted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatedReplica:
    """The replica that one endpoint emulates."""

    address: str
    pool: str
    model: str
    adapters: tuple[str, ...] = ()
    """Names of the LoRA adapters that the endpoint serves in addition to the base model."""
    engine: str
    simulated: Replica
    facts: ServerFacts
    max_tokens: int
    """Maximum tokens of a request, prompt and output together."""
    usual_output_tokens: int
    """Mean output length, in tokens, of requests that do not set an output length."""
    sleep: SleepTimes | None = None
    """Times of the engine's sleep mode. None if the server is started without it."""
    memory: MemoryShare | None = None
    """Its part of a device that several endpoints share."""


@dataclass(slots=True, eq=False)
class _Completion:
    """One client's request and the progress of its response."""

    completion: CompletionRequest
    answer: CompletionAnswer
    exchange: Exchange
    choices: "list[_Choice]" = field(default_factory=list)
    sent: int = 0
    """Number of tokens sent, summed over all choices."""
    complete: int = 0
    """Number of choices whose tokens are all sent."""


@dataclass(slots=True, eq=False)
class _Choice:
    """One choice of a response, which is a separate sequence in the engine."""

    served: _Completion
    number: int
    request: EmulatedRequest
    ending: Ending
    """Length and finish reason of this choice. Length and finish reason are sampled when the request arrives."""
    lag_s: float = 0.0
    """Delay in seconds between engine and client, for detokenizing and HTTP."""
    sent: int = 0
    last_s: float = 0.0

    @property
    def complete(self) -> bool:
        """True if all tokens of this choice are sent."""
        return self.sent == self.ending.tokens


class EmulatedEndpoint:
    """An emulated endpoint. Times are in engine seconds: in each real second, `speed` engine seconds pass."""

    def __init__(self, replica: EmulatedReplica, *, speed: float, seed: int) -> None:
        self.replica, self.speed = replica, speed
        self.fault = EndpointFault()
        self.requests = 0
        """Number of completion requests received, whatever their outcome."""
        self.latest_s = 0.0
        """Largest delay of a step, in engine seconds. The emulator is overloaded if it exceeds a step's duration."""
        self._random = Random(seed)  # noqa: S311 - only draws output lengths
        self._loop = asyncio.get_running_loop()
        self._start = self._loop.time()
        self._reset()

    def _reset(self) -> None:
        self.engine = EmulatedEngine(self.replica.simulated)
        self._observed = Observed()
        self._choices: dict[int, _Choice] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._end_s = 0.0
        self._page: bytes | None = None
        self._hung: list[Exchange] = []
        self._sleep = SleepMode(self.replica.sleep or NO_TIMES, self._later, self.replica.memory)

    @property
    def now_s(self) -> float:
        """Current time in engine seconds."""
        return (self._loop.time() - self._start) * self.speed

    def handle(self, exchange: Exchange) -> None:
        """Reply to an HTTP request at once, or queue a completion request in the engine."""
        if self.fault.name == "hang":
            self._hung.append(exchange)
            return
        path = exchange.path.partition(b"?")[0]
        methods = allowed_methods(path, self.replica.engine, sleeps=self.replica.sleep is not None)
        if methods is None:
            exchange.reply(404, error_body("Not Found", "NotFoundError", 404))
        elif exchange.method not in methods:
            more = b"allow: " + b", ".join(methods) + b"\r\n"
            exchange.reply(405, error_body("Method Not Allowed", "BadRequestError", 405), more=more)
        elif path.endswith(b"/completions"):
            self._complete(exchange, path)
        elif path == b"/metrics":
            exchange.reply(200, self._metrics(), CONTENT_TYPE)
        elif path in SLEEP_PATHS.get(self.replica.engine, {}):
            self._change_residency(exchange, path)
        elif path == b"/v1/models":
            one = self.replica
            exchange.reply(200, models_body(one.model, one.adapters, one.max_tokens, one.facts.checkpoint))
        else:
            self._describe(exchange, path)

    def _describe(self, exchange: Exchange, path: bytes) -> None:
        """Reply with a fact about the server, tokenize a prompt, or empty the prefix cache."""
        replica = self.replica
        model = ServedLimits(
            name=replica.model,
            max_tokens=replica.max_tokens,
            kv_blocks=replica.simulated.kv_blocks,
            block_tokens=replica.simulated.block_tokens,
        )
        try:
            if path in {b"/flush_cache", b"/reset_prefix_cache"}:
                self.engine.cache.forget_idle()
            exchange.reply(200, describe(path, exchange.body, replica.facts, model))
        except UsageError as error:
            exchange.reply(400, error_body(str(error), "BadRequestError", 400))

    def _change_residency(self, exchange: Exchange, path: bytes) -> None:
        """Sleep, wake, or say whether the engine sleeps."""
        forget = self.engine.cache.forget_idle
        if path == b"/sleep":
            self._sleep.sleep(exchange, idle=self.engine.idle, abort=self._end_all, forget=forget)
        elif path == b"/release_memory_occupation":
            self._sleep.release(exchange, idle=self.engine.idle, forget=forget)
        elif path == b"/is_sleeping":
            exchange.reply(200, self._sleep.state_body())
        else:
            self._sleep.wake(exchange, self._wake)

    def _end_all(self) -> None:
        """End all requests with the tokens sent so far, as vLLM does before it sleeps."""
        self._stop()
        for served in {id(choice.served): choice.served for choice in self._choices.values()}.values():
            self._abort(served)
            for one in served.choices:
                if not one.complete:
                    one.ending = replace(one.ending, tokens=one.sent, reason="abort")
                    if served.completion.stream:
                        served.exchange.send(served.answer.cut(one.number, one.ending))
            self._close(served)

    def set_fault(self, fault: EndpointFault) -> None:
        """Set the endpoint's fault. The fault named `none` clears the current fault."""
        before, self.fault = self.fault.name, fault
        self._page = self._current_page() if fault.name in {"stale", "lie"} else None
        if fault.name == "hang":
            self._stop()
        elif before == "hang":
            self._wake()
            hung, self._hung = self._hung, []
            for exchange in hung:
                if not exchange.answered:
                    self.handle(exchange)

    def restart(self, replica: EmulatedReplica) -> None:
        """Continue as another replica, as if the server had been started again with other settings."""
        self.replica = replica
        self.forget()

    def forget(self) -> None:
        """Drop the endpoint's state, as if the engine's process had died."""
        self._stop()
        self._reset()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _complete(self, exchange: Exchange, path: bytes) -> None:
        self.requests += 1
        if (status := self.fault.status) is not None:
            refusal = f"the fault `{self.fault.name}` is set, so this endpoint rejects completions"
            exchange.reply(status, error_body(refusal, "ServiceUnavailable", status), more=self.fault.redirection)
            return
        try:
            completion = read_completion(path, exchange.body, self.replica.facts.template_tokens)
            model = completion.model or self.replica.model
            if model not in (self.replica.model, *self.replica.adapters):
                message = f"The model `{model[:200]}` does not exist."
                exchange.reply(404, error_body(message, "NotFoundError", 404))
                return
            answer = CompletionAnswer(
                completion,
                model,
                self.requests,
                int(time.time()),
                own_end=self.replica.engine == "sglang",
                other_text=self.replica.facts.other_text,
            )
            served = _Completion(completion, answer, exchange)
            self._create_choices(served)
        except UsageError as error:
            exchange.reply(400, error_body(str(error), "BadRequestError", 400))
            return
        exchange.on_disconnect = lambda: self._abort(served)
        if completion.stream:
            exchange.start(_EVENTS)
        self._later(self.replica.simulated.request_s, lambda: self._arrive(served))

    def _create_choices(self, served: _Completion) -> None:
        """Create one sequence per choice, as vLLM does. Choices of one prompt share the prompt's cached blocks."""
        completion, replica = served.completion, self.replica.simulated
        if completion.greedy and completion.choices_per_prompt > 1 and self.replica.engine == "vllm":
            raise UsageError(f"n must be 1 when using greedy sampling, got {completion.choices_per_prompt}.")
        for prompt in completion.prompts:
            keys = prompt.keys(replica.block_tokens) if replica.prefix_caching else []
            limit = self._limit(completion, prompt)
            for _ in range(completion.choices_per_prompt):
                ending = self._ending(completion, limit)
                request = EmulatedRequest(input_tokens=prompt.tokens, output_tokens=ending.tokens, keys=keys)
                served.choices.append(_Choice(served, len(served.choices), request, ending))

    def _limit(self, completion: CompletionRequest, prompt: Prompt) -> int:
        room = self.replica.max_tokens - prompt.tokens
        limit = completion.limit_tokens if completion.limit_tokens is not None else room
        if room < 1 or limit > room:
            raise UsageError(
                f"This model's maximum context length is {self.replica.max_tokens} tokens; "
                f"the prompt has {prompt.tokens} and the request asks for {limit} more."
            )
        return min(limit, self.replica.facts.answer_cap or limit)

    def _ending(self, completion: CompletionRequest, limit: int) -> Ending:
        length = (
            limit if completion.ignore_eos else 1 + int(self._random.expovariate(1 / self.replica.usual_output_tokens))
        )
        tokens = min(max(length, completion.min_tokens), limit)
        if completion.stop is not None and completion.stop.tokens <= tokens:
            return Ending(completion.stop.tokens, "stop", completion.stop.text)
        return Ending(tokens, "length" if tokens == limit else "stop")

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        """Call a function after a delay in engine seconds."""
        if seconds / self.speed < 1e-3:  # below the loop's timer resolution
            call()
        else:
            self._loop.call_later(seconds / self.speed, call)

    def _arrive(self, served: _Completion) -> None:
        if served.exchange.answered:
            return
        for choice in served.choices:
            choice.request.arrival_s = self.now_s
            self._choices[id(choice.request)] = choice
            self.engine.add(choice.request)
        self._wake()

    def _abort(self, served: _Completion) -> None:
        for choice in served.choices:
            if self._choices.pop(id(choice.request), None) is not None:
                self.engine.remove(choice.request)
            self._observed.ended["abort"] += not choice.complete

    def _wake(self) -> None:
        if self._timer is None and self.fault.name != "hang" and not self.engine.idle and not self._sleep.asleep:
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
            choice = self._choices.get(id(request))
            if choice is None:
                continue
            if request.generated == 1:
                self._first(choice)
            else:
                self._observed.itl_s.add(now_s - choice.last_s)
            choice.last_s = now_s
            if request.finished:
                del self._choices[id(request)]
            self._later(choice.lag_s, lambda choice=choice: self._deliver(choice))  # type: ignore[misc]
        if self.engine.idle:
            self._sleep.begin_waiting()
        else:
            # Start the next step at the planned end of this step, not at the current time. So delays do not add up.
            self._begin(now_s)

    def _first(self, choice: _Choice) -> None:
        request, replica = choice.request, self.replica.simulated
        first_s, admitted_s = request.first_s or 0.0, request.admitted_s or 0.0
        choice.lag_s = max(0.0, (replica.first_ratio - 1) * (first_s - admitted_s))
        waited_s = admitted_s - request.arrival_s
        self._observed.queue_s.add(max(0.0, waited_s))
        self._observed.ttft_s.add(replica.request_s + first_s - request.arrival_s + choice.lag_s)

    def _deliver(self, choice: _Choice) -> None:
        served = choice.served
        if served.exchange.answered:
            return
        choice.sent += 1
        served.sent += 1
        if self.fault.name == "drop" and served.exchange.started and served.sent >= self.fault.times:
            choice.sent -= 1
            served.exchange.abort()
            self._abort(served)
            return
        if served.completion.stream:
            opening = served.answer.opening() if served.sent == 1 else b""
            ending = choice.ending if choice.complete else None
            served.exchange.send(opening + served.answer.token(choice.number, choice.sent, ending))
        if choice.complete:
            self._finish(choice)

    def _finish(self, choice: _Choice) -> None:
        request, served, observed = choice.request, choice.served, self._observed
        observed.ended[choice.ending.reason] += 1
        observed.e2e_s.add(self.replica.simulated.request_s + choice.last_s - request.arrival_s + choice.lag_s)
        observed.input_tokens.add(request.input_tokens)
        observed.output_tokens.add(request.generated)
        if served.completion.stream:
            served.exchange.send(served.answer.end(choice.number, choice.ending))
        served.complete += 1
        if served.complete == len(served.choices):
            self._close(served)

    def _close(self, served: _Completion) -> None:
        """End the response of a request whose choices have all ended."""
        endings = [_with_hits(one) for one in served.choices]
        if served.completion.stream:
            served.exchange.send(served.answer.closing(endings))
            served.exchange.finish()
        else:
            served.exchange.reply(200, served.answer.whole(endings))

    def _metrics(self) -> bytes:
        if self.fault.name == "stale" and self._page is not None:
            return self._page
        return self._current_page()

    def _current_page(self) -> bytes:
        lying, engine, replica = self.fault.name == "lie", self.engine, self.replica.simulated
        state = EngineState(
            model=self.replica.model,
            running=0 if lying else len(engine.running),
            waiting=0 if lying else len(engine.waiting),
            used_blocks=0 if lying else engine.cache.used,
            blocks=replica.kv_blocks,
            block_tokens=replica.block_tokens,
            cache_dtype=self.replica.facts.cache_dtype,
            prefix_caching=replica.prefix_caching,
            drafted_tokens=self.replica.facts.drafted_tokens,
            totals=Totals() if lying else engine.totals,
            observed=Observed() if lying else self._observed,
        )
        return sglang_page(state) if self.replica.engine == "sglang" else vllm_page(state)


def _with_hits(choice: _Choice) -> Ending:
    """Return the ending of a choice with its prompt's cached tokens. The first choice of a prompt counts them."""
    is_first = choice.number % choice.served.completion.choices_per_prompt == 0
    return replace(choice.ending, cached_tokens=choice.request.hit_tokens or 0) if is_first else choice.ending
