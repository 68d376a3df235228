"""Calls a policy from marked functions: by its address in compiled code, as a function in Python."""

from collections.abc import Callable
from typing import Any, ClassVar


class PolicyCall:
    """The call of a policy. The builder replaces this object by a call of the policy's address."""

    numba_type: ClassVar[Any] = None
    """The type of the call for numba. The builder sets it."""

    def __call__(self, policy: Callable[..., Any], request: Any, endpoints: Any, hits: Any, parameters: Any) -> int:  # noqa: ANN401 - arrays
        """Return the index of the endpoint that a policy chooses."""
        return int(policy(request, endpoints, hits, parameters))

    @property
    def _numba_type_(self) -> Any:  # noqa: ANN401 - numba's types have none
        if PolicyCall.numba_type is None:
            raise AttributeError("only the builder compiles")
        return PolicyCall.numba_type


call_policy = PolicyCall()
