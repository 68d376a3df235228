"""A module holds one idea and a function one step: neither grows beyond what a reader takes in."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import penstock

ROOT = Path(penstock.__file__).parent
MAX_MODULE_LINES: Final = 400
MAX_FUNCTION_LINES: Final = 60
"""Without the docstring: that of a command is its help text."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def lines_of(function: Function) -> int:
    whole = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function) is None or first.end_lineno is None:
        return whole
    return whole - (first.end_lineno - first.lineno + 1)


def functions(path: Path) -> Iterator[Function]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, Function):
            yield node


def test_no_module_is_longer_than_a_reader_takes_in() -> None:
    lengths = {str(p.relative_to(ROOT)): len(p.read_text(encoding="utf-8").splitlines()) for p in ROOT.rglob("*.py")}
    assert {name: length for name, length in lengths.items() if length > MAX_MODULE_LINES} == {}
    assert len(lengths) > 400


def test_no_function_is_longer_than_a_screen() -> None:
    lengths = {
        f"{path.relative_to(ROOT)}:{function.name}": lines_of(function)
        for path in ROOT.rglob("*.py")
        for function in functions(path)
    }
    assert {name: length for name, length in lengths.items() if length > MAX_FUNCTION_LINES} == {}
    assert len(lengths) > 2_000


def test_a_docstring_is_not_counted() -> None:
    (function,) = ast.parse('def f():\n    """One.\n\n    Two.\n    """\n    return 1\n').body
    assert isinstance(function, ast.FunctionDef)
    assert lines_of(function) == 2
