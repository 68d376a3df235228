"""Prints help as Typer does, but without trailing blanks if stdout is a pipe."""

import io
import sys
from collections.abc import Callable
from contextlib import redirect_stdout

import typer
from typer.core import TyperCommand, TyperGroup


class HelpOfCommand(TyperCommand):
    """Command whose help has no trailing blanks in a pipe."""

    def format_help(self, ctx: typer.Context, formatter: object) -> None:  # type: ignore[override]
        """Print the help."""
        _print_trimmed(lambda: super(HelpOfCommand, self).format_help(ctx, formatter))  # type: ignore[arg-type]


class HelpOfGroup(TyperGroup):
    """Group of commands whose help has no trailing blanks in a pipe."""

    def format_help(self, ctx: typer.Context, formatter: object) -> None:  # type: ignore[override]
        """Print the help."""
        _print_trimmed(lambda: super(HelpOfGroup, self).format_help(ctx, formatter))  # type: ignore[arg-type]


def trim_help(app: typer.Typer) -> None:
    """Remove trailing blanks from the help of all commands of an app and of its groups."""
    for command in app.registered_commands:
        command.cls = HelpOfCommand
    for group in app.registered_groups:
        group.cls = HelpOfGroup
        if group.typer_instance is not None:
            trim_help(group.typer_instance)


def _print_trimmed(draw: Callable[[], None]) -> None:
    if sys.stdout.isatty():
        draw()
        return
    # The encoding decides which box characters are drawn.
    written = io.TextIOWrapper(io.BytesIO(), encoding=sys.stdout.encoding or "utf-8", errors="replace")
    with redirect_stdout(written):
        draw()
    written.seek(0)
    typer.echo("\n".join(line.rstrip() for line in written.read().splitlines()))
