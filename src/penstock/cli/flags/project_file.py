"""Finds `penstock.toml`, which names the calibration files of a project.

The file is found in the working directory or above it, up to the directory of the project's repository. Its only key is
`calibration`: a file name or a list of them, relative to the file.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.api.options.calibration_choice import AskedCalibration

PROJECT_FILE: Final = "penstock.toml"
_EXAMPLE: Final = 'write `calibration = ["calibration.yaml"]`'


def calibration_choice(stated: str | None) -> "AskedCalibration | None":
    """Return the stated calibration files, or those of the project. A note on stderr names the project's files."""
    if stated is not None:
        return stated
    path = find_project_file(Path.cwd())
    if path is None:
        return None
    from penstock.api.options.calibration_choice import FoundCalibrations

    files = read_project_file(path)
    if not files:
        return None
    sys.stderr.write(f"{path} names {', '.join(files)}; --calibration replaces it\n")
    return FoundCalibrations(tuple(str(path.parent / name) for name in files))


def find_project_file(folder: Path) -> Path | None:
    """Return the nearest project file in a folder or above it. The root of a repository is the last folder."""
    for place in (folder, *folder.parents):
        if (place / PROJECT_FILE).is_file():
            return place / PROJECT_FILE
        if (place / ".git").exists():
            return None
    return None


def read_project_file(path: Path) -> tuple[str, ...]:
    """Return the names of the calibration files."""
    import tomllib

    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read as TOML ({error}); {_EXAMPLE}") from None
    unknown = next((key for key in document if key != "calibration"), None)
    if unknown is not None:
        raise UsageError(f"{path}: '{unknown}' is not a key; {_EXAMPLE}")
    named = document.get("calibration", [])
    names = [named] if isinstance(named, str) else named
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise UsageError(f"{path}: `calibration` must be a file name or a list of file names; {_EXAMPLE}")
    return tuple(names)
