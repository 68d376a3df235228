"""Where does output go? Results to stdout; a pipe gets a fixed width and no colour."""

import sys

from rich.console import Console

PIPE_WIDTH = 132


def stdout() -> Console:
    """The console results are printed to."""
    piped = not sys.stdout.isatty()
    return Console(width=PIPE_WIDTH if piped else None, highlight=False, soft_wrap=False)
