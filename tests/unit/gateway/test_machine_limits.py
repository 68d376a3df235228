"""Processors and memory are those of the pod, not of the machine."""

from pathlib import Path

import pytest

from penstock.gateway.machine_limits import usable_bytes, usable_processors


def group(folder: Path, **limits: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in limits.items():
        (folder / name.replace("_", ".", 1)).write_text(text)
    return folder


@pytest.mark.parametrize(("quota", "expected"), [("100000 100000", 1), ("150000 100000", 2), ("20000 100000", 1)])
def test_a_quota_limits_the_processors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, expected: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(128)))
    root = group(tmp_path / "cgroup", cpu_max=quota)
    assert usable_processors(root, tmp_path / "none") == expected


def test_the_affinity_limits_the_processors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 5, 6})
    root = group(tmp_path / "cgroup", cpu_max="max 100000")
    assert usable_processors(root, tmp_path / "none") == 3


def test_the_smallest_group_above_counts(tmp_path: Path) -> None:
    root = group(tmp_path / "cgroup", memory_max="max")
    group(root / "system", memory_max="900000")
    group(root / "system" / "gateway", memory_max="1000000", cpu_max="max 100000")
    (own := tmp_path / "own").write_text("0::/system/gateway\n")
    assert usable_bytes(root, own) == 900_000
    assert usable_bytes(tmp_path / "nothing", own) > 2**20
