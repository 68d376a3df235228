"""Makes click commands from functions. The signature of a function declares its flags and arguments."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Final, get_args, get_origin

import click

from penstock.api.options.option_fields import Flag
from penstock.cli.flags.completion import COMPLETERS

_INTERRUPTED: Final = 130
_TYPES: Final["Mapping[type, click.ParamType[Any]]"] = {
    str: click.STRING,
    int: click.INT,
    float: click.FLOAT,
    bool: click.BOOL,
    Path: click.Path(path_type=Path),
}


class DeclaredCommand(click.Command):
    """Command made from a function. Its help is rendered in panels."""

    panel: str | None = None
    """Title of the panel in which the help of the group lists the command."""

    def get_help(self, ctx: click.Context) -> str:
        """Return the help."""
        from penstock.cli.help import help_text

        return help_text(self, ctx)


class CommandWithActions(DeclaredCommand):
    """Command with further commands below it: `penstock preflight MODEL`, and `penstock preflight learn RELEASE`."""

    def __init__(self, command: DeclaredCommand, actions: Mapping[str, DeclaredCommand]) -> None:
        super().__init__(command.name, callback=command.callback, params=command.params, help=command.help)
        self.actions = actions

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401 - as click declares it
    ) -> click.Context:
        """Return the context of the command, or of the command below it that the first word names."""
        action = self.actions.get(args[0]) if args else None
        if action is None:
            return super().make_context(info_name, args, parent, **extra)
        return action.make_context(f"{info_name} {action.name}", args[1:], parent, **extra)


class DeclaredGroup(click.Group):
    """Group of commands whose modules are imported when they are needed.

    `panels` maps the title of a panel to the names of its commands. The module `penstock.cli.commands.<name>` defines
    `<name>_command`, which is a function or a group.
    """

    panel: str | None = None

    def __init__(
        self,
        name: str,
        *,
        help: str,  # noqa: A002 - as click calls it
        epilog: str | None = None,
        params: Sequence[click.Parameter] = (),
        panels: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        super().__init__(name, help=help, epilog=epilog, params=list(params), no_args_is_help=True)
        self._panel_by_name = {command: title for title, names in (panels or {}).items() for command in names}

    def get_help(self, ctx: click.Context) -> str:
        """Return the help."""
        from penstock.cli.help import help_text

        return help_text(self, ctx)

    def declare(self, name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Return a decorator that adds the command that a function declares."""

        def add(function: Callable[..., None]) -> Callable[..., None]:
            self.add_command(declared_command(function, name))
            return function

        return add

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands in the order of the help."""
        del ctx
        return [*self._panel_by_name, *self.commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, or None if there is no command of this name."""
        if cmd_name not in self._panel_by_name:
            return super().get_command(ctx, cmd_name)
        found = getattr(import_module(f"penstock.cli.commands.{cmd_name}"), f"{cmd_name}_command")
        known = isinstance(found, DeclaredGroup | DeclaredCommand)
        command = found if known else declared_command(found, cmd_name)
        command.panel = self._panel_by_name[cmd_name]
        return command

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - as click declares it
        """Run the command. Ctrl-C exits with 130 as in other programs; click's 1 would be a negative verdict."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise click.exceptions.Exit(_INTERRUPTED) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first word names. An unknown word is an error that suggests the nearest name."""
        known = self.list_commands(ctx)
        near = get_close_matches(args[0], known, n=1)
        if args[0] not in known and near:
            ctx.fail(f"No such command '{args[0]}'. Did you mean '{near[0]}'?")
        return super().resolve_command(ctx, args)


def declared_command(function: Callable[..., None], name: str) -> DeclaredCommand:
    """Return the command that the signature and the docstring of a function declare.

    A parameter of the function is annotated with its type and its `Flag`. A parameter of the type `click.Context`
    receives the context.
    """
    declared = inspect.signature(function, eval_str=True).parameters.values()
    flags = [one for one in declared if one.annotation is not click.Context]
    lists = {one.name: one.default for one in flags if _item_type(one.annotation)[1]}
    context = next((one.name for one in declared if one.annotation is click.Context), None)

    def run(**values: Any) -> None:  # noqa: ANN401 - the values of flags
        values |= {name: list(values[name]) or default for name, default in lists.items()}
        function(**values, **({} if context is None else {context: click.get_current_context()}))

    return DeclaredCommand(
        name, callback=run, params=[_parameter(one) for one in flags], help=inspect.cleandoc(function.__doc__ or "")
    )


def _parameter(declared: inspect.Parameter) -> click.Parameter:
    kind, many = _item_type(declared.annotation)
    flag: Flag = get_args(declared.annotation)[1]
    attributes: dict[str, Any] = {
        "type": _click_type(kind, flag),
        "metavar": flag.metavar,
        "required": declared.default is inspect.Parameter.empty,
        "shell_complete": None if flag.values is None else COMPLETERS[flag.values],
    }
    if declared.default not in {inspect.Parameter.empty, None}:
        attributes["default"] = declared.default
    made: click.Parameter
    if flag.positional:
        made = click.Argument([declared.name], nargs=-1 if many else 1, **attributes)
        made.help = flag.help
    else:
        names = [flag.name or f"--{declared.name.replace('_', '-')}", declared.name]
        attributes |= {"is_flag": True} if kind is bool else {"multiple": many}
        made = click.Option(
            names, help=flag.help, show_default=flag.show_default and "default" in attributes, **attributes
        )
        made.panel = flag.panel  # type: ignore[attr-defined] # read by the help
    return made


def _item_type(annotation: Any) -> tuple[type, bool]:  # noqa: ANN401 - an annotation
    """Return the type of one value of an annotated parameter, and whether the parameter takes several values."""
    kind = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    single = next((one for one in get_args(kind) if one is not NoneType), kind) if NoneType in get_args(kind) else kind
    many = get_origin(single) is list
    return (get_args(single)[0] if many else single), many


def _click_type(kind: type, flag: Flag) -> "click.ParamType[Any]":
    if flag.min is None and flag.max is None:
        return _TYPES[kind]
    bounds = {"min": flag.min, "max": flag.max}
    return click.IntRange(**bounds) if kind is int else click.FloatRange(**bounds)  # type: ignore[arg-type] # an int
