"""Checks whether an engine release has the flags of a launch.

A flag may be removed, renamed or not yet introduced. The data was read from the engines' argument parsers.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import takewhile
from typing import Literal

from penstock.fleet.release import Release
from penstock.preflight.facts.launch_command import long_name
from penstock.preflight.facts.situation import Launch
from penstock.preflight.rules.history import EngineFlags, History, turns_on

FlagProblem = Literal[
    "removed", "too_new", "not_known", "unknown", "misspelt", "one_dash", "unknown_value", "wrong_value"
]
_DERIVED = frozenset({"model-path"})
"""Internal names that users do not type: synonyms of the model argument."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagFinding:
    """A problem with a flag, a flag's value or an environment variable in a release."""

    name: str
    """Name as the user types it, such as `--swap-space` or `VLLM_USE_V1`."""
    problem: FlagProblem
    release: str | None
    """The release that removed the flag or its value, the first release that has the flag, or the checked release."""
    instead: str | None
    """The replacement, the description of a wrong value, or the nearest releases with and without the flag."""
    advice: str | None = None
    """What to do about a removed name that has no replacement."""
    value: str | None = None
    """The value of the flag, if the problem is the value and not the flag's name."""
    certain: bool = True
    """Whether the problem is certain. If the source code of the release was not read, the problem is uncertain."""

    @property
    def stops(self) -> bool:
        """Whether the problem makes start-up fail. Engines ignore environment variables that they do not know."""
        return self.name.startswith("-") or self.value is not None

    @property
    def message(self) -> str:
        """Description of the problem, and of the fix if one is known."""
        use = f"; use {self.instead}" if self.instead else f"; {self.advice}" if self.advice else ""
        name = self.name if self.value is None else f"{self.name} {self.value}"
        if self.problem == "removed":
            kind = "is ignored" if not self.name.startswith("--") else "stops start-up"
            return f"{name} was removed in {self.release} and {kind}{use}"
        if self.problem == "too_new":
            return f"{name} exists from {self.release} only"
        if self.problem == "not_known":
            return f"{name}: not known whether {self.release} has it ({self.instead})"
        if self.problem == "wrong_value":
            return f"{name} {self.instead}"
        near = f"; did you mean {self.instead}?" if self.instead else ""
        if self.problem == "one_dash":
            return f"{self.name} has one dash, and the parser refuses it (unrecognized arguments){near}"
        if self.problem == "unknown_value":
            unread = "" if self.certain else f"; not known whether {self.release} has it"
            return f"{name}: {'this release has' if self.certain else 'releases read have'} no such value{near}{unread}"
        kind = "flag" if self.name.startswith("--") else "environment variable"
        if not self.certain:
            return f"{name} is no {kind} of any release that was read{near}; not known whether {self.release} has it"
        return f"{name} is no {kind} of any release that was read{near or '; is it spelled right?'}"


def check_flags(launch: Launch, version: Release, known: EngineFlags) -> tuple[FlagFinding, ...]:
    """Check whether the release has every flag and engine variable of a launch."""
    return (*_flags(launch, version, known), *_variables(launch, version, known.variables))


def _flags(launch: Launch, version: Release, known: EngineFlags) -> Iterator[FlagFinding]:
    for name in launch.flags:
        if "." in name or name in _DERIVED:
            continue
        listed = known.table_name(name)
        if name in launch.one_dash:
            meant = name if listed in known.flags.entries else _nearest_flag(name, known, version)
            instead = None if meant is None else f"--{meant}"
            yield FlagFinding(name=f"-{name}", problem="one_dash", release=str(version), instead=instead)
            continue
        if listed in known.flags.entries:
            if (finding := release_finding(f"--{name}", listed, version, known.flags)) is not None:
                yield finding
            continue
        near = _nearest_flag(name, known, version)
        misspelt = near is not None and one_edit_apart(name, near)
        yield FlagFinding(
            name=f"--{name}",
            problem="misspelt" if misspelt else "unknown",
            release=str(version),
            instead=None if near is None else f"--{near}",
            certain=misspelt or was_read(version, known.flags),
        )


def _variables(launch: Launch, version: Release, known: History | None) -> Iterator[FlagFinding]:
    if known is None:
        return
    for name in launch.environment:
        if not name.startswith("VLLM_"):
            continue
        if name in known.entries:
            if (finding := release_finding(name, name, version, known)) is not None:
                yield finding
        else:
            near = get_close_matches(name, known.names_in(version), n=1, cutoff=0.75)
            instead = near[0] if near else None
            yield FlagFinding(name=name, problem="unknown", release=str(version), instead=instead)


def release_finding(
    typed: str, listed: str, version: Release, known: History, value: str | None = None
) -> FlagFinding | None:
    """Return the problem with a flag or value that the table lists, or None if the release has that flag or value."""
    presence, entry = known.presence(listed, version), known.entries[listed]
    if presence == "removed":
        gone, instead, advice = (*entry[1:], None, None, None)[:3]
        return FlagFinding(
            name=typed,
            value=value,
            problem="removed",
            release=gone or str(version),
            instead=instead or None,
            advice=advice,
        )
    if presence == "too_new":
        return FlagFinding(name=typed, value=value, problem="too_new", release=entry[0], instead=None)
    if presence == "not_known":
        older, newer = known.around(version)
        has, lacks = (older, newer) if known.has(listed, older) else (newer, older)
        why = f"{has} does, {lacks} does not"
        return FlagFinding(
            name=typed, value=value, problem="not_known", release=str(version), instead=why, certain=False
        )
    return None


def was_read(version: Release, known: History) -> bool:
    """Return whether a release is not newer than the newest release whose source code was read.

    A newer release may have unlisted flags.
    """
    return version <= known.read[-1]


def expand_abbreviations(launch: Launch, known: EngineFlags, version: Release) -> Launch:
    """Replace abbreviated flags by full names, as the engines' parsers do.

    A unique prefix such as `--tensor-par` stands for its flag.
    """
    offered = known.flags.names_in(version)

    def whole(name: str) -> str:
        if name in _DERIVED or "." in name:
            return name
        spelled = known.whole_name(name, version)
        if spelled in known.flags.entries or spelled.startswith("no-"):
            return spelled
        meant = {long_name(other) for other in offered if other.startswith(spelled)}
        return meant.pop() if len(meant) == 1 else spelled

    return replace(
        launch,
        flags={whole(name): value for name, value in launch.flags.items()},
        bare=frozenset(whole(name) for name in launch.bare),
        one_dash=frozenset(whole(name) for name in launch.one_dash),
    )


def one_edit_apart(one: str, other: str) -> bool:
    """Return whether two words differ by one letter, or by two neighbouring letters that are swapped.

    The letter may be omitted, added or replaced.
    """
    begin = _common_prefix(one, other)
    end = _common_prefix(one[begin:][::-1], other[begin:][::-1])
    left, right = one[begin : len(one) - end], other[begin : len(other) - end]
    return max(len(left), len(right)) == 1 or (len(left) == 2 and left == right[::-1])  # two neighbours


def _common_prefix(one: str, other: str) -> int:
    """Return the length of the common prefix of two words."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _nearest_flag(name: str, known: EngineFlags, version: Release) -> str | None:
    """Return the flag of this release with the most similar name, or None.

    A flag that means the opposite is never returned.
    """
    if (negated := known.turned_off(name, version)) is not None:
        return negated
    offered = [other for other in known.flags.names_in(version) if turns_on(other) == turns_on(name)]
    near = [other for other in offered if one_edit_apart(name, other)] or get_close_matches(name, offered, 1, 0.75)
    return near[0] if near else None
