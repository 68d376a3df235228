"""Reads a small text file completely, or raises a one-line error."""

from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from pathlib import Path
from typing import Final

from penstock.errors import UnreadableFile

_MAX_BYTES: Final = 4 * 2**20


def read_text(path: Path, remedy: str, *, most_bytes: int = _MAX_BYTES) -> str:
    """Read a text file in the encodings that editors and spreadsheets use.

    Error messages end with `remedy`, which says what to do.
    """
    try:
        if path.is_dir():
            raise UnreadableFile(f"{path}: is a folder; {remedy}")
        if path.exists() and not path.is_file() and not path.is_fifo():
            raise UnreadableFile(f"{path}: is not a file; {remedy}")
        with path.open("rb") as opened:
            raw = opened.read(most_bytes + 1)
        if len(raw) > most_bytes:
            raise UnreadableFile(f"{path.name} is larger than {most_bytes:,} bytes; shorten the file")
        return raw.decode("utf-16" if raw.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else "utf-8-sig")
    except (OSError, ValueError) as error:
        reason = (error.strerror or "cannot be read") if isinstance(error, OSError) else "not UTF-8 text"
        raise UnreadableFile(f"{path}: {reason}; {remedy}") from None
