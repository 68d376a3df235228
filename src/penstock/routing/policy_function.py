"""Defines policies as functions of four arrays, and gives each policy an address, so that compiled code can call it.

The policies of this package are in the compiled library. A user's own policy may be a plain Python function, which
compiled code calls back. If the function is marked with `compiled`, numba compiles it.
"""

import ctypes
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Annotated, Any, Final, TypeVar, cast
from weakref import WeakValueDictionary

import numpy as np

from penstock.compiled.interface import POLICY, POLICY_TYPE, ExportedPolicy
from penstock.compiled.marks import CompiledFunction
from penstock.errors import DeploymentError
from penstock.routing.records import ENDPOINT, PARAMETERS, REJECTED, REQUEST, Records

Function = TypeVar("Function", bound=Callable[..., object])
Pick = Annotated[Callable[[Records, Records, Records, Records], int], POLICY]
"""Type of a policy.

From a request, the endpoints, the tokens cached at each endpoint, and parameters, it chooses an endpoint's index or
REJECTED.
"""

_RECORDS: Final = (REQUEST, ENDPOINT, PARAMETERS)


def policy(function: Function) -> Function:
    """Mark a policy of this package, so that the compiled library contains it and C code can call it."""
    return cast("Function", ExportedPolicy(function, _RECORDS))


def is_compiled(pick: object) -> bool:
    """Return whether a policy is compiled. A plain Python function is not compiled."""
    return isinstance(pick, CompiledFunction)


def policy_address(pick: Pick) -> int:
    """Return the address of a compiled policy in the library. A user's own policy is compiled now."""
    if isinstance(pick, ExportedPolicy):
        return pick.address
    return int(_compiled_now(pick).address)


@cache
def _compiled_now(pick: Pick) -> Any:  # noqa: ANN401 - numba's callbacks have no type
    if find_spec("numba") is None:
        raise DeploymentError("a policy marked `compiled` needs numba; install penstock[compile], or remove the mark")
    from penstock.compiled.builder.own_policy import compile_policy  # noqa: PLC0415 - imports the compiler

    return compile_policy(ExportedPolicy(cast("Any", pick).py_func, _RECORDS))


class PythonPick:
    """Policy in plain Python that compiled code calls back, and the arrays that the policy reads.

    An exception cannot pass through compiled code. The callback therefore stores the exception in `failed` and returns
    NOWHERE.
    """

    def __init__(self, pick: Pick, request: Records, endpoints: Records, hits: Records, parameters: Records) -> None:
        self.failed: BaseException | None = None
        self._pick, self._request, self._hits = pick, request, hits
        self._seen = {int(mine.ctypes.data): (mine, own) for mine, own in zip(endpoints, parameters, strict=True)}
        for address in self._seen:
            _ASKED[address] = self

    def answer(self, address: int) -> int:
        """Return the policy's choice among the endpoint records at a memory address."""
        try:
            endpoints, parameters = self._seen[address]
            chosen = _index(self._pick(self._request, endpoints, self._hits, parameters))
        except BaseException as error:  # noqa: BLE001 - the caller of the loop raises it
            self.failed = error
            return NOWHERE
        return min(chosen, NOWHERE)

    def __call__(self, _request: Records, endpoints: Records, _hits: Records, _parameters: Records) -> int:
        """Return the policy's choice. The simulation loop calls this method if the loop runs as Python."""
        return self.answer(int(endpoints.ctypes.data))

    @staticmethod
    def address() -> int:
        """Return the address of the callback for compiled code.

        All Python policies share this callback. The callback identifies a policy by the address of the policy's
        endpoint records.
        """
        return ctypes.cast(_CALLBACK, ctypes.c_void_p).value or 0


def _index(chosen: object) -> int:
    """Return a policy's choice as an int.

    Raise DeploymentError if the choice is not an index, such as 1.7, "3" or -2.
    """
    if isinstance(chosen, int | np.integer) and not isinstance(chosen, bool) and chosen >= REJECTED:
        return int(chosen)
    said = str(chosen) if isinstance(chosen, int | np.integer) else repr(chosen).splitlines()[0][:_SHOWN]
    raise DeploymentError(f"the policy returned {said}; return an endpoint's index as an int, or -1 to reject")


_SHOWN: Final = 60
NOWHERE: Final = 2**31 - 1
"""Endpoint index that is larger than any fleet's."""
_ASKED: "WeakValueDictionary[int, PythonPick]" = WeakValueDictionary()
_CALLBACK = POLICY_TYPE(lambda _request, address, _count, _hits, _parameters: _ASKED[address].answer(address))
