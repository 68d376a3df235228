"""Declares the C functions of the library.

Python's calls, the C header and the digests are derived from these declarations.

An exported function takes tables, integers, floats and policies. The C arguments of an exported function are derived
from its annotations. For every function, the library contains a digest of the function's arguments and record layouts.
The digest in the library is compared with the digest of the declaration when the function is first called.

Python packs the arguments into one `bytes` object and calls the symbol NAME_packed, which unpacks them: ctypes needs a
quarter of a microsecond for each further argument.
"""

import ctypes
import hashlib
import struct
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from importlib import import_module
from inspect import signature
from typing import Any, Final, NamedTuple, TypeVar, cast, get_type_hints

import numpy as np

from penstock.compiled.library import load
from penstock.compiled.marks import CompiledFunction
from penstock.compiled.tables import ArrayOf, ArrayTable, Pointers, as_records, pointers_to, table_of

Function = TypeVar("Function", bound=Callable[..., object])
MODULES: Final = (
    "penstock.simulation.loop.events",
    "penstock.simulation.loop.observe",
    "penstock.simulation.collect",
    "penstock.routing.picker_calls",
    "penstock.routing.late_requests",
    "penstock.routing.prefix_blocks",
    "penstock.routing.tenant_shares",
    "penstock.routing.suspicion",
    "penstock.routing.harm",
    "penstock.routing.baselines.peer_policies",
)
"""The modules with exported functions."""


class PolicyArgument:
    """Marks an argument that is a policy. In C a policy is an address, and in Python a function."""


POLICY: Final = PolicyArgument()
POLICY_TYPE: Final = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p
)
"""C signature of a policy: int64_t pick(request *, endpoints *, int64_t count, hits *, parameters *)"""
Kind = ArrayTable | ArrayOf | PolicyArgument | type[int] | type[float]
_NUMBERS: Final = {int: ctypes.c_int64, float: ctypes.c_double}


class Argument(NamedTuple):
    """One argument of a C function."""

    name: str
    kind: Kind


def kind_of(annotation: Any) -> Kind | None:  # noqa: ANN401 - any annotation
    """Return the kind of argument that an annotation declares. None if compiled code cannot use the annotation."""
    if annotation is int or annotation is float:
        return cast("Kind", annotation)
    for item in getattr(annotation, "__metadata__", ()):
        if isinstance(item, PolicyArgument | ArrayOf):
            return item
    return table_of(annotation)


class ExportedFunction(CompiledFunction):
    """A function that Python and C call by its symbol in the library."""

    keeps_lock = False
    """Whether Python's lock is kept during a call: worth it if the call takes no longer than releasing the lock."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self.symbol = "penstock_" + function.__name__.strip("_")

    @cached_property
    def arguments(self) -> tuple[Argument, ...]:
        """The C arguments, from the annotations."""
        hints = get_type_hints(self.py_func, include_extras=True)
        arguments = []
        for name in signature(self.py_func).parameters:
            kind = kind_of(hints[name])
            if kind is None:
                raise TypeError(f"{self.symbol}: argument {name} must be a table, a number or a policy")
            arguments.append(Argument(name, kind))
        return tuple(arguments)

    @cached_property
    def returns(self) -> type | None:
        """Type of the returned value: int, float, or None."""
        returned = get_type_hints(self.py_func)["return"]
        return cast("type | None", None if returned is type(None) else returned)

    @cached_property
    def native(self) -> Callable[[bytes], Any] | None:
        """The C function, which takes its packed arguments. None if the library is missing."""
        library = load()
        if library is None:
            return None
        result = None if self.returns is None else _NUMBERS[self.returns]
        return library.function(self.symbol, layout_digest(self), result, keeps_lock=self.keeps_lock)

    @cached_property
    def pack(self) -> Callable[..., bytes]:
        """Packs the arguments. A table is packed as its address."""
        return struct.Struct("".join("d" if kind is float else "q" for _, kind in self.arguments)).pack

    def __call__(self, *arguments: Any) -> Any:  # noqa: ANN401 - as declared by the function's annotations
        """Call the C function, or the Python function if the library is missing."""
        if self.native is None:
            with np.errstate(all="ignore"):
                return self.py_func(*(as_records(item) if _is_table(item) else item for item in arguments))
        # `passed` keeps the pointers until the call is over.
        passed = [pointers_to(item) if _is_table(item) else item for item in arguments]
        return self.native(self.pack(*(item.address if isinstance(item, Pointers) else item for item in passed)))

    def bind(self, table: Any) -> Callable[..., Any]:  # noqa: ANN401 - any table
        """Return a function that calls this one with a fixed table, and with numbers for the other arguments."""
        if self.native is None:
            return partial(self, table)
        pointers, native, pack = pointers_to(table), self.native, self.pack
        address, numbers = pointers.address, len(self.arguments) - 1
        # One function for each number of arguments: `*arguments` would add half to the time of a call.
        bound: Any = {
            0: partial(native, pack(address, *[0] * numbers)),
            1: lambda a: native(pack(address, a)),
            2: lambda a, b: native(pack(address, a, b)),
            3: lambda a, b, c: native(pack(address, a, b, c)),
        }[numbers]
        bound.keeps = (table, pointers)  # the address is valid only while both exist
        return cast("Callable[..., Any]", bound)


class ExportedPolicy(ExportedFunction):
    """A policy in the library. All policies share one C signature."""

    records: tuple[Any, Any, Any] = (None, None, None)
    """The dtypes of request, endpoint and parameters, which `routing` sets."""

    def __init__(self, function: Callable[..., Any], records: tuple[Any, Any, Any]) -> None:
        super().__init__(function)
        self.symbol = "penstock_pick_" + function.__name__.removeprefix("pick").strip("_")
        self.symbol = self.symbol.rstrip("_")
        self.records = records

    @cached_property
    def arguments(self) -> tuple[Argument, ...]:
        """The C arguments of every policy."""
        request, endpoint, parameters = (ArrayOf(np.dtype(dtype)) for dtype in self.records)
        return (
            Argument("request", request),
            Argument("endpoints", endpoint),
            Argument("count", int),
            Argument("hits", ArrayOf(np.dtype(np.int64))),
            Argument("parameters", parameters),
        )

    @property
    def address(self) -> int:
        """The address of the C function. 0 if the library is missing."""
        library = load()
        return 0 if library is None or self.native is None else library.address(self.symbol)

    def __call__(self, request: Any, endpoints: Any, hits: Any, parameters: Any) -> Any:  # noqa: ANN401 - arrays
        """Return the policy's choice."""
        if self.native is None:
            with np.errstate(all="ignore"):
                return self.py_func(request, endpoints, hits, parameters)
        passed = [np.ascontiguousarray(item) for item in (request, endpoints, hits, parameters)]
        q, e, h, p = (item.ctypes.data for item in passed)
        return self.native(self.pack(q, e, len(endpoints), h, p))


def exported(function: Function) -> Function:
    """Mark a function that Python and C call.

    The arguments of the function are tables, integers, floats and policies.
    """
    return cast("Function", ExportedFunction(function))


def exported_short(function: Function) -> Function:
    """Mark an exported function that takes about a microsecond. Calls from Python keep Python's lock."""
    marked = ExportedFunction(function)
    marked.keeps_lock = True
    return cast("Function", marked)


def exported_functions() -> list[ExportedFunction]:
    """Return every exported function once, in the order of the modules."""
    modules = [import_module(name) for name in MODULES]
    found = [item for module in modules for item in vars(module).values() if isinstance(item, ExportedFunction)]
    return list({item.symbol: item for item in found}.values())


def _is_table(item: object) -> bool:
    return isinstance(item, tuple) and hasattr(item, "_fields")


def layout_digest(function: ExportedFunction) -> int:
    """Return a 63-bit digest of a function's arguments and of every record that it reaches."""
    text = ";".join((function.symbol, str(function.returns), *(_describe(item.kind) for item in function.arguments)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def _describe(kind: Kind) -> str:
    if isinstance(kind, ArrayTable):
        return kind.name + "{" + ",".join(f"{field}:{_describe(item)}" for field, item in kind.arrays.items()) + "}"
    if isinstance(kind, ArrayOf):
        return f"{'|'.join(_fields(kind.dtype))}[{kind.dimensions}]"
    return "policy" if isinstance(kind, PolicyArgument) else kind.__name__


def _fields(dtype: Any) -> Iterator[str]:  # noqa: ANN401 - numpy's dtypes differ by kind
    if dtype.names is None:
        yield dtype.str
        return
    for name in dtype.names:
        item, offset = dtype.fields[name][:2]
        yield f"{name}@{offset}{item.base.str}{item.shape}"
    yield f"size{dtype.itemsize}"
