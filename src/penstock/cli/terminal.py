"""Where does output go? Results to stdout; a pipe gets a fixed width and no colour."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console

PIPE_WIDTH = 132

_T = TypeVar("_T")


def stdout() -> Console:
    """The console results are printed to."""
    piped = not sys.stdout.isatty()
    return Console(width=PIPE_WIDTH if piped else None, highlight=False, soft_wrap=False)


def progress(items: Iterable[_T], *, total: int, label: str) -> Iterator[_T]:
    """Count items on stderr while a person watches; a pipe sees nothing."""
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(label, total=total)
        for item in items:
            bar.advance(task)
            yield item


@contextmanager
def byte_progress(total_bytes: int, label: str) -> Iterator[Callable[[int], None]]:
    """Show bytes read and their rate on stderr while a person watches; yields what to call with each amount."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn(label), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    shown = Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
    with shown as bar:
        task = bar.add_task(label, total=total_bytes)
        yield lambda count: bar.advance(task, count)
