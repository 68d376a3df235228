"""A rule describes a known problem by its condition, consequence, fix and sources."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from penstock.errors import CatalogError
from penstock.fleet.release import Release, ReleaseRange
from penstock.preflight.rules.condition import Condition, Facts, Truth, Unknown, Value


class Severity(StrEnum):
    """How a deployment fails, sorted by severity, worst first."""

    SILENT_WRONG = "silent-wrong"
    """Requests succeed, but the answers are wrong."""
    BLOCKER = "blocker"
    """The server does not start, or it crashes."""
    WARNING = "warning"
    """The deployment may fail, but often does not."""
    SLOW = "slow"
    INFO = "info"


class Grounds(StrEnum):
    """Kind of evidence for a rule."""

    SOURCE = "source"
    """The problem was read in the engine's source code at the named release."""
    DERIVED = "derived"
    """The problem follows from the engine's source code, but was not run on the device."""
    ISSUE = "issue"
    """The problem was reported in the named thread by users or maintainers."""


REPOSITORIES: Final[Mapping[str, str]] = {
    "vllm": "vllm-project/vllm",
    "sglang": "sgl-project/sglang",
    "aiter": "ROCm/aiter",
    "atom": "ROCm/ATOM",
    "trtllm": "NVIDIA/TensorRT-LLM",
    "recipes": "vllm-project/recipes",
    "inferencex": "SemiAnalysisAI/InferenceX",
    "hip": "ROCm/hip",
    "ao": "pytorch/ao",
    "pytorch": "pytorch/pytorch",
    "skills": "amd/skills",
    "rocm-vllm": "ROCm/vllm",
}
_THREAD = re.compile(r"([\w-]+)#(\d{1,7})")
_FILE = re.compile(r"([\w-]+)@([\w.-]+):([\w./-]+?)(?:#(L\d+(?:-L\d+)?))?")
_URL = re.compile(r"https://[^\s]+")


@dataclass(frozen=True, slots=True)
class Reference:
    """A source of a rule.

    A source is a thread (`vllm#45681`), a file at a tag (`vllm@v0.27.1:path#L10-L20`), or a URL.
    """

    text: str

    def __post_init__(self) -> None:
        if self.url is None:
            raise CatalogError(f"'{self.text[:80]}' is not a source; write vllm#123, vllm@v0.27.1:path or https://...")

    @property
    def url(self) -> str | None:
        """The URL of the source. The URL is None if the text has none of the three forms of a source."""
        if _URL.fullmatch(self.text):
            return self.text
        if (thread := _THREAD.fullmatch(self.text)) and thread[1] in REPOSITORIES:
            return f"https://github.com/{REPOSITORIES[thread[1]]}/issues/{thread[2]}"
        if (file := _FILE.fullmatch(self.text)) and file[1] in REPOSITORIES:
            lines = f"#{file[4]}" if file[4] else ""
            return f"https://github.com/{REPOSITORIES[file[1]]}/blob/{file[2]}/{file[3]}{lines}"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One known problem of deployments, with two test cases for the rule's condition."""

    id: str
    category: str
    severity: Severity
    grounds: Grounds
    when: Condition
    message: str
    fix: str
    sources: tuple[Reference, ...]
    engine: str | None
    """Engine to which the rule applies. The value None means every engine."""
    versions: ReleaseRange | None
    """Releases of the engine to which the rule applies. The value None means every release."""
    fires: Mapping[str, Value]
    """First test case, which is a set of facts under which the rule applies."""
    quiet: Mapping[str, Value]
    """Second test case, which is a set of changes to `fires` after which the rule must not apply."""

    def holds(self, facts: Facts) -> Truth:
        """Return whether the rule applies. Return None if the facts do not decide whether it applies."""
        placed = _all_of((self._engine(facts), self._version(facts)))
        # Most rules are for other engines or releases, so that their conditions need not be evaluated.
        return False if placed is False else _all_of((placed, self.when.holds(facts)))

    def missing(self, facts: Facts) -> tuple[str, ...]:
        """Return the names of the unknown facts on which the rule depends."""
        asked: tuple[str, ...] = ("engine",) if self.engine is not None else ()
        asked += ("version",) if self.versions is not None else ()
        absent = tuple(name for name in asked if isinstance(facts.get(name, Unknown("")), Unknown))
        return absent + self.when.missing(facts)

    def _engine(self, facts: Facts) -> Truth:
        engine = facts.get("engine", Unknown("no engine is named"))
        if self.engine is None:
            return True
        return None if isinstance(engine, Unknown) else engine == self.engine

    def _version(self, facts: Facts) -> Truth:
        version = facts.get("version", Unknown("no version is named"))
        if self.versions is None:
            return True
        return self.versions.holds(version) if isinstance(version, Release) else None


def _all_of(truths: tuple[Truth, ...]) -> Truth:
    if False in truths:
        return False
    return None if None in truths else True
