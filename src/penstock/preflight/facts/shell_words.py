"""Splits pasted text into shell words, and reports the damage that copying caused."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from string import Template
from typing import Final

from penstock.errors import UsageError

_REMARK: Final = re.compile(r"(^|\s)#\s.*$", re.MULTILINE)
_BLANK_AFTER: Final = re.compile(r"\\[ \t]+\n")
_NEW_LINE: Final = re.compile(r"\n\s*(?=(--?[A-Za-z][\w-]*))")
_NEXT_COMMAND: Final = re.compile(r"\n\s*(?=(?:curl|wget|tail|sleep|wait|echo|until|while|for|kill|cat|grep|watch)\s)")
"""Start of another command, such as the query of a server that the line before starts."""
_DASH: Final = re.compile(r"(?<!\S)[\u2012-\u2015\u2212]{1,2}(?=([A-Za-z][\w-]*))")
_QUOTES: Final = str.maketrans({"\u201c": '"', "\u201d": '"', "\u2018": "'", "\u2019": "'"})
_COMMAND: Final = re.compile(r"\$\([^()]*\)|`[^`]*`")
_DEFAULT: Final = re.compile(r"\$\{([A-Za-z_]\w*):?-([^}]*)\}")
_LONGEST_LETTERS: Final = 3
"""Number of letters of the longest option with a single dash, which is -dcp."""
FILLED_IN: Final = "$COMMAND"
"""Placeholder for the output of a command substitution, such as `$(...)`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellWords:
    """The words of a text, and descriptions of the places that a shell would misread."""

    words: tuple[str, ...]
    torn: tuple[str, ...]


def shell_words(text: str) -> ShellWords:
    """Split text into words as a shell does.

    Lines that were broken by copying are reported, and are split as their author intended.
    """
    torn: list[str] = []
    text = text.replace("\r\n", "\n").strip()
    if _BLANK_AFTER.search(text):
        torn.append("a blank follows the backslash at the end of a line, so the shell ends the command there")
    text = _BLANK_AFTER.sub(" ", text).replace("\\\n", " ")
    text = _NEXT_COMMAND.sub(" && ", _REMARK.sub("", text))
    if (line := _NEW_LINE.search(text)) is not None:
        torn.append(f"the line before {line[1]} ends without a backslash, so the shell ends the command there")
    if (dash := _DASH.search(text)) is not None:
        torn.append(f"{dash[0]}{dash[1]} begins with a typographic dash; type {_hyphens(dash)}{dash[1]}")
    text = _DASH.sub(_hyphens, text)
    if (plain := text.translate(_QUOTES)) != text:
        torn.append("the quotation marks are typographic, and a shell reads these as letters")
    try:
        return ShellWords(words=tuple(shlex.split(_COMMAND.sub(FILLED_IN, plain))), torn=tuple(torn))
    except ValueError as error:
        raise UsageError(f"--command: {error}; a shell could not parse this command, so check its quotes") from None


def substitute_variables(word: str, environment: Mapping[str, str]) -> str:
    """Replace variables that the command sets, such as `$TP`, and variables with a default, such as `${TP:-8}`."""
    if "$" not in word:
        return word
    word = _DEFAULT.sub(lambda match: environment.get(match[1], match[2]), word)
    return Template(word).safe_substitute(environment)


def _hyphens(match: re.Match[str]) -> str:
    return "-" if len(match[1]) <= _LONGEST_LETTERS else "--"
