"""Limits linear algebra to one thread, because on small matrices several threads mostly wait for each other.

The command line limits OpenBLAS to one thread before the library is loaded. A program that imports penstock may have
loaded numpy already, and the program's own thread count must be restored afterwards. So the limit of one thread applies
only for the duration of a prediction.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import CDLL
from functools import cache
from threading import Lock
from typing import Final, NamedTuple

import numpy as np

STATED_BY: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
"""Environment variables in which a user sets the number of threads. If one of them is set, the number of threads is
left unchanged."""
_SPELT: Final = ("scipy_openblas_{}_num_threads64_", "scipy_openblas_{}_num_threads", "openblas_{}_num_threads")
_LOCK: Final = Lock()


class OpenBlas(NamedTuple):
    """Functions that read and set the number of threads of the OpenBLAS library that numpy loaded."""

    threads: Callable[[], int]
    limit: Callable[[int], object]


@cache
def openblas() -> OpenBlas | None:
    """Return the thread functions of numpy's OpenBLAS.

    None if numpy uses another library, or if the functions are missing.
    """
    try:
        library = CDLL(np.linalg._umath_linalg.__file__)  # noqa: SLF001 - it links to OpenBLAS
    except (AttributeError, OSError):
        return None
    for spelt in _SPELT:
        try:
            return OpenBlas(getattr(library, spelt.format("get")), getattr(library, spelt.format("set")))
        except AttributeError:
            continue
    return None


class _Held:
    """Number of callers that hold the limit, and the thread count before the first caller."""

    inside = 0
    before = 1


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit linear algebra to one thread inside the block, unless the user set a number of threads.

    The previous number of threads is restored when the last caller leaves its block.
    """
    found = None if any(name in os.environ for name in STATED_BY) else openblas()
    if found is None:
        yield
        return
    with _LOCK:
        if not _Held.inside:
            _Held.before = found.threads()
            found.limit(1)
        _Held.inside += 1
    try:
        yield
    finally:
        with _LOCK:
            _Held.inside -= 1
            if not _Held.inside:
                found.limit(_Held.before)
