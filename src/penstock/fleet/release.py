"""Parses and compares engine versions and version ranges."""

import re
from dataclasses import dataclass
from functools import lru_cache, total_ordering

from penstock.errors import DeploymentError

_STAGE = re.compile(r"[.-]?(rc|post|dev)(\d{0,6})")
_RELEASE = re.compile(rf"v?(\d{{1,6}}(?:\.\d{{1,6}}){{0,3}})((?:{_STAGE.pattern}){{0,4}})(?:\+[\w.]{{1,40}})?")
_ORDER = {"dev": -2, "rc": -1, "post": 1}
_PARTS = 4
_CLAUSE = re.compile(r"(>=|<=|==|<|>)\s*(\S+)")


_Key = tuple[tuple[int, ...], tuple[tuple[int, int], ...]]


@lru_cache(maxsize=4096)
def _parse(text: str) -> _Key:
    """Parse a release. Results are cached, because rules compare the same few releases thousands of times."""
    match = _RELEASE.fullmatch(text.strip())
    if match is None:
        raise DeploymentError(f"'{text[:40]}' is not a version; write 0.24, 0.11.2 or 0.28.0rc1")
    numbers = tuple(int(number) for number in match[1].split("."))
    stages = [(_ORDER[name], int(number or 0)) for name, number in _STAGE.findall(match[2])]
    return numbers + (0,) * (_PARTS - len(numbers)), (*stages, (0, 0))


@total_ordering
@dataclass(frozen=True, slots=True)
class Release:
    """A release number: 0.24.0, v0.28.0rc2, 7.2.1, 177."""

    text: str

    def __post_init__(self) -> None:
        _parse(self.text)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Version numbers, padded with zeros."""
        return self.key[0]

    @property
    def key(self) -> _Key:
        """Sort key.

        Versions sort by number; dev and rc versions sort before the release, and post versions after it.
        """
        return _parse(self.text)

    def reaches(self, *numbers: int) -> bool:
        """Return whether this release is the version `numbers` or later.

        Pre-releases of the version `numbers` also count.
        """
        return self.numbers >= numbers

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Release) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __lt__(self, other: "Release") -> bool:
        return self.key < other.key

    def __str__(self) -> str:
        return self.text.strip().removeprefix("v")


@dataclass(frozen=True, slots=True)
class ReleaseRange:
    """A version range for which a statement holds, such as `>=0.21,<0.24`."""

    text: str
    clauses: tuple[tuple[str, Release], ...]

    @staticmethod
    def parse(text: str) -> "ReleaseRange":
        """Parse a range of comma-separated clauses; a release in the range satisfies all of them."""
        clauses = []
        for piece in text.split(","):
            match = _CLAUSE.fullmatch(piece.strip())
            if match is None:
                raise DeploymentError(f"'{text[:60]}' is not a version range; write >=0.21,<0.24")
            clauses.append((match[1], Release(match[2])))
        return ReleaseRange(text, tuple(clauses))

    def holds(self, release: Release) -> bool:
        """Return whether the release is in the range."""
        return all(_compare(operator, release, bound) for operator, bound in self.clauses)

    @property
    def open_ended(self) -> bool:
        """True if the range has no upper bound."""
        return not any(operator in {"<", "<=", "=="} for operator, _ in self.clauses)


def _compare(operator: str, release: Release, bound: Release) -> bool:
    outcomes = {
        ">=": release >= bound,
        "<=": release <= bound,
        "==": release == bound,
        "<": release < bound,
        ">": release > bound,
    }
    return outcomes[operator]
