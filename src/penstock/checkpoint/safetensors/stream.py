"""Streams tensors in chunks through one buffer, in file order."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

import numpy as np
from numpy.typing import NDArray

from penstock.checkpoint.safetensors.header import StoredTensor, read_header
from penstock.errors import CheckpointError

CHUNK_BYTES: Final = 1 << 19
"""Chunk size in bytes. A chunk fits in a core's cache, so that the chunk is still cached while it is processed."""
Codes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Shard:
    """One file and its tensors, in file order."""

    path: Path
    data_begin: int
    tensors: tuple[StoredTensor, ...]
    data_bytes: int
    """Number of bytes after the header."""

    @property
    def spare_bytes(self) -> int:
        """Return the number of bytes that belong to no tensor. The result is 0 for a valid file."""
        return self.data_bytes - sum(tensor.stored_bytes for tensor in self.tensors)


def open_shard(path: Path) -> Shard:
    """Read a shard's header, and sort its tensors by offset so that reads are sequential."""
    tensors = read_header(path)
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
    ordered = sorted(tensors, key=lambda tensor: tensor.begin or 0)
    return Shard(path, 8 + length, tuple(ordered), path.stat().st_size - 8 - length)


class ShardReader:
    """Reader that streams the tensors of one shard through one buffer."""

    def __init__(self, shard: Shard, chunk_bytes: int = CHUNK_BYTES) -> None:
        self.shard = shard
        self._buffer = np.empty(chunk_bytes, np.uint8)
        self._file: BinaryIO | None = None

    def __enter__(self) -> Self:
        try:
            self._file = self.shard.path.open("rb", buffering=0)
        except OSError as error:
            raise CheckpointError(f"{self.shard.path.name}: {error.strerror or error}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def chunks(self, tensor: StoredTensor) -> Iterator[Codes]:
        """Yield a tensor's bytes in chunks. Each chunk is valid until the next chunk is requested."""
        if self._file is None:
            raise CheckpointError(f"{self.shard.path.name} is not open")
        left = tensor.stored_bytes
        self._file.seek(self.shard.data_begin + (tensor.begin or 0))
        while left:
            view = self._buffer[: min(left, self._buffer.size)]
            self._fill(view, tensor)
            left -= view.size
            yield view

    def whole(self, tensor: StoredTensor, limit: int) -> Codes:
        """Read a small tensor at once."""
        if tensor.stored_bytes > limit:
            raise CheckpointError(
                f"{self.shard.path.name}: '{tensor.name[:80]}' has {tensor.stored_bytes:,} bytes; "
                f"a scale may have at most {limit:,}"
            )
        pieces = [chunk.copy() for chunk in self.chunks(tensor)]
        return np.concatenate(pieces) if pieces else np.empty(0, np.uint8)

    def _fill(self, view: Codes, tensor: StoredTensor) -> None:
        got = 0
        target = view.data
        while got < view.size and self._file is not None:
            try:
                count = self._file.readinto(target[got:])  # type: ignore[attr-defined] # raw files have it
            except OSError as error:
                raise CheckpointError(f"{self.shard.path.name}: {error.strerror or error}") from error
            if not count:
                raise CheckpointError(f"{self.shard.path.name}: the file ends inside tensor '{tensor.name[:80]}'")
            got += count
