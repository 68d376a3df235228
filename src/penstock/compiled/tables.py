"""Describes tables: named tuples of arrays that compiled code reads through one pointer.

In memory a table is a C struct: for each array its address, then its shape as int64. A field is declared as
`Annotated[Any, ArrayOf(ROW)]`. The C header, the digests and numba's types all follow from that declaration.
"""

import ctypes
from functools import cache
from typing import Any, NamedTuple, cast, get_type_hints

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
    """The addresses and shapes of a table's arrays. They stay valid while this object exists."""

    __slots__ = ("_words", "address", "table")

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
        self.table = table
        self._words = (ctypes.c_int64 * len(words))(*words)
        self.address = ctypes.addressof(self._words)


def as_records(table: Any) -> Any:  # noqa: ANN401 - any table
    """Return a table whose records have attributes as in compiled code, for functions that run as Python."""
    return type(table)(*(array.view(np.recarray) if array.dtype.names else array for array in table))
