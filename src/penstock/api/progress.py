"""Who is told what goes on? A terminal draws it; a script's log gets the notes."""

import logging
from typing import Protocol

log = logging.getLogger(__name__)


class ProgressListener(Protocol):
    """Is told how far things are, and what is worth knowing."""

    def tell(self, what: str, done: int, total: int) -> None:
        """Hear how much of something is done; a total of 0 is not known."""

    def note(self, text: str) -> None:
        """Hear something that is worth a line of its own."""


class _Log:
    """Writes notes to the log of the library, which says nothing unless a program asks for it."""

    def tell(self, what: str, done: int, total: int) -> None:
        """Say nothing of progress."""

    def note(self, text: str) -> None:
        """Log the line."""
        log.info(text)


LOG: ProgressListener = _Log()
