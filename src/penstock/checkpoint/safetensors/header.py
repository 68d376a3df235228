"""Reads the header of an untrusted safetensors file. A header that exceeds the size limits is refused."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Final, TypeGuard

from penstock.errors import CheckpointError

MAX_HEADER_BYTES: Final = 100_000_000
"""Maximum header size in bytes, as the safetensors format defines it."""
_MAX_RANK: Final = 16
_LENGTH_BYTES: Final = 8
_SHORTEST_HEADER: Final = len("{}")

DTYPE_BITS: Final = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E5M2FNUZ": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E8M0": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "I64": 64,
    "U64": 64,
    "F64": 64,
    "C64": 64,
}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor as the header of its file describes it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int | None = field(default=None, compare=False)
    """Offset of the tensor's first byte, counted from the end of the header. None if unknown."""

    @property
    def elements(self) -> int:
        """Return the number of stored elements. Packed formats store several weights in one element."""
        return prod(self.shape)

    @property
    def stored_bytes(self) -> int:
        """Return the bytes on disk."""
        return self.elements * DTYPE_BITS[self.dtype] // 8


def read_header(path: Path) -> tuple[StoredTensor, ...]:
    """Read one file's header, without the weights."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            if not _SHORTEST_HEADER <= length <= min(MAX_HEADER_BYTES, size - _LENGTH_BYTES):
                raise CheckpointError(
                    f"{path.name}: not a safetensors file, or cut: the header claims {length:,} bytes of {size:,}"
                )
            header = file.read(length)
    except OSError as error:
        raise CheckpointError(f"{path.name}: {error.strerror or error}") from error
    return parse_header(header, data_bytes=size - _LENGTH_BYTES - length, where=path.name)


def parse_header(header: bytes, *, data_bytes: int, where: str) -> tuple[StoredTensor, ...]:
    """Parse a header. Check that all dtypes are known, and that all byte ranges match the shapes and the file size."""
    try:
        raw = json.loads(header)
    except (ValueError, RecursionError):
        raise CheckpointError(f"{where}: the header is not valid JSON") from None
    if not isinstance(raw, dict):
        raise CheckpointError(f"{where}: the header is not a JSON object")
    tensors = tuple(_tensor(name, entry, data_bytes, where) for name, entry in raw.items() if name != "__metadata__")
    _refuse_overlaps(tensors, where)
    return tensors


def _refuse_overlaps(tensors: Sequence[StoredTensor], where: str) -> None:
    """Raise an error if two tensors share bytes.

    The format forbids shared bytes, so the file is damaged or malicious.
    """
    held = sorted((tensor for tensor in tensors if tensor.stored_bytes), key=lambda tensor: tensor.begin or 0)
    for first, second in pairwise(held):
        if (first.begin or 0) + first.stored_bytes > (second.begin or 0):
            raise CheckpointError(f"{where}: tensors '{first.name[:80]}' and '{second.name[:80]}' overlap")


def _tensor(name: str, entry: object, data_bytes: int, where: str) -> StoredTensor:
    if not name.isprintable():
        # Names are printed, so control characters could attack the terminal.
        raise CheckpointError(f"{where}: a tensor's name holds control characters")
    label = f"{where}: tensor '{name[:80]}'"
    if not isinstance(entry, dict):
        raise CheckpointError(f"{label} has a header entry that is not a JSON object")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        raise CheckpointError(f"{label} has an unknown dtype")
    if not _sizes(shape) or not _sizes(offsets) or len(offsets) != 2:
        raise CheckpointError(f"{label} has a malformed shape or byte range")
    begin, end = offsets
    tensor = StoredTensor(name, dtype, tuple(shape), begin)
    if not begin <= end <= data_bytes or end - begin != tensor.stored_bytes:
        raise CheckpointError(f"{label} has a byte range that does not match its shape and dtype, or exceeds the file")
    return tensor


def _sizes(value: object) -> TypeGuard[list[int]]:
    """Return whether a value is a short list of sizes within realistic limits."""
    return (
        isinstance(value, list)
        and len(value) <= _MAX_RANK
        and all(isinstance(size, int) and not isinstance(size, bool) and 0 <= size < 2**48 for size in value)
    )
