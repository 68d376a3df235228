"""Compiles policies with numba from one source and with one signature.

A pick is compiled as a separate function and passed to the simulator as a pointer, so that the simulator is compiled
once for all policies. Python calls the same machine code.
"""

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeVar, cast
from weakref import WeakValueDictionary

import numba
import numpy as np
from numba import types
from numba.experimental import function_type  # noqa: F401 - teaches numba what a pointer is

from penstock.errors import DeploymentError
from penstock.routing.records import ENDPOINT, PARAMETERS, REJECTED, REQUEST, Records

Function = TypeVar("Function", bound=Callable[..., object])
Pick = Callable[[Records, Records, Records, Records], int]
"""A policy: maps a request, the endpoints, the cached tokens at each, and parameters to an index or REJECTED."""

_OPTIONS: dict[str, Any] = {"error_model": "numpy", "nogil": True, "_nrt": False}


def native(function: Function) -> Function:
    """Compile a function of a policy."""
    return cast("Function", numba.njit(**_OPTIONS)(function))


def interpreted(function: Function) -> Function:
    """Return the Python function behind a compiled one, for a few calls where compiling would take longer."""
    return cast("Function", getattr(function, "py_func", function))


@cache
def pick_signature() -> Any:  # noqa: ANN401 - numba's types have none
    """Return the signature of a pick."""
    records = [numba.from_dtype(dtype)[::1] for dtype in (REQUEST, ENDPOINT)]
    return types.int64(*records, types.int64[::1], numba.from_dtype(PARAMETERS)[::1])


@cache
def compiled_pick(function: Pick) -> Pick:
    """Compile a pick for its signature, to be called from Python."""
    source = getattr(function, "py_func", function)
    return cast("Pick", numba.njit(pick_signature(), **_OPTIONS)(source))


@cache
def pick_pointer(function: Pick) -> Any:  # noqa: ANN401 - numba's C callbacks have no type
    """Compile a pick as a pointer for the simulator. All pointers have one type."""
    inner = native(getattr(function, "py_func", function))

    def call(request: Records, endpoints: Records, hits: Records, parameters: Records) -> int:
        return inner(request, endpoints, hits, parameters)

    return numba.cfunc(pick_signature(), error_model="numpy", nogil=True)(call)


def is_native(function: object) -> bool:
    """Return whether a function was made with `native`, and can be passed to the simulator as a pointer."""
    return hasattr(function, "py_func")


class PythonPick:
    """A policy in plain Python that compiled code calls back, with the arrays that it reads.

    An exception cannot pass through compiled code, so it is stored in `failed`, and the callback returns NOWHERE.
    """

    def __init__(self, pick: Pick, request: Records, endpoints: Records, hits: Records, parameters: Records) -> None:
        self.failed: BaseException | None = None
        self._pick, self._request, self._hits, self._parameters = pick, request, hits, parameters
        self._seen = {int(mine.ctypes.data): mine for mine in endpoints}
        for address in self._seen:
            _ASKED[address] = self

    def answer(self, address: int) -> int:
        """Return the policy's choice among the endpoints at an address."""
        try:
            chosen = _index(self._pick(self._request, self._seen[address], self._hits, self._parameters))
        except BaseException as error:  # noqa: BLE001 - the caller of the loop raises it
            self.failed = error
            return NOWHERE
        return min(chosen, NOWHERE)

    @staticmethod
    def pointer() -> Any:  # noqa: ANN401 - numba's C callbacks have no type
        """Return the callback for compiled code.

        All policies share it and are identified by the address of their endpoints.
        """
        return _python_pointer()


def _index(chosen: object) -> int:
    """Return a policy's answer as an int, or raise DeploymentError: 1.7, "3" and -2 are not endpoints."""
    if isinstance(chosen, int | np.integer) and not isinstance(chosen, bool) and chosen >= REJECTED:
        return int(chosen)
    said = str(chosen) if isinstance(chosen, int | np.integer) else repr(chosen).splitlines()[0][:_SHOWN]
    raise DeploymentError(f"the policy returned {said}; return an endpoint's index as an int, or -1 to reject")


_SHOWN: Final = 60
NOWHERE: Final = 2**31 - 1
"""An endpoint index that no fleet has."""
_ASKED: "WeakValueDictionary[int, PythonPick]" = WeakValueDictionary()
_answer = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda address: _ASKED[address].answer(address))


@cache
def _python_pointer() -> Any:  # noqa: ANN401 - same
    def call(_request: Records, endpoints: Records, _hits: Records, _parameters: Records) -> int:
        return _answer(endpoints.ctypes.data)  # type: ignore[no-any-return]

    return numba.cfunc(pick_signature(), error_model="numpy", nogil=True)(call)


class NoPick(types.WrapperAddressProtocol):
    """A pointer of a pick's type for runs without a policy, so that none is compiled. It must not be called."""

    _stand_in = ctypes.CFUNCTYPE(ctypes.c_int64)(lambda: REJECTED)

    def __wrapper_address__(self) -> int:
        """Return the address of a callable."""
        return ctypes.cast(self._stand_in, ctypes.c_void_p).value or 0

    def signature(self) -> Any:  # noqa: ANN401 - numba's types have none
        """Return the signature of a pick."""
        return pick_signature()
