"""Where the loop's machine code is kept, and what happens where it cannot be."""

import ast
from importlib.resources import files

import pytest

from penstock.gateway.picker.compiled_policy import _PARTS
from penstock.simulation.loop.compiler import _ROUTING_PARTS, entry, keeps, on_disk


def doubled(number: int) -> int:
    return 2 * number


def test_an_entry_runs_where_nothing_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hardened container: the package is read-only and there is no home."""

    def refuse(_: object) -> None:
        raise PermissionError("read-only file system")

    monkeypatch.setattr("numba.core.caching._CacheLocator.ensure_cache_path", refuse)
    compiled = entry(doubled)
    assert not keeps(compiled)
    assert not on_disk(compiled)
    assert compiled(21) == 42
    assert on_disk(compiled)


def test_an_entry_is_kept_where_its_folder_can_be_written() -> None:
    compiled = entry(doubled)
    assert keeps(compiled)
    assert compiled(4) == 8


@pytest.mark.parametrize("parts", [_ROUTING_PARTS, _PARTS])
def test_all_that_is_compiled_of_routing_counts_as_source(parts: tuple[str, ...]) -> None:
    """Machine code of an older policy would decide, and nobody would see it."""
    folder = files("penstock.routing")
    for name in parts:
        tree = ast.parse(folder.joinpath(f"{name}.py").read_text(encoding="utf-8"))
        asked = (node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
        called = {
            module.removeprefix("penstock.routing.") for module in asked if module.startswith("penstock.routing.")
        }
        assert called <= set(parts), f"{name} calls {called - set(parts)}"
