"""Teaches numba two types of the library: tables of pointers, and calls of policies by address."""

from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.core.datamodel.registry import register_default
from numba.core.imputils import lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from penstock.compiled.tables import ArrayTable

_WORD = ir.IntType(64)
_POLICY = ir.FunctionType(_WORD, [_WORD] * 5)


class TableType(types.Type):
    """A pointer to the addresses and shapes of a table's arrays."""

    def __init__(self, table: ArrayTable) -> None:
        self.arrays: dict[str, Any] = {}
        self.places: dict[str, int] = {}
        word = 0
        for field, item in table.arrays.items():
            self.arrays[field] = types.Array(numba.from_dtype(item.dtype), item.dimensions, "C")
            self.places[field] = word
            word += 1 + item.dimensions
        super().__init__(name=f"Table({table.name})")


@register_default(TableType)
class _TableModel(models.PrimitiveModel):  # type: ignore[misc]  # same
    def __init__(self, dmm: Any, fe_type: Any) -> None:  # noqa: ANN401 - same
        super().__init__(dmm, fe_type, _WORD.as_pointer())


@infer_getattr
class _TableFields(AttributeTemplate):  # type: ignore[misc]  # same
    key = TableType

    def generic_resolve(self, table: TableType, attr: str) -> Any:  # noqa: ANN401 - same
        return table.arrays.get(attr)


@lower_getattr_generic(TableType)  # type: ignore[untyped-decorator]  # same
def _field(context: Any, builder: Any, table: TableType, pointer: Any, attr: str) -> Any:  # noqa: ANN401 - same
    kind, place = table.arrays[attr], table.places[attr]

    def word(index: int, as_type: Any = None) -> Any:  # noqa: ANN401 - same
        at = builder.gep(pointer, [ir.Constant(ir.IntType(32), index)])
        loaded = builder.load(at if as_type is None else builder.bitcast(at, as_type.as_pointer()))
        # Nothing writes the words during a call, so LLVM may keep them in registers.
        loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
        return loaded

    array = make_array(kind)(context, builder)
    item = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
    shape, strides, step = [word(place + 1 + axis) for axis in range(kind.ndim)], list[Any](), item
    for length in reversed(shape):
        strides.insert(0, step)
        step = builder.mul(step, length)
    data = word(place, array.data.type)
    populate_array(array, data=data, shape=shape, strides=strides, itemsize=item, meminfo=None)
    return array._getvalue()  # noqa: SLF001 - numba's own name for it


@intrinsic  # type: ignore[untyped-decorator]  # same
def call_policy(_context: Any, _policy: Any, request: Any, endpoints: Any, hits: Any, parameters: Any) -> Any:  # noqa: ANN401 - same
    """Call a policy by its address."""
    signature = types.int64(types.int64, request, endpoints, hits, parameters)

    def generate(context: Any, builder: Any, called: Any, values: Any) -> Any:  # noqa: ANN401 - same
        kinds = zip(called.args[1:], values[1:], strict=True)
        arrays = [make_array(kind)(context, builder, value) for kind, value in kinds]
        q, e, h, p = (builder.ptrtoint(array.data, _WORD) for array in arrays)
        count = cgutils.unpack_tuple(builder, arrays[1].shape, 1)[0]
        function = builder.inttoptr(values[0], _POLICY.as_pointer())
        return builder.call(function, [q, e, count, h, p])

    return signature, generate
