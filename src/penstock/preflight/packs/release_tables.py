"""The names that one release of an engine accepts."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseTables:
    """Flags, values, variables, architectures and defaults of one release."""

    flags: frozenset[str]
    """Long flags without dashes, such as `tensor-parallel-size`. Negated switches are listed in `negations`."""
    negations: frozenset[str] = frozenset()
    """Forms of negation: `no-` for `--no-x`, `inverse` for `--disable-x` as the negation of `--enable-x`."""
    variables: frozenset[str] = frozenset()
    choices: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Values of the flags that accept a list of values. A flag without a known list is absent."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """Kinds of values (switch, whole, number) of the flags whose kind the source code states."""
    architectures: frozenset[str] = frozenset()
    defaults: Mapping[str, float] = field(default_factory=dict)
    """Default values on which memory depends."""


def texts_of(node: ast.AST | None, named: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return the texts of a list, a tuple, a set, a Literal, a named list, or a sum of these, or no texts."""
    found, open_nodes = set[str](), [node]
    while open_nodes:
        match open_nodes.pop():
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
                open_nodes += items
            case ast.Starred(value=value) | ast.Subscript(value=ast.Name(id="Literal"), slice=value):
                open_nodes.append(value)
            case ast.BinOp(op=ast.Add(), left=left, right=right):
                open_nodes += (left, right)
            case ast.Name(id=name):
                found |= named.get(name, frozenset())
            case ast.Constant(value=str() as text):
                found.add(text)
    return frozenset(found)


def assignment(node: ast.AST) -> tuple[str, ast.expr | None] | None:
    """Return the name and the value that a statement assigns, or None."""
    match node:
        case (
            ast.Assign(targets=[ast.Name(id=name)], value=value) | ast.AnnAssign(target=ast.Name(id=name), value=value)
        ):
            return name, value
    return None


def named_lists(tree: ast.Module) -> dict[str, frozenset[str]]:
    """Return the module's own lists of texts by name, in the order of their definition."""
    found: dict[str, frozenset[str]] = {}
    for node in tree.body:
        if (named := assignment(node)) is not None:
            found[named[0]] = texts_of(named[1], found)
    return found


def dict_keys(tree: ast.Module, name: str) -> frozenset[str]:
    """Return the keys of a dictionary that is written out under a name, in the module or in a class of it."""
    for node in ast.walk(tree):
        if (named := assignment(node)) is not None and named[0] == name and isinstance(named[1], ast.Dict):
            keys = (key.value for key in named[1].keys if isinstance(key, ast.Constant))
            return frozenset(key for key in keys if isinstance(key, str))
    return frozenset()


def added_arguments(tree: ast.AST) -> Iterator[tuple[list[str], dict[str, ast.expr]]]:
    """Yield the long flags and the keywords of every call of `add_argument`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            words = [word.value for word in node.args if isinstance(word, ast.Constant)]
            names = [word[2:].replace("_", "-") for word in words if isinstance(word, str) and word.startswith("--")]
            yield names, {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}


def number_default(tree: ast.AST, name: str) -> float | None:
    """Return the default of a field or constant that is a number, or that is `Field(default=number)`."""
    for node in ast.walk(tree):
        if (named := assignment(node)) is None or named[0] != name:
            continue
        value = named[1]
        if isinstance(value, ast.Call):
            value = next((keyword.value for keyword in value.keywords if keyword.arg == "default"), None)
        match value:
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                return float(number)
    return None
