"""Reads single files of an engine release from a wheel or an installed package. Nothing is imported or extracted."""

import ast
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from penstock.errors import CatalogError

MAX_FILE_BYTES: Final = 8 * 2**20
"""Largest source file that is read. The largest one of vLLM and SGLang has less than 0.5 MB."""
_MAX_TOTAL_BYTES: Final = 256 * 2**20
_MAX_MEMBERS: Final = 100_000


class ReleaseSource(Protocol):
    """The source files of one release."""

    @property
    def label(self) -> str:
        """Name of the wheel or folder, for messages."""

    @property
    def paths(self) -> Sequence[str]:
        """Paths of the Python files, such as `vllm/envs.py`."""

    def read(self, path: str) -> str:
        """Return the text of a file. Return an empty text if the release has no such file."""


@dataclass
class WheelSource:
    """A wheel on disk. Members are read one at a time, and each read is bounded."""

    file: Path
    _left_bytes: int = field(default=_MAX_TOTAL_BYTES, init=False)

    def __post_init__(self) -> None:
        try:
            self._zip = zipfile.ZipFile(self.file)
        except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise CatalogError(f"{self.file.name} is not a wheel that can be read: {_first_line(error)}") from None
        members = self._zip.infolist()
        if len(members) > _MAX_MEMBERS:
            raise CatalogError(f"{self.file.name} has {len(members):,} files; a wheel has at most {_MAX_MEMBERS:,}")
        self._members = {entry.filename: entry for entry in members if _is_plain(entry.filename)}

    @property
    def label(self) -> str:
        """Name of the wheel."""
        return self.file.name

    @property
    def paths(self) -> Sequence[str]:
        """Paths of the Python files in the wheel."""
        return [name for name in self._members if name.endswith(".py")]

    def read(self, path: str) -> str:
        """Return the text of a member, or an empty text. A member larger than the limit raises an error."""
        entry = self._members.get(path)
        if entry is None:
            return ""
        limit = min(MAX_FILE_BYTES, self._left_bytes)
        try:
            with self._zip.open(entry) as member:
                # The size in the directory of a hostile wheel may be wrong, so that the read itself is bounded.
                data = member.read(limit + 1)
        except (OSError, zipfile.BadZipFile, RuntimeError, NotImplementedError, zlib.error, EOFError) as error:
            raise CatalogError(f"{self.label}: {path} cannot be read: {_first_line(error)}") from None
        if len(data) > limit:
            raise CatalogError(f"{self.label}: {path} is larger than {limit:,} bytes, which no source file is")
        self._left_bytes -= len(data)
        return data.decode("utf-8", errors="replace")


@dataclass
class FolderSource:
    """An installed package: `root` is the folder that holds the package, such as site-packages."""

    root: Path
    package: str

    @property
    def label(self) -> str:
        """Folder of the package."""
        return str(self.root / self.package)

    @property
    def paths(self) -> Sequence[str]:
        """Paths of the Python files in the package."""
        found = []
        for file in sorted((self.root / self.package).rglob("*.py")):
            found.append(file.relative_to(self.root).as_posix())
            if len(found) > _MAX_MEMBERS:
                raise CatalogError(f"{self.label} has more than {_MAX_MEMBERS:,} files; name the package's own folder")
        return found

    def read(self, path: str) -> str:
        """Return the text of a file, or an empty text. A link that leads out of the folder is not followed."""
        file = self.root / path
        try:
            inside = file.resolve().is_relative_to((self.root / self.package).resolve())
            if not inside or not file.is_file():
                return ""
            if file.stat().st_size > MAX_FILE_BYTES:
                raise CatalogError(f"{file} is larger than {MAX_FILE_BYTES:,} bytes, which no source file is")
            return file.read_text(encoding="utf-8", errors="replace")
        except (OSError, RuntimeError, ValueError) as error:
            raise CatalogError(f"{file} cannot be read: {_first_line(error)}") from None


def parse_python(source: ReleaseSource, path: str) -> ast.Module:
    """Parse a Python file. A missing file is an empty module; a file that is not Python raises an error."""
    try:
        return ast.parse(source.read(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise CatalogError(f"{source.label}: {path} is not Python that can be parsed: {_first_line(error)}") from None


def _is_plain(name: str) -> bool:
    """Return whether a member's name is a relative path without steps upwards."""
    return not name.startswith("/") and "\\" not in name and ".." not in name.split("/")


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:160]
