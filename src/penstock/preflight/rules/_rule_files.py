"""Loads the rules and strictly parses them. Each category is one TOML file.

No other module of the package opens files.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from penstock.errors import CatalogError, PenstockError
from penstock.fleet.release import Release, ReleaseRange
from penstock.preflight.rules.condition import Condition, Kind, Value, fact_kind
from penstock.preflight.rules.fact_names import VOCABULARY
from penstock.preflight.rules.history import read_choices, read_engine_flags
from penstock.preflight.rules.knowledge import Knowledge
from penstock.preflight.rules.rule import Grounds, Reference, Rule, Severity
from penstock.reading.toml import parse_toml, strictly

_DATA = files("penstock.preflight") / "data"
_RULES = "rules/"
_KINDS = {name: fact.kind for name, fact in VOCABULARY.items()}
_Written = str | int | float | bool | list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """A rule as it is written in a rule file."""

    id: str
    severity: Severity
    confidence: Grounds
    when: str
    message: str
    fix: str
    sources: list[str]
    fires: dict[str, _Written]
    quiet: dict[str, _Written]
    engine: str | None = None
    versions: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """A rule file, which holds the rules of one category."""

    rule: list[_Entry]


@cache
def load_rules() -> tuple[Rule, ...]:
    """Return all shipped rules, sorted by category and then in the order of their file."""
    categories = sorted(name.removeprefix(_RULES) for name in _tables() if name.startswith(_RULES))
    rules = [rule for category in categories for rule in _rules(load_table(f"{_RULES}{category}"), category)]
    seen: set[str] = set()
    for rule in rules:
        if rule.id in seen:
            raise CatalogError(f"two rules are called {rule.id}; rename one of them")
        seen.add(rule.id)
    return tuple(rules)


def parse_rules(text: str, category: str) -> tuple[Rule, ...]:
    """Parse the rule file of one category.

    An unknown key, fact or source raises an error that gives the place in the file.
    """
    return _rules(parse_toml(text, f"{category}.toml"), category)


@cache
def load_knowledge() -> Knowledge:
    """Return the shipped rules and all tables."""
    return Knowledge(
        rules=load_rules(),
        kernels=load_table("kernels"),
        attention=load_table("attention"),
        aiter=load_table("aiter"),
        flags=read_engine_flags(load_table("flags")),
        choices=read_choices(load_table("choices")),
        kinds=load_table("kinds"),
        images=load_table("images"),
        recipes=load_table("recipes"),
        cookbook=load_table("cookbook"),
        architectures=load_table("architectures"),
        served=load_table("served"),
        engines=load_table("engines"),
        speed=load_table("speed"),
        standings={},
    )


def load_table(name: str) -> Mapping[str, Any]:
    """Return one of the tables that predictions use, such as kernels, attention backends or flags."""
    return _tables()[name]


@cache
def _tables() -> Mapping[str, Mapping[str, Any]]:
    """Read all tables and rule files. `make tables` writes the JSON from the TOML files, which load slowly."""
    path = _DATA / "tables.json"
    try:
        tables: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CatalogError(f"{path.name}: {error}") from error
    return tables


def _rules(raw: object, category: str) -> tuple[Rule, ...]:
    return tuple(_rule(entry, category) for entry in strictly(_File, raw, f"{category}.toml").rule)


def _rule(entry: _Entry, category: str) -> Rule:
    where = f"{category}.toml: {entry.id}"
    if not entry.sources:
        raise CatalogError(f"{where}: a rule needs at least one source")
    if entry.versions is not None and entry.engine is None:
        raise CatalogError(f"{where}: the rule has `versions` but no `engine`; name the engine")
    try:
        return Rule(
            id=entry.id,
            category=category,
            severity=entry.severity,
            grounds=entry.confidence,
            when=Condition.parse(entry.when, _KINDS, where),
            message=entry.message,
            fix=entry.fix,
            sources=tuple(Reference(text) for text in entry.sources),
            engine=entry.engine,
            versions=None if entry.versions is None else ReleaseRange.parse(entry.versions),
            fires={name: _value(name, value, where) for name, value in entry.fires.items()},
            quiet={name: _value(name, value, where) for name, value in entry.quiet.items()},
        )
    except CatalogError:
        raise
    except PenstockError as error:
        raise CatalogError(f"{where}: {error}") from error


def _value(name: str, written: _Written, where: str) -> Value:
    """Convert a value in a rule's test case to the kind of value that its fact has."""
    kind = fact_kind(name, _KINDS)
    if kind is Kind.TEXTS and isinstance(written, list):
        return frozenset(written)
    if kind is Kind.RELEASE and isinstance(written, str):
        return Release(written)
    if kind is Kind.TEXT and isinstance(written, str):
        return written
    if kind is Kind.FLAG and isinstance(written, bool):
        return written
    if kind is Kind.NUMBER and isinstance(written, int | float) and not isinstance(written, bool):
        return written
    raise CatalogError(f"{where}: {written!r} is not a valid value of {name} ({kind or 'no fact of that name'})")
