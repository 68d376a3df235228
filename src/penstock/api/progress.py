"""Defines how long computations report progress and messages.

A terminal shows both. A script only logs the messages.
"""

import logging
from typing import Protocol

log = logging.getLogger(__name__)


class ProgressListener(Protocol):
    """Receiver of progress and messages."""

    def progress(self, what: str, done: int, total: int) -> None:
        """Receive the progress of a task. A total of 0 means that the total is unknown."""

    def message(self, text: str) -> None:
        """Receive a message for the user."""


class _Log:
    """Listener that sends messages to the library's logger. The logger is silent by default."""

    def progress(self, what: str, done: int, total: int) -> None:
        """Ignore progress."""

    def message(self, text: str) -> None:
        """Log the message."""
        log.info(text)


LOG: ProgressListener = _Log()
