"""Prints to the console.

Results go to stdout. Results that are piped have no colour, and their width is fixed unless COLUMNS is set.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock, Timer
from time import monotonic
from typing import TYPE_CHECKING, Self

import click
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.segment import Segment

from penstock.errors import UsageError

if TYPE_CHECKING:
    from rich.progress import Progress

    from penstock.api.answer import ApiAnswer

PIPE_WIDTH = 132
DELAY_S = 1.0
"""Seconds of waiting before a spinner is displayed."""


def stdout(pipe_width: int | None = None) -> Console:
    """Return the console for results. In a pipe it has the given width, or by default the width that tables need."""
    # Rich reads COLUMNS by itself.
    fixed = (
        (pipe_width or PIPE_WIDTH)
        if not sys.stdout.isatty() and not os.environ.get("COLUMNS", "").isdecimal()
        else None
    )
    console = Console(width=fixed, highlight=False, soft_wrap=False)
    console.push_render_hook(_Trimming())
    return console


class _Trimming(RenderHook):
    """Render hook that removes blanks at the end of each line."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Wrap the renderables that are about to be printed."""
        return [_Trimmed(view) for view in renderables]


class _Trimmed:
    """Renderable without trailing blanks, which tables add to pad their last column."""

    def __init__(self, view: ConsoleRenderable) -> None:
        self._view = view

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        line: list[Segment] = []
        for segment in console.render(self._view, options):
            text, _, control = segment
            if control:
                yield segment
                continue
            *ended, last = text.split("\n")
            for piece in ended:
                yield from _until_last_letter([*line, Segment(piece, segment.style)])
                yield Segment.line()
                line = []
            line.append(Segment(last, segment.style))
        yield from line


def _until_last_letter(line: list[Segment]) -> list[Segment]:
    while line and not line[-1].text.strip():
        line.pop()
    if line:
        line[-1] = Segment(line[-1].text.rstrip(), line[-1].style)
    return line


def show(answer: "ApiAnswer", *, as_json: bool) -> None:
    """Print an answer as JSON or for the terminal, and exit with its code if the verdict is not positive."""
    if as_json:
        click.echo(answer.to_json())
    else:
        console = stdout()
        # A command that users copy may be wider than the terminal.
        console.print(answer.render(console.width), crop=False)
    if answer.exit_code:
        raise click.exceptions.Exit(answer.exit_code)


class Watch:
    """Spinner and progress bar on stderr, from the first second of waiting on.

    Nothing is displayed if stderr is not a terminal. Leave the context before printing the result.
    """

    def __init__(self, what: str = "computing") -> None:
        self._what, self._done, self._total = what, 0, 0
        self._lock, self._left, self._start_s = Lock(), False, monotonic()
        self._bar: Progress | None = None
        self._timer = Timer(DELAY_S, self._display)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        with self._lock:
            if self._bar is not None:
                self._bar.stop()
            self._left = True

    def progress(self, what: str, done: int, total: int) -> None:
        """Show the progress of a task."""
        with self._lock:
            self._what, self._done, self._total = what, done, total
            self._update()

    def message(self, text: str) -> None:
        """Print a message on stderr, even if stderr is a pipe."""
        console = Console(stderr=True) if self._bar is None else self._bar.console
        console.print(text, style="dim", soft_wrap=True)

    def _display(self) -> None:
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        with self._lock:
            if self._left:
                return
            columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.add_task(self._what)
            self._bar.tasks[0].start_time = self._start_s
            self._update()
            self._bar.start()

    def _update(self) -> None:
        if self._bar is not None:
            task = self._bar.task_ids[0]
            self._bar.update(task, description=self._what, completed=self._done, total=self._total or None)


def write_file(path: Path, content: str | bytes, *, note: str = "") -> None:
    """Write a file that the user named, and print its path and a note on it.

    Raise a one-line error if the file cannot be written.
    """
    try:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; choose another path") from None
    sys.stderr.write(f"wrote {path}" + (f" ({note})\n" if note else "\n"))


def make_directory(path: Path) -> None:
    """Create a directory that the user named, if it does not exist."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; choose another path") from None


@contextmanager
def byte_progress(total_bytes: int, label: str) -> Iterator[Callable[[int], None]]:
    """Show the bytes read and the bytes per second if stderr is a terminal.

    The context manager yields a function that adds to the bytes read.
    """
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn(label), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    shown = Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
    with shown as bar:
        task = bar.add_task(label, total=total_bytes)
        yield lambda count: bar.advance(task, count)
