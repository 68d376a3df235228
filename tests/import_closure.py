"""Which files a test stands on: what it imports, read without running it, and the data beside those modules."""

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("src", "tests", "tools")
"""Folders from which modules are imported."""
ALWAYS = ("constraints/dev.txt", "tests/conftest.py", "tests/import_closure.py")
FRONT_DOOR, WHOLE_API = "penstock", "penstock.api."
"""The package imports its API only when a name of it is used."""
_NOT_DATA = {"__pycache__", "shipped"}


def closure_digest(test: Path, more: Iterable[str] = ()) -> str:
    """Return a digest of every file that a test stands on, and of files and folders that it says it reads."""
    digest = sha256()
    for path in sorted({*closure(test), *(ROOT / name for name in ALWAYS), *_named(more)}):
        digest.update(f"{path.relative_to(ROOT) if path.is_relative_to(ROOT) else path.name}\0".encode())
        digest.update(sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def closure(test: Path) -> set[Path]:
    """Return a test's file, the modules that it imports directly or through others, and the data beside them."""
    reached, left = {test}, [test]
    while left:
        for path in _files_of(_imported(left.pop())):
            if path not in reached:
                reached.add(path)
                left.append(path)
    return reached | {data for folder in {path.parent for path in reached} for data in _data_in(folder)}


def _named(names: Iterable[str]) -> Iterator[Path]:
    """Return the files with these names, those in the folders with these names, and what named programs stand on."""
    for name in names:
        place = (ROOT / name).resolve()
        if place.suffix == ".py":
            yield from closure(place)
        inside = place.rglob("*") if place.is_dir() else (place,)
        yield from (path for path in inside if path.is_file() and not _NOT_DATA & set(path.parts))


@cache
def _data_in(folder: Path) -> frozenset[Path]:
    """Return the files of a package that are no Python; its packages are reached on their own."""
    if not folder.is_relative_to(ROOT / "src"):
        return frozenset()
    found: set[Path] = set()
    for path in folder.iterdir():
        if path.is_dir() and path.name not in _NOT_DATA and not (path / "__init__.py").is_file():
            found |= _data_in(path)
        elif path.is_file() and path.suffix != ".py":
            found.add(path)
    return frozenset(found)


@cache
def _imported(path: Path) -> frozenset[str]:
    """Return the names that a module imports, and those of our modules that it has as text."""
    if path == ROOT / "src" / FRONT_DOOR / "__init__.py":
        return frozenset()
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == FRONT_DOOR:
            names |= {f"{FRONT_DOOR}.{node.attr}", _of_api(node.attr)}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(filter(None, (_package(path, node.level), node.module)))
            names |= {base} if base != FRONT_DOOR else {_of_api(alias.name) for alias in node.names}
            names |= {f"{base}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("penstock."):
            # A module that is imported by its name, or the start of such names.
            names.add(node.value)
    return frozenset(names - {"", "penstock."})


def _of_api(word: str) -> str:
    """Return the module behind a name of the front door; of a name that is no function, the whole API."""
    if word.startswith("__") and word != "__all__":
        return ""
    name = f"{WHOLE_API}{word}"
    return name if _module(name) or _module(f"{FRONT_DOOR}.{word}") else WHOLE_API


def _package(path: Path, level: int) -> str:
    """Return the package from which so many dots import."""
    if not level:
        return ""
    folder = path.parents[level - 1]
    source = next(ROOT / name for name in SOURCES if folder.is_relative_to(ROOT / name))
    return ".".join(folder.relative_to(source).parts)


def _files_of(names: Iterable[str]) -> Iterator[Path]:
    """Return our files behind imported names: modules, and packages on the way to them."""
    for name in names:
        parts = name.rstrip(".").split(".")
        for length in range(1, len(parts) + 1):
            yield from _module(".".join(parts[:length]))
        if name.endswith("."):
            yield from _below(name[:-1])


@cache
def _module(name: str) -> tuple[Path, ...]:
    for source in SOURCES:
        place = ROOT / source / name.replace(".", "/")
        for path in (place.with_suffix(".py"), place / "__init__.py"):
            if path.is_file():
                return (path,)
    return ()


@cache
def _below(name: str) -> tuple[Path, ...]:
    return tuple(sorted((ROOT / "src" / name.replace(".", "/")).rglob("*.py")))
