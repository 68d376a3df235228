"""What does an emulated answer say? One word again and again, until its length or a stop text ends it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_WORD: Final = " penstock"
"""A token. No two of its letters are the same, so a text that comes in the answer comes once with every word."""


@dataclass(frozen=True, slots=True)
class StopText:
    """The stop text an answer comes to first."""

    text: str
    tokens: int
    """Of the answer when the text is complete."""
    kept_chars: int
    """What a client still sees."""


def first_stop(stops: Sequence[str], *, least_tokens: int, included: bool) -> StopText | None:
    """Find where stop texts end an answer, if they do; before `least_tokens` none of them counts."""
    size, found = len(_WORD), []
    for text in stops:
        place = _words(len(text) + size).find(text)
        if place >= 0:
            end = place + len(text)
            end += size * max(0, (size * least_tokens - end) // size + 1)
            found.append(StopText(text, -(-end // size), end if included else end - len(text)))
    return min(found, key=lambda stop: stop.tokens, default=None)


def shown_chars(tokens: int, stop: StopText | None, *, held_chars: int, last: bool) -> int:
    """How much of so many tokens a client has seen: what may begin a stop text is held until the answer ends."""
    if last and stop is not None and tokens == stop.tokens:
        return stop.kept_chars
    chars = tokens * len(_WORD)
    return chars if last else max(0, chars - held_chars)


def text_between(start: int, end: int) -> str:
    """Say the answer from one character to another."""
    begin = start % len(_WORD)
    return _words(begin + end - start)[begin : begin + end - start]


def _words(least_chars: int) -> str:
    return _WORD * (least_chars // len(_WORD) + 1)
