"""How does Python source run at native speed? One decorator, typed, with the compiled code kept on disk."""

from collections.abc import Callable
from typing import TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """Compile at first use and keep the result beside the source (or in the user's cache where that is read-only)."""
    # numpy's error model: a division never raises, so the loop has no exception paths.
    decorate = numba.njit(cache=True, error_model="numpy", nogil=True, forceinline=True, _nrt=False)
    return cast("Function", decorate(function))
