"""Machine code that comes with the package: used where it fits, and never missed where it does not."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from numba.core.caching import NullCache

from penstock.simulation.loop import shipped_code
from penstock.simulation.loop.compiler import cached_on_disk, entry, on_disk, sources


def tripled(number: int) -> int:
    return 3 * number


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(shipped_code, "folder", lambda: tmp_path)
    shipped_code.shipped_code.cache_clear()
    yield tmp_path
    shipped_code.shipped_code.cache_clear()


def fresh() -> Any:  # noqa: ANN401 - numba's dispatcher has no type
    """An entry no cache on disk knows: only the package can bring its code."""
    dispatcher: Any = entry(tripled)
    dispatcher._cache.behind = NullCache()  # noqa: SLF001 - there is no public way
    return dispatcher


def compiled_here(stamp: str) -> bytes:
    dispatcher = fresh()
    assert dispatcher(2) == 6
    dispatcher._cache.sources = stamp  # noqa: SLF001 - there is no public way
    return shipped_code.code_file([dispatcher])


def compiles(dispatcher: Any) -> bool:  # noqa: ANN401 - same
    """Whether calling it took compiling: numba counts calls that found their code and calls that did not."""
    assert dispatcher(5) == 15
    return bool(dispatcher.stats.cache_misses)


def test_code_of_these_sources_is_loaded_and_not_compiled(folder: Path) -> None:
    (folder / shipped_code.file_name()).write_bytes(compiled_here(sources()))
    shipped_code.shipped_code.cache_clear()
    found = fresh()
    assert on_disk(found)
    assert not compiles(found)


def test_one_file_holds_code_of_several_sources(folder: Path) -> None:
    loop, policy = fresh(), cast("Any", cached_on_disk(tripled, "a policy's sources"))
    policy._cache.behind = NullCache()  # noqa: SLF001 - an earlier run may have left its code on this disk
    assert loop(2) == policy(2) == 6
    (folder / shipped_code.file_name()).write_bytes(shipped_code.code_file([loop, policy]))
    shipped_code.shipped_code.cache_clear()
    assert on_disk(fresh())
    assert shipped_code.shipped_code("a policy's sources").keys() == shipped_code.shipped_code(sources()).keys()
    assert not shipped_code.shipped_code("others")


@pytest.mark.parametrize("damage", ["absent", "other sources", "cut short", "no pickle", "another function's"])
def test_code_that_does_not_fit_is_compiled_instead(folder: Path, damage: str) -> None:
    whole = compiled_here("other sources" if damage == "other sources" else sources())
    contents = {
        "other sources": whole,
        "cut short": whole[: len(whole) // 2],
        "no pickle": b"not a pickle",
        "another function's": pickle.dumps({sources(): {}}),
    }
    if damage in contents:
        (folder / shipped_code.file_name()).write_bytes(contents[damage])
    shipped_code.shipped_code.cache_clear()
    found = fresh()
    assert not on_disk(found)
    assert compiles(found)


def test_the_file_is_of_one_python_one_numba_and_one_processor() -> None:
    name = shipped_code.file_name()
    assert name.startswith("cp3")
    assert "numba" in name
    assert name.endswith(".pickle")
