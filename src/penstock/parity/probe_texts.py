"""Fixed texts and chat messages whose tokens and answers are compared between servers."""

from collections.abc import Mapping, Sequence
from typing import Final

TEXTS: Final = (
    "The capital of France is Paris, and the capital of Italy is",
    "1, 2, 3, 5, 8, 13, 21,",
    "def multiply(a, b):\n    return",
    "Größe, café, naïve: 東京 is the capital of",
    "<|endoftext|> </s> <s> [INST] tools",
    "    four spaces\tand a tab\r\nand 1234567890 digits",
    '{"name": "Ada", "born": 1815, "field":',
    "🙂 emoji and zero\u200bwidth",
)
_SYSTEM: Final = {"role": "system", "content": "You answer in one sentence."}
_QUESTION: Final = {"role": "user", "content": "Which is larger, 9.11 or 9.9?"}
_ANSWER: Final = {"role": "assistant", "content": "9.9 is larger."}
MESSAGES: Final[Sequence[Sequence[Mapping[str, str]]]] = (
    (_QUESTION,),
    (_SYSTEM, _QUESTION),
    (_QUESTION, _ANSWER, {"role": "user", "content": "Why?"}),
    ({"role": "user", "content": "  spaces around  \n"},),
)
CACHED_TEXT: Final = "Describe the water that drives the wheel of a mill. " * 40
"""Prompt that is sent twice, and that is longer than a block of any prefix cache."""
