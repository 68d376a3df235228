"""Keeps the trials of plans in the user's cache, so that a plan with other prices or rules simulates nothing again."""

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final

import numpy as np

from penstock.compiled.library import cache_folder
from penstock.compiled.source_stamp import PACKAGES, source_files
from penstock.simulation.capacity import Trial

VARIABLE: Final = "PENSTOCK_TRIAL_CACHE"
"""Environment variable; trials are neither read nor kept if its value is `off`."""
_WORKLOADS: Final = ("penstock.workload", "penstock.workload.synthetic")
_MAX_FILES, _KEPT_FILES = 4000, 3000
"""Number of files, of about 2 kB each, from which the oldest are deleted, and number of files that are then left."""
log = logging.getLogger("penstock")


@dataclass(frozen=True, slots=True)
class TrialFiles:
    """A folder with one file per pool and load.

    A file is written under another name and then renamed, so that concurrent processes never read half a file. If two
    processes write the same file, the trials of one of them are simulated again later. A file that cannot be read
    counts as empty.
    """

    folder: Path

    def read(self, key: str) -> dict[float, Trial]:
        """Return the known trials of one pool and load, by the target rate; empty if none are known."""
        try:
            text = self._path(key).read_text(encoding="ascii")
            body, _, checksum = text.rpartition("\n")
            if hashlib.sha256(body.encode()).hexdigest() != checksum:
                return {}
            entries = [Trial(**entry, outcome=None) for entry in json.loads(body)]
        except (OSError, ValueError, TypeError):
            return {}
        return {entry.asked_per_s: entry for entry in entries}

    def write(self, key: str, trials: Mapping[float, Trial]) -> None:
        """Keep the trials of one pool and load; nothing is kept if the folder cannot be written."""
        entries = [_fields(entry) for entry in trials.values()]
        body = json.dumps(entries)
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
        return self.folder / f"{hashlib.sha256(f'{_program()} {key}'.encode()).hexdigest()[:32]}.json"


def trial_files() -> TrialFiles | None:
    """Return the trials in the user's cache; None if the user turned the cache off."""
    if os.environ.get(VARIABLE, "").strip().lower() == "off":
        return None
    found = TrialFiles(cache_folder().parent / "trials")
    found.prune()
    return found


def _fields(entry: Trial) -> dict[str, object]:
    return {name: value for name, value in asdict(entry).items() if name != "outcome"}


@cache
def _program() -> str:
    """Return a digest of the sources of the simulator and of the workloads, and of the version of numpy."""
    digest = hashlib.sha256(np.__version__.encode())
    for item in source_files(*PACKAGES, *_WORKLOADS):
        digest.update(item.read_bytes())
    return digest.hexdigest()
