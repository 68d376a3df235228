"""Describes tables: named tuples of arrays that compiled code reads through one pointer.

In memory a table is a C struct: for each array its address, then its shape as int64. A field is declared as
`Annotated[Any, ArrayOf(ROW)]`. The C header, the digests and numba's types are all derived from the declarations of
fields.
"""

import ctypes
from functools import cache
from typing import Any, Final, NamedTuple, cast, get_type_hints
from weakref import ref

import numpy as np


class ArrayOf(NamedTuple):
    """A C-contiguous array: its dtype and number of dimensions."""

    dtype: Any
    dimensions: int = 1


class ArrayTable(NamedTuple):
    """The declared arrays of a table, by field."""

    name: str
    arrays: dict[str, ArrayOf]


@cache
def table_of(kind: Any) -> ArrayTable | None:  # noqa: ANN401 - any annotation
    """Return the declaration of a table's class, or None if the class is not a table."""
    if not (isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")):
        return None
    hints = get_type_hints(kind, include_extras=True)
    arrays = {
        field: ArrayOf(np.dtype(item.dtype), item.dimensions)
        for field, hint in hints.items()
        for item in getattr(hint, "__metadata__", ())
        if isinstance(item, ArrayOf)
    }
    return ArrayTable(kind.__name__.strip("_"), arrays) if arrays.keys() == hints.keys() else None


class Pointers:
    """The addresses and shapes of a table's arrays. The addresses are valid while this object and the arrays exist."""

    __slots__ = ("_arrays", "_words", "address")

    def __init__(self, table: Any) -> None:  # noqa: ANN401 - any table
        declared = table_of(cast("Any", type(table)))
        if declared is None:
            raise TypeError(f"{type(table).__name__} is not a table of arrays")
        words: list[int] = []
        for (field, kind), array in zip(declared.arrays.items(), table, strict=True):
            same = array.dtype is kind.dtype or array.dtype == kind.dtype
            if not (same and array.ndim == kind.dimensions and array.flags.c_contiguous):
                raise TypeError(f"{declared.name}.{field} is not a contiguous array of {kind.dimensions} dimensions")
            words.append(array.ctypes.data)
            words += array.shape
        self._arrays = [ref(array) for array in table]
        self._words = (ctypes.c_int64 * len(words))(*words)
        self.address = ctypes.addressof(self._words)

    def are_of(self, table: Any) -> bool:  # noqa: ANN401 - any table
        """Return whether these are the pointers of a table, which must consist of the same arrays."""
        return all(known() is array for known, array in zip(self._arrays, table, strict=True))


_LAST: Final[dict[type, Pointers]] = {}
"""The last pointers of each class of table. The arrays are not kept alive."""


def pointers_to(table: Any) -> Pointers:  # noqa: ANN401 - any table
    """Return the pointers of a table.

    New pointers are made only if an array is not the same object as in the last call.
    """
    last = _LAST.get(type(table))
    if last is None or not last.are_of(table):
        last = _LAST[type(table)] = Pointers(table)
    return last


def as_records(table: Any) -> Any:  # noqa: ANN401 - any table
    """Return a table whose record fields are attributes, as in compiled code, for functions that run as Python."""
    return type(table)(*(array.view(np.recarray) if array.dtype.names else array for array in table))
