"""Compiles marked functions to LLVM IR with numba, without numba's own optimisation and machine code.

numba alone would optimise and assemble every function separately, and again within each caller. In this module, each
function keeps its raw IR, and the IR of all functions is linked and optimised once. This code uses private names of
numba, so it runs only where the library is built.
"""

from typing import Any, Final, get_type_hints

import llvmlite.binding as llvm
import numba
from llvmlite import ir
from numba import carray, types
from numba.core import codegen, cpu
from numba.core.registry import cpu_target

from penstock.compiled.builder.table_types import TableType, call_policy
from penstock.compiled.interface import ExportedFunction, ExportedPolicy, PolicyArgument, kind_of, layout_digest
from penstock.compiled.marks import CompiledFunction
from penstock.compiled.policy_call import PolicyCall
from penstock.compiled.tables import ArrayOf, ArrayTable

OPTIONS: Final[dict[str, Any]] = {
    "error_model": "numpy",  # divisions need no path for exceptions
    "nogil": True,
    "_nrt": False,  # nothing is allocated, so nothing is counted
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}
_DISPATCHERS: Final[dict[CompiledFunction, Any]] = {}
_TABLES: Final[dict[str, TableType]] = {}


def keep_raw_code() -> None:
    """Change numba in this process so that compiling a function yields only its raw IR."""
    library: Any = codegen.CPUCodeLibrary

    def finalize(self: Any) -> None:  # noqa: ANN401 - numba has no types
        self._finalize_dynamic_globals()
        self._finalized = True

    library._optimize_functions = lambda _self, _module: None  # noqa: SLF001 - same
    library._optimize_final_module = lambda _self: None  # noqa: SLF001 - same
    library.finalize = finalize
    # A function that is never called must only be callable and different from the others, because it is a key.
    cpu.CPUContext.get_executable = lambda *_: [].append


def teach_numba() -> None:
    """Teach numba to compile a marked function whenever compiled code calls it."""
    CompiledFunction.dispatcher_of = dispatcher_of
    context = cpu_target.typing_context
    context.refresh()
    PolicyCall.numba_type = context.resolve_value_type(call_policy)


def dispatcher_of(function: CompiledFunction) -> Any:  # noqa: ANN401 - numba's dispatchers have no type
    """Return numba's dispatcher of a marked function.

    If numba knows all annotations, the function is compiled for them.
    """
    made = _DISPATCHERS.get(function)
    if made is None:
        made = _DISPATCHERS[function] = numba.njit(**OPTIONS)(function.py_func)
        kinds = _annotated_types(function)
        if kinds is not None:
            made.compile(kinds)
            made.disable_compile()
            _refuse_truncation(made, function, kinds)
    return made


def _annotated_types(function: CompiledFunction) -> tuple[Any, ...] | None:
    hints = get_type_hints(function.py_func, include_extras=True)
    hints.pop("return", None)
    found = [types.boolean if hint is bool else _type_of(kind_of(hint)) for hint in hints.values()]
    return tuple(found) if None not in found else None


def _type_of(kind: object) -> Any:  # noqa: ANN401 - numba's types have none
    if isinstance(kind, ArrayTable):
        return _TABLES.setdefault(kind.name, TableType(kind))
    if isinstance(kind, PolicyArgument) or kind is int:
        return types.int64
    return types.float64 if kind is float else None


def _refuse_truncation(made: Any, function: CompiledFunction, kinds: tuple[Any, ...]) -> None:  # noqa: ANN401 - same
    """Raise an error if a caller passes a float for an argument annotated as int, which numba would truncate."""
    resolve = made.get_call_template

    def checked(arguments: Any, keywords: Any) -> Any:  # noqa: ANN401 - same
        for given, declared in zip(arguments, kinds, strict=True):
            if isinstance(declared, types.Integer) and isinstance(given, types.Float):
                raise TypeError(
                    f"{function.__name__} is called with a float for an argument annotated as int; convert the argument"
                )
        return resolve(arguments, keywords)

    made.get_call_template = checked


def raw_module(functions: list[ExportedFunction]) -> tuple[Any, set[str]]:
    """Return an LLVM module of all exported functions and their callees, and the names of its cold functions."""
    whole, seen = llvm.parse_assembly(""), set[Any]()
    for function in functions:
        library = _export(function)
        whole.link_in(library._final_module, preserve=True)  # noqa: SLF001 - there is no public way
        _link(whole, library, seen)
    whole.link_in(llvm.parse_assembly("define void @NRT_MemInfo_call_dtor(ptr %p) {\n ret void\n}"))
    cold = {
        compiled.fndesc.llvm_func_name
        for function, made in _DISPATCHERS.items()
        if function.is_cold
        for compiled in made.overloads.values()
    }
    return whole, cold


def _link(whole: Any, library: Any, seen: set[Any]) -> None:  # noqa: ANN401 - numba has no types
    for needed in library._linking_libraries:  # noqa: SLF001 - there is no public way
        if needed not in seen:
            seen.add(needed)
            whole.link_in(needed._final_module, preserve=True)  # noqa: SLF001 - same
            _link(whole, needed, seen)


def _export(function: ExportedFunction) -> Any:  # noqa: ANN401 - numba has no types
    """Compile a function, and return numba's code library of its C entry point.

    The C entry point has the same arguments as the function, and uses neither Python nor exceptions.
    """
    if isinstance(function, ExportedPolicy):
        made, kinds = _policy_entry(function)
    else:
        made, kinds = dispatcher_of(function), tuple(_type_of(item.kind) for item in function.arguments)
    (compiled,) = (item for key, item in made.overloads.items() if tuple(key) == kinds)
    context, described = compiled.target_context, compiled.fndesc
    library = compiled.library.codegen.create_library(function.symbol)
    module = library.create_ir_module(function.symbol)
    returns = compiled.signature.return_type
    nothing = returns == types.none
    result = ir.VoidType() if nothing else context.get_value_type(returns)
    entry_type = ir.FunctionType(result, [context.get_value_type(kind) for kind in kinds])
    entry = ir.Function(module, entry_type, function.symbol)
    builder = ir.IRBuilder(entry.append_basic_block("entry"))
    inner_type = context.call_conv.get_function_type(described.restype, described.argtypes)
    inner = ir.Function(module, inner_type, described.llvm_func_name)
    _, value = context.call_conv.call_function(builder, inner, returns, kinds, list(entry.args))
    if nothing:
        builder.ret_void()
    else:
        builder.ret(value)
    _add_packed_entry(entry, function)
    digest = ir.GlobalVariable(module, ir.IntType(64), f"{function.symbol}_layout")
    digest.initializer, digest.global_constant = ir.Constant(ir.IntType(64), layout_digest(function)), True
    library.add_ir_module(module)
    library.add_linking_library(compiled.library)
    return library


def _add_packed_entry(entry: Any, function: ExportedFunction) -> None:  # noqa: ANN401 - llvmlite has no types
    """Add the entry point for Python. It takes a pointer to words of 8 bytes, one for each argument."""
    word, result = ir.IntType(64), entry.function_type.return_type
    packed = ir.Function(entry.module, ir.FunctionType(result, [word.as_pointer()]), f"{function.symbol}_packed")
    builder = ir.IRBuilder(packed.append_basic_block("entry"))
    values = []
    for place, kind in enumerate(entry.function_type.args):
        at = builder.gep(packed.args[0], [ir.Constant(ir.IntType(32), place)])
        values.append(builder.load(builder.bitcast(at, kind.as_pointer())))
    value = builder.call(entry, values, attrs=("noinline",))  # the code of the function is not wanted twice
    if isinstance(result, ir.VoidType):
        builder.ret_void()
    else:
        builder.ret(value)


def _policy_entry(function: ExportedPolicy) -> tuple[Any, tuple[Any, ...]]:
    made = numba.njit(**{**OPTIONS, "_nrt": True})(policy_wrapper(function))  # `carray` returns a new array
    kinds = policy_types(function)
    made.compile(kinds)
    return made, kinds


def policy_wrapper(function: CompiledFunction) -> Any:  # noqa: ANN401 - numba has no types
    """Return a function that takes a policy's C arguments and calls the policy with arrays."""

    def entry(q: Any, e: Any, n: Any, h: Any, p: Any) -> Any:  # noqa: ANN401 - same
        return function(carray(q, (1,)), carray(e, (n,)), carray(h, (n,)), carray(p, (1,)))

    return entry


def policy_types(function: ExportedPolicy) -> tuple[Any, ...]:
    """Return numba's types of the C arguments of policies."""
    return tuple(
        types.CPointer(numba.from_dtype(item.kind.dtype)) if isinstance(item.kind, ArrayOf) else types.int64
        for item in function.arguments
    )
