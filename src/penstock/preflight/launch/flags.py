"""Does this release have these flags? Removed, renamed and not yet introduced ones, read from the engines' parsers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from penstock.fleet.release import Release
from penstock.preflight.facts.situation import Launch

FlagProblem = Literal["removed", "too_new", "unknown"]
_DERIVED = frozenset({"speculative-num-draft-tokens", "speculative-method"})


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
        return f"{self.name} is in no release that was read; is it spelled right?"


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
    found = []
    for name in names:
        bare = name.removeprefix("--")
        entry = known.get(bare) or known.get(bare.removeprefix("no-"))
        if entry is None:
            found.append(FlagFinding(name=name, problem="unknown", release=None, instead=None))
        elif len(entry) > 1 and version >= Release(entry[1]):
            instead = entry[2] if len(entry) > 2 else None  # noqa: PLR2004 - since, gone, instead
            found.append(FlagFinding(name=name, problem="removed", release=entry[1], instead=instead))
        elif version < Release(entry[0]) and not _earliest(entry[0], known):
            found.append(FlagFinding(name=name, problem="too_new", release=entry[0], instead=None))
    return found


def _earliest(since: str, known: Mapping[str, Sequence[str]]) -> bool:
    """The first release that was read stands for "that or earlier"."""
    return Release(since) == min(Release(entry[0]) for entry in known.values())
