"""What does a step of this engine cost on this machine? Short probes of an idle server and the line through them."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations

import numpy as np

from engine.replay import Answer, Call, replay

_TERMS = ("step_s", "decode_s", "prefill_token_s", "context_s", "pair_s", "overhead_s")

_ALONE_INPUT_TOKENS = (1, 64, 240, 900)
_ALONE_OUTPUT_TOKENS = 9
_ALONE_REPEATS = 3
_TOGETHER = (4, 8, 16)
_TOGETHER_OUTPUT_TOKENS = 24
_SHORT_CONTEXT, _LONG_CONTEXT = 24, 640
_MIXED_DECODES, _MIXED_INPUT_TOKENS = 6, (64, 240)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A stretch of time and the work the engine did in it, each a sum over its steps."""

    probe: str
    seconds: float
    steps: int
    decodes: int
    prefill_tokens: int
    contexts: float
    """Tokens behind each decode, summed over decodes and steps."""
    pairs: float
    """Query-key pairs of the prefill chunks: b*b/2 - a*a/2 for a chunk [a, b)."""
    overheads: int
    """Requests whose way in and first token out lie in the window."""

    def work(self) -> tuple[float, ...]:
        """In the order of the terms of the fit."""
        return (self.steps, self.decodes, self.prefill_tokens, self.contexts, self.pairs, self.overheads)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Seconds of a step as a sum of non-negative parts, and what a request spends outside the engine's steps."""

    step_s: float
    decode_s: float
    prefill_token_s: float
    context_s: float
    pair_s: float
    overhead_s: float
    median_error_fraction: float
    """Of the windows it was fitted to."""

    def scaled(self, factor: float) -> "Fit":
        """The same machine, slower by a factor."""
        return replace(self, **{term: factor * getattr(self, term) for term in _TERMS})

    def seconds(self, window: Window) -> float:
        terms = (self.step_s, self.decode_s, self.prefill_token_s, self.context_s, self.pair_s, self.overhead_s)
        return sum(term * amount for term, amount in zip(terms, window.work(), strict=True))


def fit(windows: Sequence[Window]) -> Fit:
    """Non-negative least squares of relative errors, each kind of probe counting once.

    Repetitions are summed first: weighting single measurements by their own seconds would favour the fast ones.
    """
    cells = merge(windows)
    seconds = np.array([cell.seconds for cell in cells])
    work = np.array([cell.work() for cell in cells]) / seconds[:, None]
    best = min(_solutions(work), key=lambda terms: float(np.square(work @ terms - 1).sum()))
    return Fit(
        **dict(zip(_TERMS, best.tolist(), strict=True)),
        median_error_fraction=float(np.median(np.abs(work @ best - 1))),
    )


def _solutions(
    work: np.ndarray[tuple[int, int], np.dtype[np.float64]],
) -> Iterator[np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """Least squares with every choice of terms at zero: the best one without a negative is the constrained optimum."""
    terms = range(work.shape[1])
    for size in terms:
        for kept in combinations(terms, size + 1):
            solution = np.zeros(work.shape[1])
            solution[list(kept)] = np.linalg.lstsq(work[:, kept], np.ones(len(work)), rcond=None)[0]
            if (solution >= 0).all():
                yield solution


def merge(windows: Sequence[Window]) -> list[Window]:
    merged: dict[str, dict[str, float]] = {}
    for window in windows:
        sums = merged.setdefault(window.probe, {})
        for name, value in asdict(window).items():
            if name != "probe":
                sums[name] = sums.get(name, 0) + value
    return [Window(probe=probe, **sums) for probe, sums in merged.items()]  # type: ignore[arg-type] # sums of the same types


@dataclass(frozen=True, slots=True, kw_only=True)
class Prober:
    """Measures windows on an idle server whose cache holds `cache_tokens`."""

    port: int
    vocab_size: int
    max_num_batched_tokens: int
    cache_tokens: int

    def measure(self, *, rounds: int) -> list[Window]:
        """Every probe once per round, so that a slow spell of the machine touches all of them.

        The words are drawn without a seed: a prompt that was asked before would be found in the cache.
        """
        random = np.random.default_rng()

        def words(tokens: int) -> list[int]:
            drawn: list[int] = random.integers(4, self.vocab_size, tokens).tolist()
            return drawn

        replay(self.port, [Call(at_s=0.0, prompt=words(64), output_tokens=8)])  # an engine that was asleep is slow once
        windows: list[Window] = []
        for _ in range(rounds):
            for tokens in _ALONE_INPUT_TOKENS * _ALONE_REPEATS:
                windows.extend(self._alone(words, tokens))
            for requests in _TOGETHER:
                for context in (_SHORT_CONTEXT, self._long_context(requests)):
                    windows.append(self._together(words, requests, context))
            for tokens in _MIXED_INPUT_TOKENS:
                windows.append(self._mixed(words, tokens))
        return windows

    def _long_context(self, requests: int) -> int:
        """As long as fits the cache without a preemption, to within a block for each."""
        return min(_LONG_CONTEXT, int(0.9 * self.cache_tokens) // requests - _TOGETHER_OUTPUT_TOKENS - 32)

    def _alone(self, words: Callable[[int], list[int]], tokens: int) -> Iterator[Window]:
        call = Call(at_s=0.0, prompt=words(tokens), output_tokens=_ALONE_OUTPUT_TOKENS)
        (answer,) = replay(self.port, [call])
        yield Window(
            probe=f"prefill {tokens}",
            seconds=answer.ttft_s,
            steps=-(-tokens // self.max_num_batched_tokens),
            decodes=0,
            prefill_tokens=tokens,
            contexts=0,
            pairs=tokens * tokens / 2,
            overheads=1,
        )
        yield _decode_window(f"decode 1 x {tokens}", [call], [answer], answer.token_s[0], answer.token_s[-1])

    def _together(self, words: Callable[[int], list[int]], requests: int, context: int) -> Window:
        """Requests that decode side by side: from the last one's first token to the first one's last."""
        calls = [
            Call(at_s=0.0, prompt=words(context), output_tokens=_TOGETHER_OUTPUT_TOKENS + requests)
            for _ in range(requests)
        ]
        answers = replay(self.port, calls)
        begin = max(answer.token_s[0] for answer in answers)
        end = min(answer.token_s[-1] for answer in answers)
        return _decode_window(f"decode {requests} x {context}", calls, answers, begin, end)

    def _mixed(self, words: Callable[[int], list[int]], tokens: int) -> Window:
        """A prompt that arrives while others decode: from the token before it was sent to the token after its own."""
        decoding = [Call(at_s=0.0, prompt=words(64), output_tokens=90) for _ in range(_MIXED_DECODES)]
        calls = [*decoding, Call(at_s=0.3, prompt=words(tokens), output_tokens=1)]
        *answers, arrived = replay(self.port, calls)
        times = answers[0].token_s
        begin = times[bisect_right(times, arrived.sent_s) - 1]
        end = times[min(bisect_right(times, arrived.token_s[0]) + 1, len(times) - 1)]
        window = _decode_window(f"mixed {tokens}", decoding, answers, begin, end)
        return Window(
            **{
                **asdict(window),
                "prefill_tokens": tokens,
                "pairs": tokens * tokens / 2,
            }
        )


def _decode_window(probe: str, calls: Sequence[Call], answers: Sequence[Answer], begin: float, end: float) -> Window:
    """The steps of the first request's tokens in (begin, end], all requests decoding in each."""
    times = answers[0].token_s
    first, last = bisect_right(times, begin), bisect_right(times, end)
    steps = times[first:last]
    # The step that gives token k has the prompt and k - 1 generated tokens behind it.
    contexts = sum(
        len(call.prompt) + max(bisect_right(answer.token_s, at_s) - 2, 0)
        for at_s in steps
        for call, answer in zip(calls, answers, strict=True)
    )
    return Window(
        probe=probe,
        seconds=steps[-1] - times[first - 1],
        steps=len(steps),
        decodes=len(steps) * len(calls),
        prefill_tokens=0,
        contexts=contexts,
        pairs=0,
        overheads=0,
    )
