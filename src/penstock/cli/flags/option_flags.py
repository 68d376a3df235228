"""Gives a command a flag for every option of the API function that it calls."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

from penstock.api.options.option_fields import Flag, flags_of
from penstock.cli.flags.project_file import calibration_choice

Given: TypeAlias = dict[str, Any]
"""Values of the options that the user gave on the command line, keyed by option name."""
_TYPES: Final[Mapping[str, type]] = {
    "int": int,
    "float": float,
    "bool": bool,
    "Path": Path,
    "AskedFleet": Path,
    "AskedTrace": Path,
}


def with_flags(*declared: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds the flags of option classes to a command.

    The command receives the values of the flags as its first argument. The flags stand between the command's own
    positional and keyword-only parameters. A parameter that the command declares replaces the flag of the same name. If
    two classes declare the same flag, the first class has precedence.
    """

    def wrap(command: Callable[..., None]) -> Callable[..., None]:
        _, *own = inspect.signature(command, eval_str=True).parameters.values()
        made = [one for one in _parameters(declared) if one.name not in {known.name for known in own}]
        switched_off = {one.name for kind in declared for one in fields(kind) if one.default is True}
        before = [one for one in own if one.kind is not inspect.Parameter.KEYWORD_ONLY]
        after = [one for one in own if one.kind is inspect.Parameter.KEYWORD_ONLY]

        def call(**values: object) -> None:
            given: Given = {one.name: values.pop(one.name) for one in made}
            given |= {name: not given[name] for name in switched_off & given.keys()}
            if "calibration" in given:
                given["calibration"] = calibration_choice(given["calibration"])
            command({name: value for name, value in given.items() if value is not None}, **values)

        shown = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in (*before, *made, *after)]
        call.__doc__, call.__name__ = command.__doc__, command.__name__
        call.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined] # the command is made from it
        call.__annotations__ = {one.name: one.annotation for one in shown}
        return call

    return wrap


def options_of(declared: Any, given: Mapping[str, object]) -> Given:  # noqa: ANN401 - a class of options
    """Return the options that the user gave, restricted to the options of one option class."""
    return {one.name: given[one.name] for one in fields(declared) if one.name in given}


def _parameters(declared: tuple[type, ...]) -> list[inspect.Parameter]:
    found: dict[str, inspect.Parameter] = {}
    for kind in declared:
        known = flags_of(kind)
        found |= {name: _parameter(*known[name], kind) for name in known if name not in found}
    return list(found.values())


def _parameter(flag: Flag, field: "Field[Any]", declared: type) -> inspect.Parameter:
    """Convert an option into a parameter with its flag.

    If the type of the option has no command-line form, the parameter is text.
    """
    first, *others = str(field.type).split(" | ")
    many = "Sequence[str]" in {first, *others}
    kind = list[str] if many else _TYPES.get(first, str)
    default: Any = inspect.Parameter.empty if field.default is MISSING else None if many else field.default
    name = flag.name or f"--{field.name.replace('_', '-')}"
    if default is True:  # what is on by default has a flag that switches it off
        default, name = False, name.replace("--", "--no-")
    panel = None if field.default is MISSING else _panel(declared, field.name)
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=str(default) if kind is str and isinstance(default, int) else default,
        annotation=Annotated[kind | None if many or "None" in others else kind, replace(flag, name=name, panel=panel)],
    )


def _panel(declared: type, name: str) -> str | None:
    """Return the help panel of the class that declares an option."""
    owner = next(kind for kind in declared.__mro__ if name in vars(kind).get("__annotations__", ()))
    return vars(owner).get("panel")
