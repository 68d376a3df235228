"""Opens a library and returns its C functions, after comparing the layouts that they were compiled for."""

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from penstock.errors import DeploymentError


class Opened(Protocol):
    """An opened library."""

    def function(self, symbol: str, digest: int, result: Any, *, keeps_lock: bool = False) -> Callable[[bytes], Any]:  # noqa: ANN401 - a ctypes type
        """Return a C function that takes packed arguments.

        Raise DeploymentError if it was compiled for layouts other than the declared ones.
        """

    def address(self, symbol: str) -> int:
        """Return the address of a C function that takes its arguments one by one."""


class SharedLibrary:
    """A library opened by the operating system."""

    def __init__(self, path: Path) -> None:
        self._path, self._library = path, ctypes.CDLL(str(path))
        self._with_lock = ctypes.PyDLL(str(path))

    def function(self, symbol: str, digest: int, result: Any, *, keeps_lock: bool = False) -> Callable[[bytes], Any]:  # noqa: ANN401 - same
        """Return a C function that takes packed arguments."""
        try:
            found = ctypes.c_int64.in_dll(self._library, f"{symbol}_layout").value
        except ValueError:
            found = None
        _check_layout(symbol, found, digest, self._path)
        native = (self._with_lock if keeps_lock else self._library)[f"{symbol}_packed"]
        native.restype = result
        return native

    def address(self, symbol: str) -> int:
        """Return the address of a C function that takes its arguments one by one."""
        return ctypes.cast(self._library[symbol], ctypes.c_void_p).value or 0


class ObjectFile:
    """An object file that llvmlite loads, for machines without a linker that makes a shared library."""

    def __init__(self, path: Path) -> None:
        import llvmlite.binding as llvm  # noqa: PLC0415 - seldom needed, and an extra

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
        self._path, self._engine = path, llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        self._engine.add_object_file(llvm.object_file.ObjectFileRef.from_path(str(path)))
        self._engine.finalize_object()

    def function(self, symbol: str, digest: int, result: Any, *, keeps_lock: bool = False) -> Callable[[bytes], Any]:  # noqa: ANN401 - same
        """Return a C function that takes packed arguments."""
        place = self._engine.get_global_value_address(f"{symbol}_layout")
        _check_layout(symbol, ctypes.c_int64.from_address(place).value if place else None, digest, self._path)
        prototype = ctypes.PYFUNCTYPE(result) if keeps_lock else ctypes.CFUNCTYPE(result)
        return prototype(self.address(f"{symbol}_packed"))

    def address(self, symbol: str) -> int:
        """Return the address of a C function that takes its arguments one by one."""
        return int(self._engine.get_function_address(symbol))


def open_library(path: Path) -> Opened:
    """Open a shared library or an object file."""
    return ObjectFile(path) if path.suffix == ".o" else SharedLibrary(path)


def _check_layout(symbol: str, found: int | None, digest: int, path: Path) -> None:
    """Raise DeploymentError if a function was compiled for record layouts other than those of this version."""
    if found != digest:
        raise DeploymentError(
            f"{path.name}: {symbol} was compiled for other record layouts; delete {path}, or install penstock again"
        )
