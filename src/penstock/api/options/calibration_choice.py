"""Declares how calibration files are chosen: named by the user, or named in the project's file."""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class FoundCalibrations:
    """Calibration files that a project's file names. A question that they do not fit is answered without them."""

    files: tuple[str, ...]


AskedCalibration: TypeAlias = str | FoundCalibrations
"""File names with commas between, or the files of the project."""
