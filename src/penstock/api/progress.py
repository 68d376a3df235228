"""Progress and notes of long computations: a terminal draws them, a script logs the notes."""

import logging
from typing import Protocol

log = logging.getLogger(__name__)


class ProgressListener(Protocol):
    """Receiver of progress and notes."""

    def tell(self, what: str, done: int, total: int) -> None:
        """Receive progress of a task; a total of 0 is unknown."""

    def note(self, text: str) -> None:
        """Receive a note for the user."""


class _Log:
    """Listener that logs notes to the library's logger, which is silent by default."""

    def tell(self, what: str, done: int, total: int) -> None:
        """Ignore progress."""

    def note(self, text: str) -> None:
        """Log the note."""
        log.info(text)


LOG: ProgressListener = _Log()
