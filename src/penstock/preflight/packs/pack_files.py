"""Loads data packs and rules from directories, and adds them to the shipped knowledge."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final

from penstock.errors import CatalogError, UsageError
from penstock.fleet.release import Release
from penstock.preflight.packs.pack import Pack, read_pack
from penstock.preflight.rules._rule_files import load_knowledge, parse_rules
from penstock.preflight.rules.condition import Facts, Unknown
from penstock.preflight.rules.history import EngineFlags, History
from penstock.preflight.rules.knowledge import Knowledge
from penstock.preflight.rules.rule import Rule

_MAX_FILES: Final = 2_000
_MAX_RULE_BYTES: Final = 2**20
_ENTRY: Final = re.compile(r"^\s*\[\[rule\]\]", re.MULTILINE)


def user_directory() -> Path:
    """Return the directory of the user's packs and rules: $PENSTOCK_PACKS, or penstock/packs in the data directory."""
    if stated := os.environ.get("PENSTOCK_PACKS"):
        return Path(stated)
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "penstock" / "packs"


def rule_directories(stated: Path | None) -> tuple[Path, ...]:
    """Return the user's directory if there is one, and then the directory that an option names."""
    own = user_directory()
    return (*((own,) if own.is_dir() else ()), *(() if stated is None else (stated,)))


@cache
def shipped_packs() -> tuple[Pack, ...]:
    """Return the packs that come with this version."""
    folder = files("penstock.preflight") / "data" / "packs"
    return tuple(read_pack(file.read_bytes(), file.name) for file in folder.iterdir() if file.name.endswith(".json"))


def packs_in(folder: Path) -> tuple[Pack, ...]:
    """Read the packs (`*.json`) of a directory."""
    return tuple(read_pack(_bytes(file), str(file)) for file in _files_with_suffix(folder, ".json"))


def rules_in(folder: Path) -> tuple[Rule, ...]:
    """Read the rules (`*.toml`) of a directory. The test cases inside each rule are checked."""
    found: list[Rule] = []
    for file in _files_with_suffix(folder, ".toml"):
        data = _bytes(file)
        if len(data) > _MAX_RULE_BYTES:
            raise CatalogError(f"{file} has {len(data):,} bytes; a rule file has at most {_MAX_RULE_BYTES:,}")
        found += user_rules(data.decode("utf-8", errors="replace"), str(file))
    return tuple(found)


def user_rules(text: str, name: str) -> tuple[Rule, ...]:
    """Parse a rule file and check the test cases of its rules. An error names the line at which the rule begins."""
    stem = Path(name).stem
    try:
        rules = parse_rules(text, stem)
    except CatalogError as error:
        message = str(error).removeprefix(f"{stem}.toml").lstrip(": ")
        raise CatalogError(f"{name}{_line(text, message)}: {message}") from None
    except RecursionError:
        raise CatalogError(f"{name}: a condition is nested too deeply; write it flat") from None
    for number, rule in enumerate(rules):
        if problem := _failed_case(rule):
            raise CatalogError(f"{name}:{_start(text, number)}: {rule.id}: {problem}")
    return rules


def _failed_case(rule: Rule) -> str | None:
    if rule.holds(_facts(rule.fires)) is not True:
        return "the rule does not apply in its own test case `fires`; correct the case or the condition"
    if rule.holds(_facts({**rule.fires, **rule.quiet})) is True:
        return "the rule still applies in its own test case `quiet`; correct the case or the condition"
    return None


def _facts(case: Mapping[str, object]) -> Facts:
    return {**dict.fromkeys(("engine", "version"), Unknown("not in the case")), **case}  # type: ignore[dict-item] # values of facts


def _line(text: str, message: str) -> str:
    """Return the line of the rule that an error message is about, as `:12`, or nothing."""
    if named := re.search(r"\brule[.\[](\d{1,4})", message):
        return f":{_start(text, int(named[1]))}"
    begins = message.partition(":")[0].strip()
    at = text.find(f'"{begins}"') if begins else -1
    return f":{text.count(chr(10), 0, at) + 1}" if at >= 0 else ""


def _start(text: str, number: int) -> int:
    """Return the line on which the entry with a number begins."""
    places = [found.start() for found in _ENTRY.finditer(text)]
    return 1 if number >= len(places) else text.count("\n", 0, places[number]) + 1


def _files_with_suffix(folder: Path, suffix: str) -> list[Path]:
    try:
        found = sorted(file for file in folder.iterdir() if file.suffix == suffix and file.is_file())
    except OSError as error:
        raise UsageError(f"{folder} cannot be listed ({error.strerror}); name a directory of packs and rules") from None
    if len(found) > _MAX_FILES:
        raise UsageError(
            f"{folder} has {len(found):,} files; a directory of packs and rules has at most {_MAX_FILES:,}"
        )
    return found


def _bytes(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(8 * 2**20)
    except OSError as error:
        raise CatalogError(f"{file} cannot be read ({error.strerror})") from None


def load_extended(folders: Sequence[Path] = ()) -> Knowledge:
    """Return the shipped knowledge with the shipped packs, and with the packs and rules of directories.

    A later directory replaces the packs and rules of an earlier one that have the same release or id.
    """
    packs = {(pack.engine, pack.release): pack for pack in shipped_packs()}
    rules = {rule.id: rule for rule in load_knowledge().rules}
    for folder in folders:
        packs |= {(pack.engine, pack.release): pack for pack in packs_in(folder)}
        rules |= {rule.id: rule for rule in rules_in(folder)}
    return with_packs(replace(load_knowledge(), rules=tuple(rules.values())), packs.values())


def with_packs(knowledge: Knowledge, packs: Iterable[Pack]) -> Knowledge:
    """Return the knowledge with releases that were read as a whole."""
    ordered = sorted(packs, key=lambda pack: pack.release.key)
    flags, choices = dict(knowledge.flags), {engine: dict(tables) for engine, tables in knowledge.choices.items()}
    kinds = {engine: dict(table) for engine, table in knowledge.kinds.items()}
    architectures = {name: dict(table) for name, table in knowledge.architectures.items()}
    released = {engine: list(names) for engine, names in knowledge.images["released"].items()}
    for pack in ordered:
        engine, release, tables = pack.engine, pack.release, pack.tables
        flags[engine] = _with_flags(flags[engine], pack)
        for flag, values in tables.choices.items():
            if flag in choices[engine]:
                choices[engine][flag] = choices[engine][flag].with_release(release, values)
        kinds[engine] = {**tables.kinds, **kinds[engine]}
        for architecture in tables.architectures:
            architectures[engine].setdefault(architecture, str(release))
        if Release(architectures[engine]["last_read"]) < release:
            architectures[engine]["last_read"] = str(release)
    for engine, published in released.items():
        # Every release that was read was published, so that it has an image.
        known = {Release(text) for text in published}
        published += [str(release) for release in flags[engine].flags.read if release not in known]
    return replace(
        knowledge,
        flags=flags,
        choices=choices,
        kinds=kinds,
        architectures=architectures,
        images={**knowledge.images, "released": released},
        standings={(pack.engine, pack.release): pack.rules for pack in ordered},
    )


def _with_flags(known: EngineFlags, pack: Pack) -> EngineFlags:
    tables, release = pack.tables, pack.release
    return EngineFlags(
        flags=known.flags.with_release(release, tables.flags),
        variables=known.variables and known.variables.with_release(release, tables.variables),
        negations=known.negations.with_release(release, tables.negations)
        if tables.negations or known.negations.entries
        else History(entries={}, read=known.negations.read),
    )
