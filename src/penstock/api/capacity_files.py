"""Keeps the capacities of guides in the user's cache, so that a guide with other prices simulates nothing again."""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final

from penstock.api.trial_files import trial_files
from penstock.compiled.library import cache_folder

_MAX_FILES: Final = 2000
"""Number of files, of about 10 kB each, above which the oldest half is deleted."""


@dataclass(frozen=True, slots=True)
class GuideFiles:
    """A folder with one file per workload shape. A file that cannot be read counts as missing."""

    folder: Path

    def read(self, key: str) -> Mapping[str, Any] | None:
        """Return what was kept under a key; None if nothing was."""
        try:
            found: Mapping[str, Any] = json.loads(self._path(key).read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None
        return found

    def write(self, key: str, kept: Mapping[str, object]) -> None:
        """Keep something under a key; nothing is kept if the folder cannot be written."""
        path = self._path(key)
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with NamedTemporaryFile("w", dir=path.parent, suffix=".part", delete=False, encoding="ascii") as file:
                json.dump(kept, file)
            Path(file.name).replace(path)

    def prune(self) -> None:
        """Delete the oldest half of the files if there are too many."""
        with suppress(OSError):
            found = sorted(self.folder.iterdir(), key=lambda path: path.stat().st_mtime)
            for path in found[: len(found) // 2] if len(found) > _MAX_FILES else ():
                path.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self.folder / f"{hashlib.sha256(f'{_program()} {key}'.encode()).hexdigest()[:32]}.json"


def guide_files() -> GuideFiles | None:
    """Return the capacities in the user's cache; None if the user turned the cache of trials off."""
    if trial_files() is None:
        return None
    found = GuideFiles(cache_folder().parent / "guides")
    found.prune()
    return found


@cache
def _program() -> str:
    """Return a digest of names, sizes and times of the installed files, code and data."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.parent.rglob("*")):
        if path.is_file() and path.suffix not in {".pyc", ".so"}:
            state = path.stat()
            digest.update(f"{path.name} {state.st_size} {state.st_mtime_ns}\n".encode())
    return digest.hexdigest()
