"""Says whether the lines of source code that rules cite still stand in a release."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2s
from importlib.resources import files
from typing import Final, Literal

from penstock.fleet.release import Release
from penstock.preflight.packs.release_source import ReleaseSource
from penstock.preflight.rules.rule import Rule

Standing = Literal["holds", "moved", "gone"]
_ORDER: Final[tuple[Standing, ...]] = ("holds", "moved", "gone")
_REFERENCE: Final = re.compile(r"([\w-]+)@[\w.-]+:([\w./-]+?)(?:#L\d+(?:-L\d+)?)?")
_PREFIX: Final = {"sglang": "python/"}
"""Folder of a repository that holds its package."""


def line_marks(text: str) -> list[str]:
    """Return a short hash of every line that is not blank. Indentation and the blanks around a line do not count."""
    lines = (line.strip() for line in text.splitlines())
    return [blake2s(line.encode(), digest_size=5).hexdigest() for line in lines if line]


def shipped_marks() -> Mapping[str, Sequence[str]]:
    """Return the hashes of the lines that the shipped rules cite, by reference (tools/build_cited_lines.py)."""
    text = (files("penstock.preflight") / "data" / "cited_lines.json").read_text(encoding="utf-8")
    marks: dict[str, list[str]] = json.loads(text)
    return marks


def standings(
    rules: Iterable[Rule], engine: str, release: Release, source: ReleaseSource, marks: Mapping[str, Sequence[str]]
) -> dict[str, Standing]:
    """Return whether the citations of every rule for this release still stand: the worst of a rule's citations.

    Rules for other engines or releases, and rules that cite nothing of the package, are left out. A citation holds if
    its lines are in the same file, in the same order, wherever in the file. It moved if they are in another file of
    the same name, or if at least half of them are left in the file.
    """
    found: dict[str, Standing] = {}
    for rule in rules:
        if rule.engine != engine or (rule.versions is not None and not rule.versions.holds(release)):
            continue
        each = [
            standing
            for reference in rule.sources
            if (standing := _standing(reference.text, engine, source, marks)) is not None
        ]
        if each:
            found[rule.id] = max(each, key=_ORDER.index)
    return found


def _standing(text: str, engine: str, source: ReleaseSource, marks: Mapping[str, Sequence[str]]) -> Standing | None:
    match = _REFERENCE.fullmatch(text)
    if match is None or match[1] != engine or not match[2].endswith(".py"):
        return None
    path = match[2].removeprefix(_PREFIX.get(engine, ""))
    if not path.startswith(f"{engine}/"):
        return None
    cited, here = marks.get(text), source.read(path)
    if cited is None:
        return "holds" if here else "gone"
    lines = line_marks(here)
    if _contains(lines, cited):
        return "holds"
    kept = sum(mark in set(lines) for mark in cited)
    name = path.rpartition("/")[2]
    others = (other for other in source.paths if other != path and other.rpartition("/")[2] == name)
    if 2 * kept >= len(cited) or any(_contains(line_marks(source.read(other)), cited) for other in others):
        return "moved"
    return "gone"


def _contains(lines: Sequence[str], cited: Sequence[str]) -> bool:
    width = len(cited)
    return any(list(lines[at : at + width]) == list(cited) for at in range(len(lines) - width + 1))
