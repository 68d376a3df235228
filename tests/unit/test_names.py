"""One word, one meaning: no class, file or package name is used for two things."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import penstock

ROOT = Path(penstock.__file__).parent
COMMAND_LAYERS: Final = ("cli/commands", "api", "report")
"""The layers of one command share its name: parse, call, render."""
VIEWS: Final = frozenset({"terminal", "document", "page", "chart"})
"""Each report package has the same views of its own result."""
EXCEPTIONS: Final = {
    "audit": "the package that judges claims, and the command that runs it",
    "catalog": "the package of shipped data, and the command that prints it",
    "guide": "the package that maps workloads, and the command that prints the map",
    "preflight": "the package that checks launches, and the command that runs it",
    "workload": "the package of requests, and the command that describes a trace",
    "fp8": "the package that scans FP8 weights, and the command that runs it",
    "picker": "the package of the endpoint picker, and its main module",
}


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(ROOT.rglob("*.py")):
        place = path.relative_to(ROOT)
        if path.name != "__init__.py":
            yield path.stem, place
        elif place.parent.parts:
            yield place.parent.name, place.parent


def is_layer_of_a_command(place: Path) -> bool:
    return place.parent.as_posix() in COMMAND_LAYERS


def is_view(place: Path) -> bool:
    return place.stem in VIEWS and place.parts[0] == "report" and len(place.parts) == 3


def test_no_public_class_name_is_defined_twice() -> None:
    defined: dict[str, list[str]] = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                defined[node.name].append(str(path.relative_to(ROOT)))
    twice = {name: places for name, places in defined.items() if len(places) > 1}
    assert not twice
    assert len(defined) > 100


def test_no_file_or_package_name_is_used_twice() -> None:
    places: dict[str, list[Path]] = defaultdict(list)
    for name, place in modules():
        if not is_view(place):
            places[name].append(place)
    twice = {
        name: [str(place) for place in found]
        for name, found in places.items()
        if len([place for place in found if not is_layer_of_a_command(place)]) > 1
        or (len(found) > 1 and name not in EXCEPTIONS and not all(map(is_layer_of_a_command, found)))
    }
    unexplained = {name: found for name, found in twice.items() if name not in EXCEPTIONS}
    assert not unexplained
    assert len(places) > 200


def test_every_exception_is_still_needed() -> None:
    names: dict[str, int] = defaultdict(int)
    for name, _ in modules():
        names[name] += 1
    assert {name for name in EXCEPTIONS if names[name] < 2} == set()
