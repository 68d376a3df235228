"""Evaluates arithmetic expressions written as text. Only numbers and given names are allowed."""

import ast
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.errors import UsageError

_MAX_CHARACTERS: Final = 300
_MAX_VALUE: Final = 1e30
_SUMS: Final[Mapping[type[ast.operator], Callable[[float, float], float]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_COMPARISON: Final = re.compile(r"\s*(.+?)\s*(<=|>=|<|>|==)\s*(.+?)\s*")
_DAY: Final = re.compile(r"\d{4}-\d{2}(?:-\d{2})?")
_COMPARED: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
}


def evaluate(expression: str, names: Mapping[str, float] | None = None) -> float:
    """Evaluate an expression that combines numbers and the given names with + - * / and parentheses."""
    if len(expression) > _MAX_CHARACTERS:
        raise UsageError(f"a formula of {len(expression)} characters is too long; the limit is {_MAX_CHARACTERS}")
    try:
        tree = ast.parse(expression.strip(), mode="eval")
        value = _value(tree.body, names or {})
    except UsageError:
        raise
    except (SyntaxError, RecursionError, MemoryError, ValueError) as error:
        raise UsageError(
            f"'{expression[:60]}' is not a formula; write one such as `(a - b) / b` with the names of inputs"
        ) from error
    except ZeroDivisionError:
        raise UsageError(f"'{expression[:60]}' divides by zero") from None
    if not abs(value) < _MAX_VALUE:
        raise UsageError(f"'{expression[:60]}' evaluates to {value:g}; the absolute value must be below {_MAX_VALUE:g}")
    return value


def _value(node: ast.expr, names: Mapping[str, float]) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return float(node.value)
    if isinstance(node, ast.Name):
        if node.id not in names:
            raise UsageError(f"'{node.id[:40]}' is not an input; the inputs are: {', '.join(names) or 'none'}")
        return names[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, names)
    if isinstance(node, ast.BinOp) and type(node.op) in _SUMS:
        return _SUMS[type(node.op)](_value(node.left, names), _value(node.right, names))
    raise UsageError("a formula may contain only numbers, names of inputs, + - * / and brackets")


def holds(comparison: str) -> bool:
    """Return whether a comparison such as `a < b` is true. Both sides are expressions, or both are dates."""
    found = _COMPARISON.fullmatch(comparison)
    if found is None:
        raise UsageError(f"'{comparison[:60]}' is not a comparison; write one such as `a < b`")
    left, sign, right = found[1], found[2], found[3]
    if _DAY.fullmatch(left) and _DAY.fullmatch(right):
        return _COMPARED[sign](left, right)
    return _COMPARED[sign](evaluate(left), evaluate(right))
