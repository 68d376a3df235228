"""The rules and tables that a preflight uses."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.fleet.release import Release
from penstock.preflight.rules.history import EngineFlags, History
from penstock.preflight.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """The preflight rules, and the tables that predictions of kernels and backends use."""

    rules: tuple[Rule, ...]
    kernels: Mapping[str, Any]
    attention: Mapping[str, Any]
    aiter: Mapping[str, Any]
    flags: Mapping[str, EngineFlags]
    """Flags and environment variables, by engine and release."""
    choices: Mapping[str, Mapping[str, History]]
    """Values of flags, by engine, flag and release."""
    kinds: Mapping[str, Any]
    images: Mapping[str, Any]
    recipes: Mapping[str, Any]
    cookbook: Mapping[str, Any]
    architectures: Mapping[str, Any]
    served: Mapping[str, Any]
    standings: Mapping[tuple[str, Release], Mapping[str, str]]
    """For each engine and release with a data pack: whether the lines that a rule cites hold, moved or are gone."""
    engines: Mapping[str, Any]
    """For each engine of which parts were not read: what is not known, and the sources of the rest."""
    speed: Mapping[str, Any]
    """What settings of a launch cost, relative to the fastest settings."""
