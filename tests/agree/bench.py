"""Runs the comparisons in processes, counts them by kind and holds the counts against those recorded."""

import json
import os
import re
import shutil
import time
import tomllib
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from agree.comparison import Comparison
from agree.doors import FOLDER

HERE: Final = Path(__file__).parent
COUNTS: Final = HERE / "counts.toml"
_MADE: Final = FOLDER / "made"
LIMITS: Final[Mapping[str, Mapping[str, object]]] = tomllib.loads((HERE / "kinds.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Job:
    """Comparisons that one process makes, because they share answers."""

    name: str
    compare: Callable[..., Iterable[Comparison]]
    given: tuple[object, ...]

    @property
    def kept(self) -> Path:
        """File of the comparisons."""
        return _MADE / f"{re.sub(r'[^a-z0-9]+', '-', self.name.lower())}.json"

    def read(self) -> list[Comparison]:
        """Return the comparisons that were kept; none if the job has not run."""
        if not self.kept.is_file():
            return []
        kept = json.loads(self.kept.read_text(encoding="utf-8"))
        return [Comparison(**{**one, "replay": tuple(one["replay"])}) for one in kept]

    def run(self) -> list[Comparison]:
        """Return the comparisons; a door that breaks ends them with one more."""
        made: list[Comparison] = []
        try:
            made.extend(self.compare(*self.given))
        except Exception as broken:  # noqa: BLE001 - a bug of a door is a result of the bench
            said = f"{self.name}: {type(broken).__name__}: {broken}"[:200]
            where = traceback.extract_tb(broken.__traceback__)[-1]
            made.append(Comparison("a door breaks", 1.0, f"{said} ({Path(where.filename).name}:{where.lineno})", ()))
        return made


@dataclass(frozen=True)
class Kind:
    """The comparisons of one kind."""

    name: str
    asked: int
    disagreements: int
    worst: Comparison | None
    """The disagreement with the largest gap; the first of several."""


@dataclass(frozen=True)
class Recorded:
    """The counts of one size of the bench."""

    jobs: int = 0
    """Number of jobs that were run, from the first one; 0 if nothing is recorded."""
    kinds: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


def begin() -> None:
    """Give way to other work on the machine."""
    os.nice(5)


def clear(*, resume: bool) -> None:
    """Forget the answers of earlier runs, unless one that was stopped is resumed. Answers stay in the folder."""
    if not resume:
        shutil.rmtree(FOLDER, ignore_errors=True)
    _MADE.mkdir(parents=True, exist_ok=True)
    os.environ["XDG_CACHE_HOME"] = str((FOLDER / "cache").resolve())
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def run(jobs: Sequence[Job], processes: int, tell: Callable[[str], None]) -> list[Comparison]:
    """Return the comparisons of all jobs in their order. Each is kept when it ends, so that a run can be resumed."""
    due = [job for job in jobs if not job.kept.is_file()]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=begin) as pool:
        for number, done in enumerate(as_completed([pool.submit(_keep, job) for job in due]), 1):
            tell(f"{number} of {len(due)}: {done.result()}")
    return [comparison for job in jobs for comparison in job.read()]


def _keep(job: Job) -> str:
    begun_s = time.process_time()
    text = json.dumps([asdict(comparison) for comparison in job.run()], indent=1)
    job.kept.write_text(text, encoding="utf-8")
    return f"{job.name}, {time.process_time() - begun_s:.1f} s"


def kinds_of(made: Sequence[Comparison]) -> list[Kind]:
    """Count comparisons by kind, in the order of `kinds.toml`."""
    by_kind: dict[str, list[Comparison]] = defaultdict(list)
    for one in made:
        by_kind[one.kind].append(one)
    if unknown := by_kind.keys() - LIMITS.keys():
        raise KeyError(f"kinds.toml has no limit for {sorted(unknown)}")
    return [_kind(name, by_kind[name]) for name in LIMITS if name in by_kind]


def _kind(name: str, made: Sequence[Comparison]) -> Kind:
    limit = LIMITS[name]["limit"]
    if not isinstance(limit, int | float):
        raise TypeError(f"the limit of '{name}' in kinds.toml is no number")
    against = [one for one in made if one.gap > limit]
    worst = max(against, key=lambda one: one.gap, default=None)
    return Kind(name=name, asked=len(made), disagreements=len(against), worst=worst)


def table(kinds: Sequence[Kind]) -> Iterator[str]:
    """Yield a line per kind, and the worst case with the commands that replay it."""
    for kind in kinds:
        limit, unit = LIMITS[kind.name]["limit"], LIMITS[kind.name]["unit"]
        yield f"{kind.disagreements:5} of {kind.asked:<5} {kind.name}  (limit {limit:g} {unit})"
        if kind.worst is not None:
            yield f"      worst {kind.worst.gap:.3g}: {kind.worst.told}"
            yield from (f"        $ {command}" for command in kind.worst.replay)


def recorded(size: str) -> Recorded:
    """Return what is recorded of a size of the bench; nothing before its first recording."""
    if not COUNTS.is_file():
        return Recorded()
    return Recorded(**tomllib.loads(COUNTS.read_text(encoding="utf-8")).get(size, {}))


def grown(kinds: Sequence[Kind], before: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return a line for every kind that disagrees more than recorded, is asked less, or is not recorded."""
    lines = []
    for kind in kinds:
        known = before.get(kind.name)
        if known is None:
            lines.append(f"{kind.name}: not recorded; run with --record")
        elif kind.disagreements > known["disagreements"]:
            lines.append(f"{kind.name}: {kind.disagreements} disagreements, recorded {known['disagreements']}")
        elif kind.asked < known["asked"] and kind.disagreements == known["disagreements"] > 0:
            lines.append(f"{kind.name}: asked {kind.asked} times, recorded {known['asked']}")
    missing = before.keys() - {kind.name for kind in kinds}
    return lines + [f"{name}: no longer asked" for name in sorted(missing)]


def write_counts(size: str, kinds: Sequence[Kind], jobs: int) -> None:
    """Record the counts of a size; those of other sizes stay."""
    sizes = {name: recorded(name) for name in ("full", "short")}
    counts = {kind.name: {"asked": kind.asked, "disagreements": kind.disagreements} for kind in kinds}
    sizes[size] = Recorded(jobs=jobs, kinds=counts)
    lines = ["# Disagreements of today by kind, written by `make agree`. They may only fall; limits are in kinds.toml."]
    for name, kept in sizes.items():
        lines += ["", f"[{name}]", f"jobs = {kept.jobs}", "", f"[{name}.kinds]"]
        lines += [
            f'"{kind}" = {{ asked = {count["asked"]}, disagreements = {count["disagreements"]} }}'
            for kind, count in kept.kinds.items()
        ]
    COUNTS.write_text("\n".join(lines) + "\n", encoding="utf-8")
