"""Finds how many processors and how much memory this process may use, by its affinity and control groups."""

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_ROOT: Final = Path("/sys/fs/cgroup")
_OWN: Final = Path("/proc/self/cgroup")


def usable_processors(root: Path = _ROOT, own: Path = _OWN) -> int:
    """Return the number of processors that this process may use, at least 1."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = [_ratio(*line.split()) for line in _limits(root, own, "cpu.max")]
    older = (_limits(root / "cpu", own, f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    quotas += [_ratio(quota, period) for quota, period in zip(*older, strict=False)]
    return max(1, math.ceil(min(count, *quotas))) if quotas else count


def usable_bytes(root: Path = _ROOT, own: Path = _OWN) -> int:
    """Return the bytes of memory that this process may use."""
    limits = [*_limits(root, own, "memory.max"), *_limits(root / "memory", own, "memory.limit_in_bytes")]
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *(int(limit) for limit in limits if limit.isdigit())])


def _limits(root: Path, own: Path, name: str) -> Iterator[str]:
    """Yield a limit of this process's control group and of the groups above it."""
    try:
        groups = [line.rpartition(":")[2].strip("/") for line in own.read_text(encoding="ascii").splitlines()]
    except OSError:
        groups = []
    folders = {folder for group in groups for folder in (root / group, *(root / group).parents)}
    for folder in sorted({root, *(one for one in folders if one.is_relative_to(root))}):
        try:
            yield (folder / name).read_text(encoding="ascii").strip()
        except OSError:
            continue


def _ratio(quota: str, period: str) -> float:
    return int(quota) / int(period) if quota.isdigit() else math.inf
