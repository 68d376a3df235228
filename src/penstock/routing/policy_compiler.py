"""How does a policy run at native speed? One source, compiled by numba, with one signature for every policy.

A pick is compiled as a function of its own and handed to the simulator as a pointer, so that the simulator is compiled
once for all of them; Python calls the very same machine code.
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
"""Of a request, the endpoints, the prompt tokens cached at each, and parameters: the endpoint's index, or REJECTED."""

_OPTIONS: dict[str, Any] = {"error_model": "numpy", "nogil": True, "_nrt": False}


def native(function: Function) -> Function:
    """Compile a part of a policy."""
    return cast("Function", numba.njit(**_OPTIONS)(function))


def interpreted(function: Function) -> Function:
    """Return the same source as Python runs it: for a few calls, where compiling would take longer."""
    return cast("Function", getattr(function, "py_func", function))


@cache
def pick_signature() -> Any:  # noqa: ANN401 - numba's types have none
    """Return the one signature of a pick."""
    records = [numba.from_dtype(dtype)[::1] for dtype in (REQUEST, ENDPOINT)]
    return types.int64(*records, types.int64[::1], numba.from_dtype(PARAMETERS)[::1])


@cache
def compiled_pick(function: Pick) -> Pick:
    """Compile a pick for the one signature, to be called from Python."""
    source = getattr(function, "py_func", function)
    return cast("Pick", numba.njit(pick_signature(), **_OPTIONS)(source))


@cache
def pick_pointer(function: Pick) -> Any:  # noqa: ANN401 - numba's C callbacks have no type
    """Compile a pick as a pointer, to be handed to the simulator: all pointers are of one type."""
    inner = native(getattr(function, "py_func", function))

    def call(request: Records, endpoints: Records, hits: Records, parameters: Records) -> int:
        return inner(request, endpoints, hits, parameters)

    return numba.cfunc(pick_signature(), error_model="numpy", nogil=True)(call)


def is_native(function: object) -> bool:
    """Whether a function was made with `native`, and can be handed to the simulator as a pointer."""
    return hasattr(function, "py_func")


class PythonPick:
    """A policy in plain Python that compiled code calls back, with the arrays it is to look at.

    What it raises cannot pass through compiled code: it is kept, and nowhere is answered.
    """

    def __init__(self, pick: Pick, request: Records, endpoints: Records, hits: Records, parameters: Records) -> None:
        self.failed: BaseException | None = None
        self._pick, self._request, self._hits, self._parameters = pick, request, hits, parameters
        self._seen = {int(mine.ctypes.data): mine for mine in endpoints}
        for address in self._seen:
            _ASKED[address] = self

    def answer(self, address: int) -> int:
        """Return what the policy chooses among the endpoints that lie there."""
        try:
            chosen = _index(self._pick(self._request, self._seen[address], self._hits, self._parameters))
        except BaseException as error:  # noqa: BLE001 - whoever called the loop raises it
            self.failed = error
            return NOWHERE
        return min(chosen, NOWHERE)

    @staticmethod
    def pointer() -> Any:  # noqa: ANN401 - numba's C callbacks have no type
        """Return what compiled code calls: the same for all of them, told apart by where their endpoints lie."""
        return _python_pointer()


def _index(chosen: object) -> int:
    """Take an answer as it is meant, or say what would be: 1.7, "3" and -2 mean no endpoint."""
    if isinstance(chosen, int | np.integer) and not isinstance(chosen, bool) and chosen >= REJECTED:
        return int(chosen)
    said = str(chosen) if isinstance(chosen, int | np.integer) else repr(chosen).splitlines()[0][:_SHOWN]
    raise DeploymentError(f"the policy returned {said}; return an endpoint's index as an int, or -1 to reject")


_SHOWN: Final = 60
NOWHERE: Final = 2**31 - 1
"""An endpoint no fleet has."""
_ASKED: "WeakValueDictionary[int, PythonPick]" = WeakValueDictionary()
_answer = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda address: _ASKED[address].answer(address))


@cache
def _python_pointer() -> Any:  # noqa: ANN401 - same
    def call(_request: Records, endpoints: Records, _hits: Records, _parameters: Records) -> int:
        return _answer(endpoints.ctypes.data)  # type: ignore[no-any-return]

    return numba.cfunc(pick_signature(), error_model="numpy", nogil=True)(call)


class NoPick(types.WrapperAddressProtocol):
    """A pointer of a pick's type for runs that need none, without compiling one. It must not be called."""

    _stand_in = ctypes.CFUNCTYPE(ctypes.c_int64)(lambda: REJECTED)

    def __wrapper_address__(self) -> int:
        """Return the address of something that can be called."""
        return ctypes.cast(self._stand_in, ctypes.c_void_p).value or 0

    def signature(self) -> Any:  # noqa: ANN401 - numba's types have none
        """Return the one signature of a pick."""
        return pick_signature()
