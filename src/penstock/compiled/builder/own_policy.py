"""Compiles a user's own policy with numba in the running process, for the C signature that all policies share."""

from typing import Any

import numba
from numba import types

from penstock.compiled.builder.front_end import policy_types, policy_wrapper, teach_numba
from penstock.compiled.interface import ExportedPolicy


def compile_policy(policy: ExportedPolicy) -> Any:  # noqa: ANN401 - numba's callbacks have no type
    """Return numba's callback for a policy. The `address` of the callback is valid as long as the callback exists."""
    teach_numba()
    signature = types.int64(*policy_types(policy))
    return numba.cfunc(signature, error_model="numpy", nogil=True)(policy_wrapper(policy))
