"""History of flags and their values.

The history has the releases that introduced and removed each name, and the releases whose source code was read.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal

from penstock.fleet.release import Release

Presence = Literal["has", "too_new", "removed", "not_known"]
_NO: Final = "no-"
_INVERSE: Final = {"enable-": "disable-", "disable-": "enable-"}


@dataclass(frozen=True, kw_only=True)
class History:
    """Names of flags or values, and the releases that have them.

    Only the releases in `read` were examined. If only one of two examined releases has a name, it is unknown whether
    releases between the two have it.
    """

    entries: Mapping[str, Sequence[str]]
    """For each name: the first release that has it, the release that removed it, and its replacement.

    The removing release and the replacement may be missing. If the first release is the oldest in the table, the name
    may be older.
    """
    read: tuple[Release, ...]
    """Releases that were examined, oldest first."""
    learned: Mapping[Release, frozenset[str]] = field(default_factory=dict)
    """All names of the releases that were read as a whole from a data pack. They take precedence over `entries`."""

    def with_release(self, release: Release, names: frozenset[str]) -> "History":
        """Return the history with one more release that was read as a whole."""
        added = {name: (str(release),) for name in names if name not in self.entries}
        return History(
            entries={**self.entries, **added},
            read=tuple(sorted({*self.read, release})),
            learned={**self.learned, release: names},
        )

    def presence(self, name: str, version: Release) -> Presence | None:
        """Return whether a release has a name. Return None if the table does not list the name."""
        entry = self.entries.get(name)
        if entry is None:
            return None
        before, after = (self._at(name, entry, release) for release in self.around(version))
        return before if before == after else "not_known"

    def around(self, version: Release) -> tuple[Release, Release]:
        """Return the nearest examined releases before and after a release.

        If the release was examined, or is older than all examined releases, both results are the release itself. If the
        release is newer than all examined releases, both results are the newest examined release.
        """
        before, after = bisect_right(self.read, version), bisect_left(self.read, version)
        older = self.read[before - 1] if before else version
        newer = self.read[after] if before and after < len(self.read) else older
        return older, newer

    def has(self, name: str, version: Release) -> bool:
        """Return whether a release is known to have a name."""
        return self.presence(name, version) == "has"

    def names_in(self, version: Release) -> list[str]:
        """List the names that a release is known to have."""
        return [name for name in self.entries if self.has(name, version)]

    @cached_property
    def first(self) -> Release:
        """The oldest release in which the table lists a first appearance.

        Names listed since that release may be older.
        """
        return min(Release(entry[0]) for entry in self.entries.values())

    def _at(self, name: str, entry: Sequence[str], release: Release) -> Presence:
        if (names := self.learned.get(release)) is not None:
            return "has" if name in names else "removed" if release >= Release(entry[0]) else "too_new"
        if len(entry) > 1 and release >= Release(entry[1]):
            return "removed"
        since = Release(entry[0])
        return "too_new" if release < since and since != self.first else "has"


@dataclass(frozen=True, kw_only=True)
class EngineFlags:
    """Flags and environment variables of an engine, and how its switches are negated."""

    flags: History
    variables: History | None
    """Environment variables by release. The history is None for an engine whose variables were not read."""
    negations: History
    """Forms of negation by release.

    With the form `no-`, every switch `--x` has a negation `--no-x`. With the form `inverse`, `--disable-x` negates
    `--enable-x`, and vice versa.
    """

    def table_name(self, name: str) -> str:
        """Return the name under which the table lists a flag. A negated switch is listed without its `no-`."""
        return name if name in self.flags.entries else name.removeprefix(_NO)

    def has(self, name: str, version: Release) -> bool:
        """Return whether a release is known to have a flag. The flag may be negated by `no-`."""
        return self.flags.has(self.table_name(name), version)

    def turned_off(self, name: str, version: Release) -> str | None:
        """Return the inverse flag with `no-`: `no-enable-x` for `disable-x`, and `no-disable-x` for `enable-x`.

        Return None if the release does not have the inverse flag or does not accept `no-`.
        """
        if not self.negations.has(_NO, version):
            return None
        for prefix, inverse in _INVERSE.items():
            if name.startswith(prefix) and self.flags.has(other := inverse + name.removeprefix(prefix), version):
                return _NO + other
        return None

    def whole_name(self, name: str, version: Release) -> str:
        """Return the name under which a release knows a flag.

        If the release accepts `disable-x` as the negation of `enable-x`, `disable-x` becomes `no-enable-x`, and vice
        versa.
        """
        if self.flags.has(name, version) or not self.negations.has("inverse", version):
            return name
        return self.turned_off(name, version) or name


def turns_on(name: str) -> bool:
    """Return whether a flag's name turns something on.

    The prefixes `no-` and `disable-` each negate a flag. Both together cancel out.
    """
    bare = name.removeprefix(_NO)
    return (bare == name) != bare.startswith("disable-")


def read_engine_flags(table: Mapping[str, Mapping[str, Mapping[str, Sequence[str]]]]) -> dict[str, EngineFlags]:
    """Build the flags of each engine from the table of flags.toml."""
    return {
        engine: EngineFlags(
            flags=History(entries=tables["flags"], read=read),
            variables=History(entries=tables["variables"], read=read) if "variables" in tables else None,
            negations=History(entries=tables.get("negations", {}), read=read),
        )
        for engine, tables, read in _by_engine(table)
    }


def read_choices(table: Mapping[str, Mapping[str, Mapping[str, Sequence[str]]]]) -> dict[str, dict[str, History]]:
    """Build the histories of flag values from the table of choices.toml, by engine and flag."""
    return {
        engine: {flag: History(entries=values, read=read) for flag, values in tables.items()}
        for engine, tables, read in _by_engine(table)
    }


def _by_engine(
    table: Mapping[str, Mapping[str, Mapping[str, Sequence[str]]]],
) -> Iterator[tuple[str, Mapping[str, Mapping[str, Sequence[str]]], tuple[Release, ...]]]:
    for engine, tables in table.items():
        if engine != "read":
            yield engine, tables, tuple(sorted(Release(text) for text in table["read"][engine]))
