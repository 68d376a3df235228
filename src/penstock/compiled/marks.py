"""Marks the functions that the shared library contains. No compiler is imported here.

A marked function runs as Python if Python calls it. The builder compiles a marked function for the exported functions
that call it.
"""

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, ClassVar, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., object])


class CompiledFunction:
    """A function that the builder compiles. If Python calls the function, the function runs as Python."""

    dispatcher_of: ClassVar[Callable[["CompiledFunction"], Any] | None] = None
    """Returns numba's dispatcher for a function. The builder sets it."""

    def __init__(self, function: Callable[..., Any], *, is_cold: bool = False) -> None:
        update_wrapper(self, function)
        self.py_func = function
        self.is_cold = is_cold
        self.__name__: str = function.__name__

    def __call__(self, *arguments: Any) -> Any:  # noqa: ANN401 - those of the function it stands for
        """Run the function as Python."""
        return self.py_func(*arguments)

    @property
    def _numba_type_(self) -> Any:  # noqa: ANN401 - numba's types have none
        """The type under which compiled code calls this function.

        When numba compiles, it reads this attribute of every global.
        """
        if CompiledFunction.dispatcher_of is None:
            raise AttributeError("only the builder compiles")
        return CompiledFunction.dispatcher_of(self)._numba_type_


def compiled(function: Function) -> Function:
    """Mark a function that compiled code calls. LLVM decides whether to inline the function."""
    return cast("Function", CompiledFunction(function))


def cold(function: Function) -> Function:
    """Mark a rarely called function.

    A cold function is never inlined, so that the functions that call it stay small.
    """
    return cast("Function", CompiledFunction(function, is_cold=True))


def interpreted(function: Function) -> Function:
    """Return the Python function behind a marked function."""
    return cast("Function", getattr(function, "py_func", function))
