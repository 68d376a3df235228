"""Compiles the loop with numba and keeps the machine code on disk."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, TypeVar, cast

import numba

from penstock.simulation.loop.shipped_code import ShippedFirst

_ROUTING_PARTS = (
    "corrections",
    "endpoint_updates",
    "latency",
    "length_estimates",
    "miss_probability",
    "policy_compiler",
    "records",
)
_INTERPRETED = {"initial_visibility.py", "layout.py", "segment_places.py", "shipped_code.py"}
"""Modules of the loop that lay out its arrays and are not compiled."""
Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """Compile a function of the loop inline into its callers."""
    return cast("Function", _compile(function, keep=False, inline=True))


def cold(function: Function) -> Function:
    """Compile a rarely called function once, without inlining, so that the machine code stays small."""
    return cast("Function", _compile(function, keep=False, inline=False))


def entry(function: Function) -> Function:
    """Compile a function of the loop that Python calls, unless the package ships its machine code."""
    return cached_on_disk(function, sources())


def cached_on_disk(function: Function, stamp: str) -> Function:
    """Compile a function that Python calls, unless the package ships its machine code. `stamp` identifies its sources.

    The compiled code is kept next to the source or in the user's cache folder. If neither is writable, as in a
    container with a read-only file system, every process compiles again.
    """
    try:
        dispatcher = _compile(function, keep=True, inline=False)
        # numba checks only the age of this function's own file; a change in any function it calls must count too.
        dispatcher._cache._cache_file._source_stamp = stamp  # noqa: SLF001 - there is no public way
    except RuntimeError:  # numba: "no locator available for file"
        dispatcher = _compile(function, keep=False, inline=False)
    dispatcher._cache = ShippedFirst(dispatcher._cache, entry_name(function), stamp)  # noqa: SLF001 - same
    return cast("Function", dispatcher)


def entry_name(function: Callable[..., object]) -> str:
    """Return the name of an entry in the shipped machine code."""
    return f"{function.__module__}.{function.__qualname__}"


def on_disk(function: Callable[..., object]) -> bool:
    """Return whether an entry is compiled: shipped with the package, in this process, or in a cache on disk."""
    dispatcher = cast("Any", function)
    return bool(dispatcher.signatures or dispatcher._cache.ready or _kept_for_this_processor(dispatcher))  # noqa: SLF001 - same


def _kept_for_this_processor(dispatcher: Any) -> bool:  # noqa: ANN401 - numba's dispatcher has no type
    if not keeps(dispatcher):
        return False
    processor = dispatcher.targetctx.codegen().magic_tuple()
    return any(processor in key for key in dispatcher._cache._cache_file._load_index())  # noqa: SLF001 - same


def keeps(function: Callable[..., object]) -> bool:
    """Return whether there is a writable place for an entry's machine code."""
    return hasattr(cast("Any", function)._cache.behind, "_cache_file")  # noqa: SLF001 - same


def _compile(function: Function, *, keep: bool, inline: bool) -> Any:  # noqa: ANN401 - numba's dispatcher has no type
    # Every call carries some twenty arrays. Inlined and without reference counting of them (nothing is allocated
    # inside), the loop is thirty times faster. The numpy error model has no exception paths for divisions.
    options: dict[str, Any] = {"error_model": "numpy", "nogil": True, "_nrt": False}
    return numba.njit(cache=keep, forceinline=inline, **options)(function)


@cache
def sources() -> str:
    """Return a hash of all compiled source files."""
    # The routing modules that are compiled into the loop. A policy is passed as a pointer, so it is not one of them.
    parts = [files("penstock.routing").joinpath(f"{name}.py") for name in _ROUTING_PARTS]
    parts.append(files("penstock.simulation").joinpath("collect.py"))
    return stamp_of(parts + sorted(_python_files(files("penstock.simulation.loop")), key=str))


def stamp_of(parts: Iterable[Traversable]) -> str:
    """Return the SHA-256 hash of the contents of files."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.read_bytes())
    return digest.hexdigest()


def _python_files(folder: Traversable) -> Iterator[Traversable]:
    for item in folder.iterdir():
        if item.is_dir():
            yield from _python_files(item)
        elif item.name.endswith(".py") and item.name not in _INTERPRETED:
            yield item
