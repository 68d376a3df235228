"""Where the loop's machine code is kept, and what happens where it cannot be."""

import pytest

from penstock.simulation.loop.compiled import entry, keeps, on_disk


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
