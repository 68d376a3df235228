"""Does this release have these flags? Removed, renamed and not yet introduced ones, read from the engines' parsers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Literal

from penstock.fleet.release import Release
from penstock.preflight.facts.command import long_name
from penstock.preflight.facts.situation import Launch

FlagProblem = Literal["removed", "too_new", "unknown"]
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

    @property
    def message(self) -> str:
        """Say what is wrong and what to write."""
        use = f"; use {self.instead}" if self.instead else ""
        if self.problem == "removed":
            kind = "is ignored" if not self.name.startswith("--") else "stops start-up"
            return f"{self.name} is gone since {self.release} and {kind}{use}"
        if self.problem == "too_new":
            return f"{self.name} exists from {self.release} only"
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
    found, first = [], _first_read(known)
    for name in names:
        bare = name.removeprefix("--")
        entry = known.get(bare) or known.get(bare.removeprefix("no-"))
        if entry is None:
            found.append(FlagFinding(name=name, problem="unknown", release=None, instead=_meant(name, known, version)))
        elif (problem := _problem(entry, version, first)) is not None:
            release = entry[1] if problem == "removed" else entry[0]
            instead = entry[2] if problem == "removed" and len(entry) > 2 else None  # noqa: PLR2004 - since, gone, instead
            found.append(FlagFinding(name=name, problem=problem, release=release, instead=instead))
    return found


def _problem(entry: Sequence[str], version: Release, first: Release) -> FlagProblem | None:
    """Compare with the release it came in and the one it was gone in."""
    if len(entry) > 1 and version >= Release(entry[1]):
        return "removed"
    since = Release(entry[0])
    # The first release that was read stands for "that or earlier".
    return "too_new" if version < since and since != first else None


def spelled_out(launch: Launch, known: Mapping[str, Sequence[str]], version: Release) -> Launch:
    """Write shortened flags in full, as the engines' parsers do: `--tensor-parallel` is the one flag it begins."""
    first = _first_read(known)
    offered = [name for name, entry in known.items() if _problem(entry, version, first) is None]

    def whole(name: str) -> str:
        if name in known or name in _DERIVED or "." in name or name.startswith("no-"):
            return name
        meant = {long_name(other) for other in offered if other.startswith(name)}
        return meant.pop() if len(meant) == 1 else name

    return replace(launch, flags={whole(name): value for name, value in launch.flags.items()})


def exists(name: str, known: Mapping[str, Sequence[str]], version: Release) -> bool:
    """Whether the release has this flag or variable."""
    entry = known.get(name) or known.get(name.removeprefix("no-"))
    return entry is not None and _problem(entry, version, _first_read(known)) is None


def _meant(name: str, known: Mapping[str, Sequence[str]], version: Release) -> str | None:
    """Name the nearest flag this release has."""
    first = _first_read(known)
    offered = [other for other, entry in known.items() if _problem(entry, version, first) is None]
    near = get_close_matches(name.removeprefix("--"), offered, n=1, cutoff=0.75)
    return ("--" if name.startswith("--") else "") + near[0] if near else None


def _first_read(known: Mapping[str, Sequence[str]]) -> Release:
    earliest = min(
        (entry[0] for entry in known.values()), key=lambda text: [int(part) for part in text.split("rc")[0].split(".")]
    )
    return Release(earliest)
