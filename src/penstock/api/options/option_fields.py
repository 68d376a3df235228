"""Declares each option once.

The same dataclass defines the parameters of a Python function and the flags of a command.
"""

from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import wraps
from inspect import signature
from typing import Any, Literal, ParamSpec, TypeVar, dataclass_transform

from penstock.errors import UsageError

Parameters = ParamSpec("Parameters")
Options = TypeVar("Options")
Answer = TypeVar("Answer")
_FLAG = "flag"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """Form of an option on the command line."""

    help: str
    name: str | None = None
    """Name of the flag. If this is None, the flag is named after the field."""
    metavar: str | None = None
    min: float | None = None
    max: float | None = None
    show_default: bool = True
    positional: bool = False
    panel: str | None = None
    """Title of the panel in which the help lists the option. None stands for the usual panel."""
    values: Literal["models", "accelerators"] | None = None
    """Names of the catalog that a shell completes."""


def option(
    help: str,  # noqa: A002 - as click calls it
    *,
    default: Any = MISSING,  # noqa: ANN401 - of the field's type
    name: str | None = None,
    metavar: str | None = None,
    min: float | None = None,  # noqa: A002 - as click calls it
    max: float | None = None,  # noqa: A002 - as click calls it
    show_default: bool = True,
    values: Literal["models", "accelerators"] | None = None,
) -> Any:  # noqa: ANN401 - a dataclass field
    """Declare an option with its flag. The minimum `min` is checked both in Python calls and on the command line."""
    flag = Flag(help=help, name=name, metavar=metavar, min=min, max=max, show_default=show_default, values=values)
    return field(default=default, metadata={_FLAG: flag})


def argument(
    help: str,  # noqa: A002 - as click calls it
    *,
    default: Any = MISSING,  # noqa: ANN401 - of the field's type
    values: Literal["models", "accelerators"] | None = None,
) -> Any:  # noqa: ANN401 - a dataclass field
    """Declare a positional argument of the command."""
    flag = Flag(help=help, positional=True, show_default=False, values=values)
    return field(default=default, metadata={_FLAG: flag})


@dataclass_transform(eq_default=False, frozen_default=True, field_specifiers=(option, argument, field))
def options(declared: type[Options]) -> type[Options]:
    """Make a class of options a frozen dataclass, without `__eq__` and `__repr__` to save start-up time."""
    return dataclass(frozen=True, eq=False, repr=False)(declared)


def flags_of(declared: Any) -> "dict[str, tuple[Flag, Field[Any]]]":  # noqa: ANN401 - a class of options
    """Return the flag and the field of each option, keyed by the option's name. Options without a flag are left out.

    Required options come before optional ones. Within both groups, inherited options come last.
    """
    own_first = {
        name: place for place, kind in enumerate(declared.__mro__) for name in vars(kind).get("__annotations__", ())
    }
    found = sorted(fields(declared), key=lambda one: (one.default is not MISSING, own_first[one.name]))
    return {one.name: (one.metadata[_FLAG], one) for one in found if _FLAG in one.metadata}


def takes(
    declared: Callable[Parameters, Options],
) -> Callable[[Callable[[Options], Answer]], Callable[Parameters, Answer]]:
    """Return a decorator for a function whose only argument is an options object.

    The decorated function takes the options as separate parameters.
    """
    parameters = signature(declared)

    def wrap(function: Callable[[Options], Answer]) -> Callable[Parameters, Answer]:
        @wraps(function)
        def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Answer:
            try:
                parameters.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{function.__name__}() {error}") from None
            given = declared(*args, **kwargs)
            _check_minima(given)
            return function(given)

        shown = parameters.replace(return_annotation=signature(function).return_annotation)
        call.__signature__ = shown  # type: ignore[attr-defined] # what `help` and editors show
        return call

    return wrap


def _check_minima(given: Any) -> None:  # noqa: ANN401 - any options
    """Raise an error if a number is below the minimum of its flag."""
    for name, (flag, _) in flags_of(type(given)).items():
        value = getattr(given, name)
        if value is None or flag.min is None:
            continue
        if not isinstance(value, int | float):
            raise UsageError(f"{name} must be a number, not {value!r}")
        if not value >= flag.min:
            raise UsageError(f"{name} must be at least {flag.min:g}, not {value:g}")
