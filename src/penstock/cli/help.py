"""Renders the help of a command: its usage, its description, and its arguments, options and subcommands in panels."""

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

import click
from rich.console import RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from penstock.cli.console import stdout

_PIPE_WIDTH: Final = 80
_CODE: Final = re.compile(r"`([^`]+)`")
_WIDEST_METAVAR: Final = 20
OPTIONS: Final = "Options"
COMMANDS: Final = "Commands"


def help_text(command: click.Command, context: click.Context) -> str:
    """Return the help of a command in the width and the colours of the terminal."""
    console = stdout(_PIPE_WIDTH)
    usage = command.get_usage(context).removeprefix("Usage: ")
    with console.capture() as captured:
        console.print(Padding(Text.assemble(("Usage: ", "yellow"), (usage, "bold")), (1, 1)))
        for view in _paragraphs(command.help or ""):
            console.print(Padding(view, (0, 1, 1, 1)))
        for title, rows in _panels(command, context).items():
            console.print(Panel(rows, title=title, title_align="left", border_style="dim"))
        for view in _paragraphs(command.epilog or ""):
            console.print(Padding(view, (1, 1, 0, 1)))
    return captured.get().rstrip("\n")


def highlight_code(text: str) -> Text:
    """Return a text in which words between backticks are highlighted as code, without the backticks."""
    made = Text()
    for place, piece in enumerate(_CODE.split(text)):
        made.append(piece, "bold cyan" if place % 2 else "")
    return made


def _paragraphs(text: str) -> Iterator[RenderableType]:
    """Yield the paragraphs and the lists of a docstring. An item of a list starts with a dash."""
    for block in re.split(r"\n\s*\n", text.strip()):
        if not block.startswith("- "):
            yield highlight_code(" ".join(block.split()))
            continue
        rows = Table.grid(padding=(0, 1))
        for item in block.removeprefix("- ").split("\n- "):
            rows.add_row(" •", highlight_code(" ".join(item.split())))
        yield rows


def _panels(command: click.Command, context: click.Context) -> dict[str, Table]:
    """Return the tables of a command by their titles, in the order in which they are printed."""
    panels: dict[str, list[click.Parameter]] = {"Arguments": [], OPTIONS: []}
    for parameter in command.get_params(context):
        usual = OPTIONS if isinstance(parameter, click.Option) else "Arguments"
        panels.setdefault(getattr(parameter, "panel", None) or usual, []).append(parameter)
    tables = {title: _parameter_rows(entries, context) for title, entries in panels.items() if entries}
    return tables | (_command_rows(command, context) if isinstance(command, click.Group) else {})


def _parameter_rows(entries: list[click.Parameter], context: click.Context) -> Table:
    rows = Table.grid(padding=(0, 2), expand=True)
    rows.add_column(no_wrap=True, style="bold cyan")
    rows.add_column(max_width=_WIDEST_METAVAR, style="yellow")
    rows.add_column(ratio=1)
    for entry in entries:
        option = isinstance(entry, click.Option)
        name = ", ".join(entry.opts) if option else entry.make_metavar(context)
        about = highlight_code(getattr(entry, "help", None) or "")
        for note, style in _notes(entry):
            about.append(f" [{note}]", style)
        rows.add_row(Text(name), _metavar(entry, context) if option else Text(), about)
    return rows


def _metavar(entry: click.Parameter, context: click.Context) -> Text:
    if getattr(entry, "is_flag", False):
        return Text()
    limits = _limits(entry.type) if isinstance(entry.type, click.IntRange | click.FloatRange) else ""
    return Text(f"{entry.make_metavar(context).removesuffix(' RANGE')} {limits}".strip())


def _limits(kind: click.IntRange | click.FloatRange) -> str:
    if kind.min is None or kind.max is None:
        return f"<= {kind.max:g}" if kind.min is None else f">= {kind.min:g}"
    return f"{kind.min:g} to {kind.max:g}"


def _notes(entry: click.Parameter) -> Iterator[tuple[str, str]]:
    if getattr(entry, "show_default", False) and entry.default is not False:
        yield f"default: {entry.default}", "dim"
    if entry.required:
        yield "required", "red"


def _command_rows(command: click.Group, context: click.Context) -> dict[str, Table]:
    panels: dict[str, Table] = defaultdict(lambda: Table.grid(padding=(0, 2)))
    for name in command.list_commands(context):
        entry = command.get_command(context, name)
        if entry is not None:
            about = highlight_code(" ".join((entry.help or "").strip().split("\n\n")[0].split()))
            panels[getattr(entry, "panel", None) or COMMANDS].add_row(Text(name, "bold cyan"), about)
    return panels
