"""Learns releases of engines as data packs, and lists what preflight knows: `penstock preflight learn` and `packs`."""

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final

from rich.console import RenderableType

from penstock.api.answer import ApiAnswer, Row
from penstock.errors import DeploymentError, UnreadableFile, UsageError
from penstock.fleet.engines import NEWEST
from penstock.fleet.release import Release
from penstock.preflight.packs.learn_release import learn_folder, learn_wheel
from penstock.preflight.packs.pack import LEARNABLE, Pack, write_pack
from penstock.preflight.packs.pack_files import load_extended, rule_directories, rules_in, user_directory
from penstock.report.preflight.known_releases import (
    KnownEngine,
    LearnDocument,
    LearnedRelease,
    PacksDocument,
    render_known,
    render_learned,
)

_PINNED: Final = re.compile(rf"({'|'.join(LEARNABLE)})==([0-9][0-9A-Za-z.+]{{0,39}})")
_DOWNLOAD_TIMEOUT_S: Final = 1800
_INDEX_TIMEOUT_S: Final = 60
_VERSIONS: Final = re.compile(r"^Available versions: (.+)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, repr=False)
class LearnAnswer(ApiAnswer):
    """Releases that were learnt."""

    document_type = LearnDocument
    learned: tuple[LearnedRelease, ...]

    @property
    def good(self) -> bool:
        """Return true, because a release that cannot be read is an error."""
        return True

    def rows(self) -> list[Row]:
        """Return one row per release."""
        return [
            {"engine": one.pack.engine, "release": str(one.pack.release), "flags": len(one.pack.tables.flags)}
            for one in self.learned
        ]

    def render(self, columns: int) -> RenderableType:
        """Return what `preflight learn` prints."""
        del columns
        return render_learned(self.learned)

    def _summary(self) -> tuple[str, Sequence[str]]:
        return "learnt", [f"{one.pack.engine} {one.pack.release}" for one in self.learned]


def learn(releases: Sequence[str], *, to: Path | None = None) -> LearnAnswer:
    """Read releases and write one data pack each. A release is a wheel, an installed package, or `vllm==0.33.0`.

    No code of the release is imported or run. Packs are written to `to`, or to the user's directory.
    """
    folder = to or user_directory()
    return LearnAnswer(learned=tuple(_learn_one(release, folder) for release in releases))


def _learn_one(release: str, folder: Path) -> LearnedRelease:
    started = perf_counter()
    pack = _pack(release)
    text, file = write_pack(pack), folder / pack.file_name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UnreadableFile(f"{file} cannot be written ({error.strerror}); choose a directory with --to") from None
    before, flags = _flags_before(pack)
    return LearnedRelease(
        pack=pack,
        file=str(file),
        bytes_written=len(text.encode()),
        seconds=perf_counter() - started,
        before=before,
        added=tuple(sorted(pack.tables.flags - flags)),
        removed=tuple(sorted(flags - pack.tables.flags)),
    )


def _pack(release: str) -> Pack:
    path, today = Path(release), datetime.now(UTC).date()
    if path.is_dir():
        return learn_folder(path, today)
    if release.endswith(".whl"):
        return learn_wheel(path, today)
    if _PINNED.fullmatch(release) is None:
        raise UsageError(f"'{release[:80]}' is neither a wheel, a directory nor a release; write `vllm==0.33.0`")
    with TemporaryDirectory(prefix="penstock-learn-") as folder:
        return learn_wheel(_download(release, Path(folder)), today)


def _download(release: str, folder: Path) -> Path:
    """Download the wheel of a release with pip, without its dependencies."""
    words = ("download", "--quiet", "--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--dest", str(folder))
    result = _pip((*words, release), _DOWNLOAD_TIMEOUT_S)
    wheel = next(iter(sorted(folder.glob("*.whl"))), None)
    if wheel is None:
        lines = [line for line in result.splitlines() if line.strip()] or ["no wheel was written"]
        raise UsageError(f"pip did not download {release}: {lines[-1][:160]}; download its wheel and give its path")
    return wheel


def _pip(words: Sequence[str], timeout_s: float) -> str:
    """Run pip. Return what it prints, including its error messages."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_s)  # noqa: S603 - no shell; the release is checked
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error).splitlines()[0]
    return done.stdout + done.stderr


def _flags_before(pack: Pack) -> tuple[str, frozenset[str]]:
    """Return the newest known release before the pack's, and its flags."""
    known = load_extended().flags[pack.engine].flags
    older = [release for release in known.read if release < pack.release]
    before = older[-1] if older else known.read[0]
    return str(before), frozenset(known.names_in(before))


@dataclass(frozen=True, kw_only=True, repr=False)
class PacksAnswer(ApiAnswer):
    """The releases and rules that preflight knows."""

    document_type = PacksDocument
    engines: tuple[KnownEngine, ...]
    directory: str
    rules: int
    user_rules: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Return true, because a list has no verdict."""
        return True

    def rows(self) -> list[Row]:
        """Return one row per engine."""
        return [
            {"engine": one.engine, "known_from": one.first, "checked_until": one.checked, "packs": ", ".join(one.packs)}
            for one in self.engines
        ]

    def render(self, columns: int) -> RenderableType:
        """Return what `preflight packs` prints."""
        del columns
        return render_known(self.engines, self.directory, self.rules, self.user_rules)

    def _summary(self) -> tuple[str, Sequence[str]]:
        return "packs", [f"{one.engine} {', '.join(one.packs)}" for one in self.engines]


def list_packs(
    *, rules: Path | None = None, index: bool = False, versions_of: Callable[[str], str] | None = None
) -> PacksAnswer:
    """List the releases and rules that preflight knows. With `index`, ask pip which newer releases there are."""
    folders = rule_directories(rules)
    knowledge, asked = load_extended(folders), versions_of or _index_versions
    engines = []
    for engine in LEARNABLE:
        read = knowledge.flags[engine].flags.read
        packs = sorted((release for name, release in knowledge.standings if name == engine), key=lambda one: one.key)
        newest = max([NEWEST[engine], *packs])
        engines.append(
            KnownEngine(
                engine=engine,
                first=str(read[0]),
                checked=str(NEWEST[engine]),
                packs=tuple(str(release) for release in packs),
                newer=_newer(asked(engine), newest) if index else None,
            )
        )
    own = tuple(rule.id for folder in folders for rule in rules_in(folder))
    return PacksAnswer(
        engines=tuple(engines), directory=str(rules or user_directory()), rules=len(knowledge.rules), user_rules=own
    )


def _index_versions(engine: str) -> str:
    return _pip(("index", "versions", engine, "--pre"), _INDEX_TIMEOUT_S)


def _newer(printed: str, newest: Release) -> tuple[str, ...]:
    found = _VERSIONS.search(printed)
    if found is None:
        raise UsageError("pip did not list releases; check its index, or leave out --index")
    newer = []
    for word in found[1].split(", "):
        try:
            newer += [word] if Release(word) > newest else []
        except DeploymentError:
            continue
    return tuple(newer)
