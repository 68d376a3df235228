"""Generates the text of emulated responses: one word, repeated up to the length limit or a stop string."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_WORD: Final = " penstock"
"""Text of one token. All its letters are different, so each substring occurs once per word."""


@dataclass(frozen=True, slots=True)
class StopText:
    """The first stop string that occurs in a response."""

    text: str
    tokens: int
    """Number of output tokens when the stop string is complete."""
    sent_chars: int
    """Number of characters that the client gets."""


def first_stop(stops: Sequence[str], *, min_tokens: int, included: bool) -> StopText | None:
    """Return the first stop string that ends a response, or None. Matches before `min_tokens` do not count."""
    size, stops_found = len(_WORD), []
    for text in stops:
        place = _words(len(text) + size).find(text)
        if place >= 0:
            end = place + len(text)
            end += size * max(0, (size * min_tokens - end) // size + 1)
            stops_found.append(StopText(text, -(-end // size), end if included else end - len(text)))
    return min(stops_found, key=lambda stop: stop.tokens, default=None)


def chars_after(tokens: int, stop: StopText | None, *, held_chars: int, last: bool) -> int:
    """Return how many characters are sent after `tokens` tokens. A possible start of a stop string is held back."""
    if last and stop is not None and tokens == stop.tokens:
        return stop.sent_chars
    chars = tokens * len(_WORD)
    return chars if last else max(0, chars - held_chars)


def text_between(start: int, end: int) -> str:
    """Return the response's text from one character position to another."""
    begin = start % len(_WORD)
    return _words(begin + end - start)[begin : begin + end - start]


def _words(min_chars: int) -> str:
    return _WORD * (min_chars // len(_WORD) + 1)
