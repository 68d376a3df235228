"""Does this release have these flags? Removed, renamed and not yet introduced ones, read from the engines' parsers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Literal

from penstock.fleet.release import Release
from penstock.preflight.facts.command import long_name
from penstock.preflight.facts.situation import Launch

FlagProblem = Literal["removed", "too_new", "unknown", "unknown_value", "wrong_value"]
_DERIVED = frozenset({"model-path", "speculative-method", "speculative-num-draft-tokens"})
"""Not typed under this name: read out of another flag, or the model in another spelling."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagFinding:
    """A flag or variable the release does not have."""

    name: str
    """As it is typed: `--swap-space`, `VLLM_USE_V1`."""
    problem: FlagProblem
    release: str | None
    """The release in which it was gone, or the first that has it."""
    instead: str | None
    """What to write, or what is wrong with the value."""
    value: str | None = None
    """What it is set to, where that is what the release does not have."""

    @property
    def message(self) -> str:
        """Say what is wrong and what to write."""
        use = f"; use {self.instead}" if self.instead else ""
        name = self.name if self.value is None else f"{self.name} {self.value}"
        if self.problem == "removed":
            kind = "is ignored" if not self.name.startswith("--") else "stops start-up"
            return f"{name} is gone since {self.release} and {kind}{use}"
        if self.problem == "too_new":
            return f"{name} exists from {self.release} only"
        if self.problem == "wrong_value":
            return f"{name} {self.instead}"
        if self.problem == "unknown_value":
            near = f"; did you mean {self.instead}?" if self.instead else ""
            return f"{name}: this release has no such value{near}"
        meant = f"; did you mean {self.instead}?" if self.instead else "; is it spelled right?"
        return f"{self.name} is no flag of any release that was read{meant}"


def check_flags(
    launch: Launch, engine: str, version: Release, table: Mapping[str, Mapping[str, Sequence[str]]]
) -> tuple[FlagFinding, ...]:
    """Hold every flag and engine variable of a launch against the release."""
    held = [name for name in launch.flags if "." not in name and name not in _DERIVED]
    found = list(_check((f"--{name}" for name in held), table["flags"], version))
    if engine == "vllm":
        ours = (name for name in launch.environment if name.startswith("VLLM_"))
        found += _check(ours, table["variables"], version)
    return tuple(found)


def _check(names: Iterable[str], known: Mapping[str, Sequence[str]], version: Release) -> list[FlagFinding]:
    found, first = [], first_read(known)
    for name in names:
        bare = name.removeprefix("--")
        entry = known.get(bare) or known.get(bare.removeprefix("no-"))
        if entry is None:
            found.append(FlagFinding(name=name, problem="unknown", release=None, instead=_meant(name, known, version)))
        elif (problem := problem_of(entry, version, first)) is not None:
            release = entry[1] if problem == "removed" else entry[0]
            instead = entry[2] if problem == "removed" and len(entry) > 2 else None  # noqa: PLR2004 - since, gone, instead
            found.append(FlagFinding(name=name, problem=problem, release=release, instead=instead))
    return found


def problem_of(entry: Sequence[str], version: Release, first: Release) -> Literal["removed", "too_new"] | None:
    """Compare with the release it came in and the one it was gone in."""
    if len(entry) > 1 and version >= Release(entry[1]):
        return "removed"
    since = Release(entry[0])
    # The first release that was read stands for "that or earlier".
    return "too_new" if version < since and since != first else None


def spelled_out(launch: Launch, known: Mapping[str, Sequence[str]], version: Release) -> Launch:
    """Write shortened flags in full, as the engines' parsers do: `--tensor-parallel` is the one flag it begins."""
    first = first_read(known)
    offered = [name for name, entry in known.items() if problem_of(entry, version, first) is None]

    def whole(name: str) -> str:
        if name in known or name in _DERIVED or "." in name or name.startswith("no-"):
            return name
        meant = {long_name(other) for other in offered if other.startswith(name)}
        return meant.pop() if len(meant) == 1 else name

    return replace(
        launch,
        flags={whole(name): value for name, value in launch.flags.items()},
        bare=frozenset(whole(name) for name in launch.bare),
    )


def exists(name: str, known: Mapping[str, Sequence[str]], version: Release) -> bool:
    """Whether the release has this flag or variable."""
    entry = known.get(name) or known.get(name.removeprefix("no-"))
    return entry is not None and problem_of(entry, version, first_read(known)) is None


def _meant(name: str, known: Mapping[str, Sequence[str]], version: Release) -> str | None:
    """Name the nearest flag this release has."""
    first = first_read(known)
    offered = [other for other, entry in known.items() if problem_of(entry, version, first) is None]
    near = get_close_matches(name.removeprefix("--"), offered, n=1, cutoff=0.75)
    return ("--" if name.startswith("--") else "") + near[0] if near else None


def first_read(known: Mapping[str, Sequence[str]]) -> Release:
    """Return the first release a table begins with: it stands for "that or earlier"."""
    return min(Release(entry[0]) for entry in known.values())
