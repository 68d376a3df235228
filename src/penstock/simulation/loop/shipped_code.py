"""Loads machine code shipped with the wheel if its sources, Python, numba and platform match."""

import pickle
import platform
import sys
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import numba
from numba.core.compiler import CompileResult

Code = dict[str, dict[Any, Any]]
"""Serialized numba code, by name of the entry and argument types."""


def folder() -> Traversable:
    """Return the folder of the machine code in the package. It may not exist."""
    return files("penstock.simulation.loop").joinpath("machine_code")


def file_name() -> str:
    """Return the file name of the machine code for this process: it depends on Python, numba and the platform."""
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return f"{python}-numba{numba.__version__}-{sys.platform}-{platform.machine().lower()}.pickle"


@cache
def shipped_code(sources: str) -> Code:
    """Return the machine code compiled from exactly these sources; empty if there is none."""
    try:
        by_sources = pickle.loads(folder().joinpath(file_name()).read_bytes())  # noqa: S301 - a file of this package
        found: Code = by_sources.get(sources, {})
    except Exception:  # noqa: BLE001 - on any error the code is compiled instead
        return {}
    return found


def code_file(entries: Iterable[Any]) -> bytes:
    """Serialize the machine code of entries compiled in this process, in the format that `shipped_code` reads."""
    code: dict[str, Code] = {}
    for dispatcher in entries:
        made = {types: result._reduce() for types, result in dispatcher.overloads.items()}  # noqa: SLF001 - there is no public way
        kept: ShippedFirst = dispatcher._cache  # noqa: SLF001 - same
        code.setdefault(kept.sources, {})[kept.name] = made
    return pickle.dumps(code)


class ShippedFirst:
    """A numba cache that looks first in the machine code shipped with the package."""

    def __init__(self, behind: Any, name: str, sources: str) -> None:  # noqa: ANN401 - numba's cache has no type
        self.behind = behind
        self.name = name
        self.sources = sources

    @property
    def ready(self) -> bool:
        """Whether the package ships this entry."""
        return self.name in shipped_code(self.sources)

    def load_overload(self, types: Any, target_context: Any) -> Any:  # noqa: ANN401 - same
        """Return the code for these types, or None if it must be compiled."""
        payload = shipped_code(self.sources).get(self.name, {}).get(types)
        if payload is None:
            return self.behind.load_overload(types, target_context)
        target_context.refresh()
        rebuild: Any = CompileResult._rebuild  # noqa: SLF001 - there is no public way
        return rebuild(target_context, *payload)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - same
        return getattr(self.behind, name)
