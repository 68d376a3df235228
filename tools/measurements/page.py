"""What is shipped by source and accelerator, and what did every filter drop? Tables tools/results/data-*.csv."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from measurements.build import Built
from measurements.filters import WHY
from measurements.ledger import Left
from penstock.catalog import load_accelerator, measurement_sources
from penstock.catalog._catalog_files import USES
from penstock.catalog.measurement import Measurement
from penstock.performance.calibration.measured_runs import described_runs, usable_runs
from penstock.performance.shipped.shipped_runs import model_of

_KINDS: tuple[tuple[str, Callable[[Measurement], bool]], ...] = (
    ("one engine, a closed loop", lambda row: row.scenario == "online" and not row.drafted),
    ("one engine that drafts", lambda row: row.scenario == "online" and bool(row.drafted)),
    ("disaggregated", lambda row: row.scenario == "disaggregated" and not row.drafted),
    ("disaggregated, drafting", lambda row: row.scenario == "disaggregated" and bool(row.drafted)),
    ("offline", lambda row: row.scenario in {"static_batch", "saturated"}),
    ("with a twin", lambda row: bool(row.twin)),
    ("with joules", lambda row: row.joules_per_output_token is not None),
)


def data_tables(built: Built) -> dict[str, str]:
    """Return the tables by name."""
    rows, left = built.rows, built.ledger.left
    evidence = [row for name, held in built.files.items() if _use(name) == "evidence" for row in held]
    return {
        "data-other-uses": _uses(built),
        "data-sources": _sources(built),
        "data-accelerators": _accelerators(rows),
        "data-filters": _filters(left),
        "data-faster-than-roofline": _quarantined(left),
        "data-not-learnt": _unlearnt(evidence),
    }


def _table(head: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    shown = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    shown += [f"| {' | '.join(_shown(cell) for cell in line)} |" for line in lines]
    return "\n".join(shown)


def _shown(cell: object) -> str:
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def _use(name: str) -> str:
    return USES.get(name, "evidence")


def _uses(built: Built) -> str:
    """List the files that no prediction is learnt from."""
    unused = sorted((_use(name), name) for name in built.files if _use(name) != "evidence")
    return _table(("file", "use", "rows"), ((f"`{name}`", use, len(built.files[name])) for use, name in unused))


def _sources(built: Built) -> str:
    lines = []
    for source in measurement_sources().values():
        by_file = {name: [row for row in held if row.source == source.id] for name, held in built.files.items()}
        held = [row for rows in by_file.values() for row in rows]
        if not held:
            continue
        days = sorted(row.date for row in held)
        models, parts = {row.model for row in held}, {row.accelerator for row in held}
        span = f"{days[0]} to {days[-1]}" if days[0] != days[-1] else str(days[0])
        files = ", ".join(f"`{name}`" for name, rows in by_file.items() if rows)
        lines.append((source.title, files, len(held), len(models), ", ".join(sorted(parts)), span))
    return _table(("source", "file", "rows", "models", "accelerators", "days"), lines)


def _accelerators(rows: Sequence[Measurement]) -> str:
    lines = []
    for part in sorted({row.accelerator for row in rows}):
        held = [row for row in rows if row.accelerator == part]
        engines = Counter(row.engine for row in held)
        listed = ", ".join(f"{name} {count:,}" for name, count in engines.most_common())
        lines.append((part, len(held), *(sum(map(keep, held)) for _, keep in _KINDS), listed))
    return _table(("accelerator", "rows", *(name for name, _ in _KINDS), "engines"), lines)


def _filters(left: Sequence[Left]) -> str:
    lines = []
    for name, why in WHY.items():
        dropped = [entry for entry in left if entry.filter == name]
        sources, parts = (Counter(getattr(entry, by) for entry in dropped) for by in ("source", "accelerator"))
        lines.append((f"`{name}`", len(dropped), why, _counted(sources), _counted(parts)))
    return _table(("filter", "rows", "why", "by source", "by accelerator"), lines)


def _counted(counts: Counter[str]) -> str:
    return ", ".join(
        f"{name} {count:,}" for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    )


def _unlearnt(rows: Sequence[Measurement]) -> str:
    """List the shipped rows that are not evidence, because they are faster than their own roofline."""
    found = [run for run in described_runs(usable_runs(rows), model_of, load_accelerator) if run.faster_than_roofline]
    kinds = Counter((run.row.scenario, run.row.accelerator, run.row.engine, run.row.model) for run in found)
    lines = [(len(found), "all"), *((count, " ".join(kind)) for kind, count in kinds.most_common())]
    return _table(("rows", "of"), lines)


def _quarantined(left: Sequence[Left]) -> str:
    head = ("row", "model", "setup", "users x lengths", "TPOT ms", "TTFT s", "of the roofline")
    lines = [f"| {entry.id} | {entry.detail} |" for entry in left if entry.filter == "faster_than_light"]
    return "\n".join([f"| {' | '.join(head)} |", "|" + "---|" * len(head), *lines])
