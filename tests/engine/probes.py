"""How long do known amounts of work take? Short probes of a server that has nothing else to do."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from engine.calibration import Window
from engine.replay import Answer, Call, replay

_ALONE_INPUT_TOKENS = (1, 64, 240, 900)
_ALONE_OUTPUT_TOKENS = 9
_ALONE_REPEATS = 3
_TOGETHER = (4, 8, 16)
_TOGETHER_OUTPUT_TOKENS = 24
_SHORT_CONTEXT, _LONG_CONTEXT = 24, 640
_MIXED_DECODES = 6
_MIXED_INPUT_TOKENS = (64, 240, 64, 240)
_MIXED_GAP_S = 0.15


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
            windows.extend(self._mixed(words, random.uniform(0, _MIXED_GAP_S / 4, len(_MIXED_INPUT_TOKENS)).tolist()))
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
            idle_overheads=1,
            overheads=0,
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

    def _mixed(self, words: Callable[[int], list[int]], jitter_s: Sequence[float]) -> Iterator[Window]:
        """Prompts that arrive while others decode: what they cost those, and what they wait for themselves."""
        decoding = [Call(at_s=0.0, prompt=words(64), output_tokens=120) for _ in range(_MIXED_DECODES)]
        arriving = [
            Call(at_s=(number + 2) * _MIXED_GAP_S + late_s, prompt=words(tokens), output_tokens=1)
            for number, (tokens, late_s) in enumerate(zip(_MIXED_INPUT_TOKENS, jitter_s, strict=True))
        ]
        answers = replay(self.port, [*decoding, *arriving])
        decoded, arrived = answers[:_MIXED_DECODES], answers[_MIXED_DECODES:]
        times = decoded[0].token_s
        begin = times[bisect_right(times, arrived[0].sent_s) - 1]
        end = times[bisect_right(times, arrived[-1].token_s[0])]
        shared = _decode_window("mixed", decoding, decoded, begin, end)
        yield replace(
            shared,
            prefill_tokens=sum(_MIXED_INPUT_TOKENS),
            pairs=sum(tokens * tokens / 2 for tokens in _MIXED_INPUT_TOKENS),
        )
        for tokens, answer in zip(_MIXED_INPUT_TOKENS, arrived, strict=True):
            # An arrival at a random moment waits for half of the step that is under way, and is in the next one.
            yield Window(
                probe=f"arrival {tokens}",
                seconds=answer.ttft_s,
                steps=1.5,
                decodes=1.5 * _MIXED_DECODES,
                prefill_tokens=tokens,
                contexts=1.5 * shared.contexts / shared.steps,
                pairs=tokens * tokens / 2,
                idle_overheads=0,
                overheads=1,
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
        idle_overheads=0,
        overheads=0,
    )
