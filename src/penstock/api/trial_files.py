"""Keeps trials, estimates and solved programs in the user's cache, so that a later plan does not repeat them."""

import hashlib
import json
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final

import numpy as np

from penstock.compiled.library import cache_folder
from penstock.compiled.source_stamp import PACKAGES, source_files
from penstock.simulation.capacity import Trial

VARIABLE: Final = "PENSTOCK_TRIAL_CACHE"
"""Environment variable; trials, estimates and solutions are neither read nor kept if its value is `off`."""
_WORKLOADS: Final = ("penstock.workload", "penstock.workload.synthetic")
_PREDICTING: Final = ("catalog", "checkpoint", "fleet", "model", "performance", "planning", "workload")
"""Packages whose sources and data decide a predicted speed."""
_MAX_FILES, _KEPT_FILES = 4000, 3000
"""Number of files, of about 2 kB each, from which the oldest are deleted, and number of files that are then left."""
log = logging.getLogger("penstock")


@dataclass(frozen=True, slots=True)
class ContentFiles:
    """A folder with one file per key.

    A file is written under another name and then renamed, so that concurrent processes never read half a file. A file
    that cannot be read counts as absent, and a folder that cannot be written keeps nothing.
    """

    folder: Path
    program: Callable[[], str]
    """Function that returns a digest of the program whose results are kept."""

    def read(self, key: str) -> object:
        """Return the document that was kept under a key; None if there is none."""
        try:
            text = self._path(key).read_text(encoding="ascii")
            body, _, checksum = text.rpartition("\n")
            return json.loads(body) if hashlib.sha256(body.encode()).hexdigest() == checksum else None
        except (OSError, ValueError, RecursionError):
            return None

    def write(self, key: str, document: object) -> None:
        """Keep a document."""
        body = json.dumps(document)
        path = self._path(key)
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with NamedTemporaryFile("w", dir=path.parent, suffix=".part", delete=False, encoding="ascii") as file:
                file.write(f"{body}\n{hashlib.sha256(body.encode()).hexdigest()}")
            Path(file.name).replace(path)

    def prune(self) -> None:
        """Delete the oldest files if there are too many."""
        with suppress(OSError):
            found = sorted(self.folder.iterdir(), key=lambda path: path.stat().st_mtime)
            for path in found[: len(found) - _KEPT_FILES] if len(found) > _MAX_FILES else ():
                path.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self.folder / f"{hashlib.sha256(f'{self.program()} {key}'.encode()).hexdigest()[:32]}.json"


@dataclass(frozen=True, slots=True)
class TrialFiles:
    """Trials in a folder, with one file per pool and load.

    If two processes write the same file, the trials of one of them are simulated again later.
    """

    folder: Path

    @property
    def files(self) -> ContentFiles:
        """Return the files of the trials."""
        return ContentFiles(self.folder, _program)

    def read(self, key: str) -> dict[float, Trial]:
        """Return the known trials of one pool and load, by the target rate; empty if none are known."""
        document = self.files.read(key)
        try:
            entries = [Trial(**entry, outcome=None) for entry in document] if isinstance(document, list) else []
        except TypeError:
            return {}
        return {entry.asked_per_s: entry for entry in entries}

    def write(self, key: str, trials: Mapping[float, Trial]) -> None:
        """Keep the trials of one pool and load; nothing is kept if the folder cannot be written."""
        self.files.write(key, [_fields(entry) for entry in trials.values()])


def trial_files() -> TrialFiles | None:
    """Return the trials in the user's cache; None if the user turned the cache off."""
    if _is_off():
        return None
    found = TrialFiles(cache_folder().parent / "trials")
    found.files.prune()
    return found


def program_files() -> ContentFiles | None:
    """Return the solutions of integer programs in the user's cache; None if the user turned the cache off."""
    if _is_off():
        return None
    found = ContentFiles(cache_folder().parent / "programs", _solver)
    found.prune()
    return found


def estimate_files() -> ContentFiles | None:
    """Return the quick estimates of capacities in the user's cache; None if the user turned the cache off."""
    if _is_off():
        return None
    found = ContentFiles(cache_folder().parent / "estimates", _predictor)
    found.prune()
    return found


def _is_off() -> bool:
    return os.environ.get(VARIABLE, "").strip().lower() == "off"


def _fields(entry: Trial) -> dict[str, object]:
    return {name: value for name, value in asdict(entry).items() if name != "outcome"}


@cache
def _solver() -> str:
    """Return a digest of the source of the solver's wrapper and of the version of the solver."""
    source = files("penstock.planning.optimizer").joinpath("milp.py").read_bytes()
    return hashlib.sha256(version("highspy").encode() + source).hexdigest()


@cache
def _predictor() -> str:
    """Return a digest of the sources and the data that decide a predicted speed, and of the version of numpy."""
    digest = hashlib.sha256(np.__version__.encode())
    for package in _PREDICTING:
        for path in sorted(Path(str(files("penstock").joinpath(package))).rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                digest.update(path.read_bytes())
    return digest.hexdigest()


@cache
def _program() -> str:
    """Return a digest of the sources of the simulator and of the workloads, and of the version of numpy."""
    digest = hashlib.sha256(np.__version__.encode())
    for item in source_files(*PACKAGES, *_WORKLOADS):
        digest.update(item.read_bytes())
    return digest.hexdigest()
