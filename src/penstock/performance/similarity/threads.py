"""How many threads does linear algebra take? One, while matrices are small: more would spin and wait for each other.

The command line says so to OpenBLAS before it is loaded. A program that imports penstock has numpy already, and its own
setting must be as it was afterwards: here it is one for as long as a prediction takes.
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
"""Variables in which a user states the number; theirs is left as it is."""
_SPELT: Final = ("scipy_openblas_{}_num_threads64_", "scipy_openblas_{}_num_threads", "openblas_{}_num_threads")
_LOCK: Final = Lock()


class OpenBlas(NamedTuple):
    """How the OpenBLAS that numpy loaded is asked for its threads, and told."""

    threads: Callable[[], int]
    limit: Callable[[int], object]


@cache
def openblas() -> OpenBlas | None:
    """Find the OpenBLAS of numpy; None where it has another library, or one that cannot be asked."""
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
    """Who is inside, and what there was before the first of them."""

    inside = 0
    before = 1


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit linear algebra to one thread inside, unless the user states a number; restore it when the last leaves."""
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
