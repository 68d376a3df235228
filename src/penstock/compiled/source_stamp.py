"""Computes the stamp of the compiled code: a digest of the parsed source from which the library is built.

The stamp covers marked functions, tables, and the constants and imports that these use. Comments, docstrings and
functions that only Python runs do not change the stamp.
"""

import ast
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

PACKAGES: Final = ("penstock.routing", "penstock.routing.baselines", "penstock.simulation", "penstock.simulation.loop")
"""The packages with marked functions."""
_BUILDER: Final = "penstock.compiled.builder"
_MARKS: Final = {"cold", "compiled", "exported", "exported_short", "policy"}


def source_files(*packages: str) -> list[Traversable]:
    """Return the source files of packages, in a fixed order."""
    return [
        item
        for package in packages
        for item in sorted(files(package).iterdir(), key=lambda item: item.name)
        if item.name.endswith(".py")
    ]


def raw_digest() -> str:
    """Return a digest of the bytes of all source files.

    The computation takes a millisecond, and any edit changes the digest.
    """
    digest = hashlib.sha256()
    for item in source_files(*PACKAGES, _BUILDER):
        digest.update(item.read_bytes())
    return digest.hexdigest()[:16]


@cache
def stamp() -> str:
    """Return the stamp of the source files, which are read only at the first call."""
    texts = [[item.read_text(encoding="utf-8") for item in source_files(*names)] for names in (PACKAGES, (_BUILDER,))]
    return stamp_of(*texts)


def stamp_of(sources: Iterable[str], builder: Iterable[str] = ()) -> str:
    """Return the stamp of source texts. The stamp covers the compiled parts of `sources`, and all of `builder`."""
    nodes = [node for source in sources for node in _compiled_nodes(ast.parse(source))]
    nodes += [node for source in builder for node in ast.parse(source).body if not _is_text(node)]
    digest = hashlib.sha256()
    for node in nodes:
        digest.update(ast.dump(_without_docstrings(node)).encode())
    return digest.hexdigest()[:16]


def _compiled_nodes(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield marked functions and tables, and the statements that define the names used in these."""
    nodes = [node for node in tree.body if _is_marked(node)]
    names = _names_in(nodes)
    while True:
        more = [node for node in tree.body if node not in nodes and names & set(_defined_by(node))]
        if not more:
            break
        nodes += more
        names |= _names_in(more)
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            node.names = [alias for alias in node.names if (alias.asname or alias.name.partition(".")[0]) in names]
        if node in nodes:
            yield node


def _is_marked(node: ast.stmt) -> bool:
    if isinstance(node, ast.FunctionDef):
        return bool(_MARKS & {item.id for item in node.decorator_list if isinstance(item, ast.Name)})
    return isinstance(node, ast.ClassDef) and any(
        isinstance(base, ast.Name) and base.id == "NamedTuple" for base in node.bases
    )


def _names_in(nodes: Iterable[ast.stmt]) -> set[str]:
    return {item.id for node in nodes for item in ast.walk(node) if isinstance(item, ast.Name)}


def _defined_by(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (item.id for target in targets for item in ast.walk(target) if isinstance(item, ast.Name))
    elif isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name


def _without_docstrings(node: ast.stmt) -> ast.stmt:
    for inner in ast.walk(node):
        body = getattr(inner, "body", None)
        if isinstance(inner, ast.FunctionDef | ast.ClassDef) and isinstance(body, list):
            inner.body = [item for item in body if not _is_text(item)] or [ast.Pass()]
    return node


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
