"""Renders learnt releases, and the list of the releases and rules that preflight knows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from typing_extensions import TypedDict

from penstock.preflight.packs.pack import Pack
from penstock.report.drawing.json_document import at

_LISTED: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedRelease:
    """A release that was read, the file of its pack, and how it differs from the release known before it."""

    pack: Pack
    file: str
    bytes_written: int
    seconds: float
    before: str
    """The newest release that was known before this one."""
    added: tuple[str, ...]
    """Flags that the release before it does not have."""
    removed: tuple[str, ...]
    """Flags of the release before it that this release does not have."""

    def rules(self, standing: str) -> tuple[str, ...]:
        """Return the rules whose cited lines hold, moved or are gone."""
        return tuple(rule for rule, found in self.pack.rules.items() if found == standing)


class LearnedDocument(TypedDict):
    """One release that was read."""

    engine: Annotated[str, at("pack.engine")]
    release: Annotated[str, at("pack.release")]
    source: Annotated[str, at("pack.source")]
    source_sha256: Annotated[str, at("pack.source_sha256")]
    file: str
    bytes_written: int
    seconds: float
    flags: Annotated[int, at(lambda one: len(one.pack.tables.flags))]
    variables: Annotated[int, at(lambda one: len(one.pack.tables.variables))]
    architectures: Annotated[int, at(lambda one: len(one.pack.tables.architectures))]
    before: str
    added: list[str]
    removed: list[str]
    rules_hold: Annotated[list[str], at(lambda one: list(one.rules("holds")))]
    rules_moved: Annotated[list[str], at(lambda one: list(one.rules("moved")))]
    rules_gone: Annotated[list[str], at(lambda one: list(one.rules("gone")))]


class LearnDocument(TypedDict):
    """Releases that were read."""

    schema: Literal["penstock.learn/1"]
    learned: list[LearnedDocument]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownEngine:
    """The releases of one engine that preflight knows."""

    engine: str
    first: str
    """Oldest release in the tables."""
    checked: str
    """Newest release against which rules, kernels and memory were checked."""
    packs: tuple[str, ...]
    """Releases that data packs describe, oldest first."""
    newer: tuple[str, ...] | None
    """Releases on the package index that are newer than all of these. None if the index was not asked."""


class PacksDocument(TypedDict):
    """The releases and rules that preflight knows."""

    schema: Literal["penstock.packs/1"]
    directory: str
    rules: int
    user_rules: list[str]
    engines: list[KnownEngine]


def render_learned(learned: Sequence[LearnedRelease]) -> RenderableType:
    """Draw what was read of each release, and what changed."""
    return Group(*(_one_release(one) for one in learned))


def _one_release(one: LearnedRelease) -> Text:
    tables = one.pack.tables
    text = Text(f"{one.pack.engine} {one.pack.release}", style="bold")
    text.append(
        f": {len(tables.flags)} flags, {len(tables.variables)} variables, {len(tables.architectures)} architectures, "
        f"read in {one.seconds:.1f} s from {one.pack.source}\n",
        style="not bold",
    )
    for word, names in (("new", one.added), ("removed", one.removed)):
        text.append(
            f"  flags {word} since {one.before}: {_enumeration([f'--{name}' for name in names])}\n", style="not bold"
        )
    holds = len(one.rules("holds"))
    text.append(f"  lines that rules cite: {holds} hold, {len(one.rules('moved'))} moved, ", style="not bold")
    text.append(f"{len(one.rules('gone'))} are gone ({_enumeration(one.rules('gone'))})\n", style="not bold")
    text.append(f"  {one.file} ({one.bytes_written / 1000:.0f} kB)", style="dim not bold")
    return text


def _enumeration(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more if names else "none"


def render_known(engines: Sequence[KnownEngine], directory: str, rules: int, own: Sequence[str]) -> RenderableType:
    """Draw one row per engine, and where the user's own packs and rules are."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("engine", "known from", "checked until", "packs", "newer on the index"):
        table.add_column(name, overflow="fold")
    for one in engines:
        newer = "not asked (--index)" if one.newer is None else ", ".join(one.newer) or "none"
        table.add_row(one.engine, one.first, one.checked, ", ".join(one.packs) or "none", newer)
    mine = f"; of these yours: {', '.join(own)}" if own else ""
    notes = Text(f"{rules} rules{mine}\nyour packs and rules: {directory}", style="dim")
    return Group(table, Text(), notes)
