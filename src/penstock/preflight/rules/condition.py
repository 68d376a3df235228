"""Conditions over facts. A condition is true, false or unknown."""

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from penstock.errors import CatalogError
from penstock.fleet.release import Release

ENVIRONMENT: Final = "env."


class Kind(StrEnum):
    """Kind of a fact's value. The kind decides which operators a condition may use."""

    TEXT = "text"
    TEXTS = "texts"
    """A set of words, as in `'mla' in model.attention`."""
    NUMBER = "number"
    FLAG = "flag"
    RELEASE = "release"
    """A version number with an order, as in `host.rocm < '7.2.1'`."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A fact that is neither stated nor implied by other facts. `why` names the missing information."""

    why: str


Value = str | int | float | bool | frozenset[str] | Release
Facts = Mapping[str, Value | Unknown]
Truth = bool | None
"""Truth value. The value None means unknown, as in Kleene's three-valued logic, and is never replaced by a default."""

_Operand = Value | tuple[Value, ...] | Unknown


@dataclass(frozen=True, slots=True)
class Condition:
    """A parsed expression of fact names, literals, comparisons, and / or / not."""

    text: str
    tree: ast.expr
    names: tuple[str, ...]
    """Facts that the condition uses, in order of appearance."""

    @staticmethod
    def parse(text: str, vocabulary: Mapping[str, Kind], where: str) -> "Condition":
        """Parse an expression. An unknown fact name or an unsupported expression raises an error."""
        try:
            tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError) as error:
            raise CatalogError(f"{where}: '{text}' is not a condition: {error}") from None
        checker = _Checker(vocabulary, where)
        checker.condition(tree)
        return Condition(text, tree, tuple(dict.fromkeys(checker.names)))

    def holds(self, facts: Facts) -> Truth:
        """Evaluate the condition. Return None if unknown facts could change the result."""
        return _truth(self.tree, facts)

    def missing(self, facts: Facts) -> tuple[str, ...]:
        """Return the names of the unknown facts that the condition uses."""
        return tuple(name for name in self.names if isinstance(_fact(name, facts), Unknown))


def fact_kind(name: str, vocabulary: Mapping[str, Kind]) -> Kind | None:
    """Return the kind of a fact. The value of an environment variable is always text."""
    return Kind.TEXT if name.startswith(ENVIRONMENT) else vocabulary.get(name)


class _Checker:
    """Checker that rejects, at load time, expressions that could not be evaluated."""

    def __init__(self, vocabulary: Mapping[str, Kind], where: str) -> None:
        self.vocabulary = vocabulary
        self.where = where
        self.names: list[str] = []

    def condition(self, node: ast.expr) -> None:
        match node:
            case ast.BoolOp(values=values):
                for value in values:
                    self.condition(value)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self.condition(operand)
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                self.comparison(left, operator, right)
            case ast.Name() | ast.Attribute():
                if self.operand(node) is not Kind.FLAG:
                    raise self.error(node, "only a yes/no fact may be a condition by itself")
            case _:
                raise self.error(node, "this expression is not allowed in a condition")

    def comparison(self, left: ast.expr, operator: ast.cmpop, right: ast.expr) -> None:
        asked, held = self.operand(left), self.operand(right)
        if isinstance(operator, ast.In | ast.NotIn):
            fits = held in {Kind.TEXTS, "tuple"}
        elif isinstance(operator, ast.Eq | ast.NotEq):
            fits = asked is held or {asked, held} == {Kind.RELEASE, Kind.TEXT}
        else:
            fits = asked is held is Kind.NUMBER or {asked, held} == {Kind.RELEASE, Kind.TEXT}
        if not fits:
            raise self.error(left, f"a {asked} is compared with a {held}")

    def operand(self, node: ast.expr) -> "Kind | str":
        match node:
            case ast.Constant(value=bool()):
                return Kind.FLAG
            case ast.Constant(value=int() | float()):
                return Kind.NUMBER
            case ast.Constant(value=str()):
                return Kind.TEXT
            case ast.Tuple(elts=elements):
                if not all(isinstance(element, ast.Constant) for element in elements):
                    raise self.error(node, "a list may contain only literals")
                return "tuple"
            case ast.BinOp(op=ast.Mod() | ast.Div(), left=left, right=right):
                if self.operand(left) is Kind.NUMBER and self.operand(right) is Kind.NUMBER:
                    return Kind.NUMBER
                raise self.error(node, "only numbers can be divided")
            case ast.Name() | ast.Attribute():
                name = _dotted_name(node)
                kind = fact_kind(name, self.vocabulary)
                if kind is None:
                    raise self.error(node, f"no fact is called {name}")
                self.names.append(name)
                return kind
            case _:
                raise self.error(node, "this expression is not allowed in a condition")

    def error(self, node: ast.expr, problem: str) -> CatalogError:
        return CatalogError(f"{self.where}: `{ast.unparse(node)}`: {problem}")


def _dotted_name(node: ast.expr) -> str:
    """Return the dotted name that a syntax node stands for, such as `model.attention`."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted_name(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ast.unparse(node)


def _fact(name: str, facts: Facts) -> Value | Unknown:
    return facts[name] if name in facts else Unknown(f"{name} is not stated")


def _truth(node: ast.expr, facts: Facts) -> Truth:
    match node:
        case ast.BoolOp(op=ast.And(), values=values):
            return _all([_truth(value, facts) for value in values])
        case ast.BoolOp(values=values):
            return _not(_all([_not(_truth(value, facts)) for value in values]))
        case ast.UnaryOp(operand=operand):
            return _not(_truth(operand, facts))
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            return _compare(_operand(left, facts), operator, _operand(right, facts))
        case _:
            value = _operand(node, facts)
            return value if isinstance(value, bool) else None


def _all(truths: list[Truth]) -> Truth:
    if False in truths:
        return False
    return None if None in truths else True


def _not(truth: Truth) -> Truth:
    return None if truth is None else not truth


def _operand(node: ast.expr, facts: Facts) -> _Operand:
    match node:
        case ast.Constant(value=bool() | int() | float() | str() as value):
            return value
        case ast.Tuple(elts=elements):
            return tuple(element.value for element in elements if isinstance(element, ast.Constant))  # type: ignore[misc] # checked at parse time
        case ast.BinOp(op=operator, left=left, right=right):
            return _divide(operator, _operand(left, facts), _operand(right, facts))
        case _:
            return _fact(_dotted_name(node), facts)


def _divide(operator: ast.operator, left: _Operand, right: _Operand) -> _Operand:
    if isinstance(left, Unknown):
        return left
    if not isinstance(left, int | float) or not isinstance(right, int | float) or not right:
        return right if isinstance(right, Unknown) else Unknown("division by zero")
    return left % right if isinstance(operator, ast.Mod) else left / right


_ORDERED: Final[Mapping[type[ast.cmpop], Callable[[float | Release, float | Release], bool]]] = {
    ast.Lt: lambda left, right: left < right,  # type: ignore[operator] # both sides are of one kind, checked at parse time
    ast.LtE: lambda left, right: left <= right,  # type: ignore[operator]
    ast.Gt: lambda left, right: left > right,  # type: ignore[operator]
    ast.GtE: lambda left, right: left >= right,  # type: ignore[operator]
}


def _compare(left: _Operand, operator: ast.cmpop, right: _Operand) -> Truth:
    if isinstance(left, Unknown) or isinstance(right, Unknown):
        return None
    if isinstance(operator, ast.In | ast.NotIn):
        inside = isinstance(right, tuple | frozenset) and left in right
        return inside if isinstance(operator, ast.In) else not inside
    left, right = _same_kind(left, right), _same_kind(right, left)
    if isinstance(operator, ast.Eq | ast.NotEq):
        return (left == right) is isinstance(operator, ast.Eq)
    return _ORDERED[type(operator)](left, right)  # type: ignore[arg-type] # as above


def _same_kind(value: Value | tuple[Value, ...], other: Value | tuple[Value, ...]) -> Value | tuple[Value, ...]:
    """Convert a literal to a release if it is compared with a release."""
    return Release(value) if isinstance(value, str) and isinstance(other, Release) else value
