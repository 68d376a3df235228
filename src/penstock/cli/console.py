"""Prints to the console.

Results go to stdout. Results that are piped have no colour, and their width is fixed unless COLUMNS is set.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

import click
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.segment import Segment

from penstock.errors import UsageError

if TYPE_CHECKING:
    from rich.progress import TaskID

    from penstock.api.answer import ApiAnswer

PIPE_WIDTH = 132


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
    """Print an answer as JSON or for the terminal, and exit 1 if the verdict is negative."""
    if as_json:
        click.echo(answer.to_json())
    else:
        console = stdout()
        # A command that users copy may be wider than the terminal.
        console.print(answer.render(console.width), crop=False)
    if not answer.good:
        raise click.exceptions.Exit(1)


class Watch:
    """Progress display on stderr. Nothing is displayed if stderr is not a terminal."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def progress(self, what: str, done: int, total: int) -> None:
        """Show the progress of a task."""
        if self._task is None:
            self._task = self._bar.add_task(what, total=None)
        self._bar.update(self._task, description=what, completed=done, total=total or None)

    def message(self, text: str) -> None:
        """Print a message on stderr, even if stderr is a pipe."""
        self._bar.console.print(text, style="dim", soft_wrap=True)


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file that the user named, and print its path. Raise a one-line error if the file cannot be written."""
    try:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; choose another path") from None
    sys.stderr.write(f"wrote {path}\n")


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
