"""Breaks a long command into lines that a shell reads as one command."""

import re
from textwrap import wrap
from typing import Final

_OPTION: Final = re.compile(r"(?<=\s)(--?[\w-]+) (?=[^-\s])")
_KEPT: Final = "\0"
_INDENT: Final = "  "


def shell_lines(command: str, width: int) -> list[str]:
    """Return lines of at most `width` letters, each but the last with a backslash. An option stays with its value."""
    together = _OPTION.sub(rf"\1{_KEPT}", command)
    lines = wrap(
        together, max(30, width - 2), subsequent_indent=_INDENT, break_long_words=False, break_on_hyphens=False
    )
    return [line.replace(_KEPT, " ") + " \\" * (line is not lines[-1]) for line in lines]
