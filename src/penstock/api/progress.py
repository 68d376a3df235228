"""Progress and messages of long computations: a terminal shows them, a script logs the messages."""

import logging
from typing import Protocol

log = logging.getLogger(__name__)


class ProgressListener(Protocol):
    """Receiver of progress and messages."""

    def progress(self, what: str, done: int, total: int) -> None:
        """Receive progress of a task; a total of 0 is unknown."""

    def message(self, text: str) -> None:
        """Receive a message for the user."""


class _Log:
    """Listener that logs messages to the library's logger, which is silent by default."""

    def progress(self, what: str, done: int, total: int) -> None:
        """Ignore progress."""

    def message(self, text: str) -> None:
        """Log the message."""
        log.info(text)


LOG: ProgressListener = _Log()
