"""Which requests are replayed? An open-loop trace shaped like a conversation service, with shared system prompts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from engine.replay import Call
from penstock.workload.requests import NO_SEGMENT, Prefixes, Requests

# Azure LLM inference trace 2023, conversation (19,366 requests; Splitwise, ISCA 2024; CC-BY 4.0): mean and standard
# deviation of the logarithm of context and generated tokens. Scaled down to what one core serves in a minute.
_INPUT_LOG = (6.633 - np.log(8), 0.985)
_OUTPUT_LOG = (5.019 - np.log(4), 0.859)
_INPUT_RANGE = (16, 700)
_OUTPUT_RANGE = (4, 200)

# Two system prompts, one of them with two longer templates behind it; none ends where a block of 32 does.
_SEGMENT_TOKENS = (100, 150, 70, 45)
_PATHS = ((0,), (1,), (0, 2), (0, 3))
_SHARING_FRACTION = 0.5

_FIRST_WORD = 4  # ids below are special


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Requests in order of arrival; `paths[i]` are the segments that prompt i begins with."""

    seed: int
    arrival_s: tuple[float, ...]
    input_tokens: tuple[int, ...]
    output_tokens: tuple[int, ...]
    paths: tuple[tuple[int, ...], ...]
    segment_tokens: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.arrival_s)

    def calls(self, vocab_size: int) -> Iterator[Call]:
        """The requests with token ids: equal for equal segments, drawn afresh everywhere else."""
        segments = [_words(self.seed, 1, index, tokens, vocab_size) for index, tokens in enumerate(self.segment_tokens)]
        columns = zip(self.arrival_s, self.input_tokens, self.output_tokens, self.paths, strict=True)
        for index, (at_s, input_tokens, output_tokens, path) in enumerate(columns):
            shared = [word for segment in path for word in segments[segment]]
            own = _words(self.seed, 2, index, input_tokens - len(shared), vocab_size)
            yield Call(at_s=at_s, prompt=[*shared, *own], output_tokens=output_tokens)

    def requests(self) -> Requests:
        """The same in columns, in the order in which they were sent: two calls a hair apart may leave in the other."""
        order = sorted(range(len(self)), key=self.arrival_s.__getitem__)
        paths = [self.paths[row] for row in order]
        return Requests(
            arrival_s=np.array([self.arrival_s[row] for row in order], np.float64),
            input_tokens=np.array([self.input_tokens[row] for row in order], np.int32),
            output_tokens=np.array([self.output_tokens[row] for row in order], np.int32),
            slo_class=np.zeros(len(self), np.uint8),
            prefixes=Prefixes(
                segment_tokens=np.array(self.segment_tokens, np.int32),
                path_start=np.cumsum([0, *(len(path) for path in paths)], dtype=np.int64),
                path=np.array([segment for path in paths for segment in path], np.int32),
                own=np.full(len(self), NO_SEGMENT, np.int32),
            ),
        )

    def sent_at(self, times_s: Sequence[float]) -> "Trace":
        return replace(self, arrival_s=tuple(times_s))


def _words(seed: int, kind: int, index: int, tokens: int, vocab_size: int) -> list[int]:
    words: list[int] = np.random.default_rng((seed, kind, index)).integers(_FIRST_WORD, vocab_size, tokens).tolist()
    return words


def conversation(*, seed: int, requests: int, rate_per_s: float) -> Trace:
    """Poisson arrivals at a rate; half of the prompts begin with one of the shared paths."""
    random = np.random.default_rng(seed)
    arrival_s = np.cumsum(random.exponential(1 / rate_per_s, requests))
    inputs = np.clip(random.lognormal(*_INPUT_LOG, requests), *_INPUT_RANGE).astype(int)
    outputs = np.clip(random.lognormal(*_OUTPUT_LOG, requests), *_OUTPUT_RANGE).astype(int)
    shares = random.random(requests) < _SHARING_FRACTION
    choices = random.integers(0, len(_PATHS), requests)
    paths = tuple(_PATHS[choice] if share else () for choice, share in zip(choices, shares, strict=True))
    # What a request adds to a shared beginning is at least a short question.
    floor = [sum(_SEGMENT_TOKENS[segment] for segment in path) + _INPUT_RANGE[0] for path in paths]
    return Trace(
        seed=seed,
        arrival_s=tuple(arrival_s.tolist()),
        input_tokens=tuple(np.maximum(inputs, floor).tolist()),
        output_tokens=tuple(outputs.tolist()),
        paths=paths,
        segment_tokens=_SEGMENT_TOKENS,
    )
