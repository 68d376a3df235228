"""Generates the text of emulated responses. The text repeats one word up to the length limit or a stop string."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_WORD: Final = " penstock"
"""Text of one token. The word's characters all differ from each other, so each substring occurs once per token."""


@dataclass(frozen=True, slots=True)
class StopText:
    """The first stop string that occurs in a response."""

    text: str
    tokens: int
    """Number of output tokens up to the token that completes the stop string."""
    sent_chars: int
    """Number of characters of the response that the client gets."""


def first_stop(stops: Sequence[str], *, min_tokens: int, included: bool) -> StopText | None:
    """Return the stop string that is completed first in the response text, or None if no stop string is completed.

    A stop string that is complete within the first `min_tokens` tokens does not count. `included` is true if the client
    also gets the stop string.
    """
    size, stops_found = len(_WORD), []
    for text in stops:
        place = _words(len(text) + size).find(text)
        if place >= 0:
            end = place + len(text)
            end += size * max(0, (size * min_tokens - end) // size + 1)
            stops_found.append(StopText(text, -(-end // size), end if included else end - len(text)))
    return min(stops_found, key=lambda stop: stop.tokens, default=None)


def chars_after(tokens: int, stop: StopText | None, *, held_chars: int, last: bool) -> int:
    """Return the number of characters that the client has received after `tokens` tokens.

    Up to `held_chars` characters are held back, because a stop string may begin with them. After the last token, no
    characters are held back.
    """
    if last and stop is not None and tokens == stop.tokens:
        return stop.sent_chars
    chars = tokens * len(_WORD)
    return chars if last else max(0, chars - held_chars)


def text_between(start: int, end: int, *, other: bool = False) -> str:
    """Return the response's text from one character position to another. `other` asks for another text."""
    begin = start % len(_WORD)
    text = _words(begin + end - start)[begin : begin + end - start]
    return text.upper() if other else text


def _words(min_chars: int) -> str:
    return _WORD * (min_chars // len(_WORD) + 1)
