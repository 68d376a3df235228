"""Lists a checkpoint's weight files.

If there is an index, only its files are listed, so that a second copy of the weights is ignored.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from penstock.checkpoint.checkpoint_files import read_bounded
from penstock.checkpoint.safetensors.header import MAX_HEADER_BYTES
from penstock.errors import CheckpointError, ConfigError
from penstock.model.config_json import parse_json

_INDEX: Final = "model.safetensors.index.json"
_SHARD: Final = re.compile(r"\w[\w.-]{0,200}\.safetensors")
_MAX_SHARDS: Final = 4096


def shards_of(folder: Path) -> tuple[Path, ...]:
    """List the weight files.

    Weight files are the files in the index, else `model*.safetensors`, else all safetensors files.

    Checkpoints of Mistral hold two copies of the weights, and only the files of one copy are named `model*`.
    """
    index = folder / _INDEX
    if index.is_file():
        return tuple(folder / name for name in _shard_names(index))
    every = sorted(folder.glob("*.safetensors"))
    files = [file for file in every if file.name.startswith("model")] or every
    if len(files) > _MAX_SHARDS:
        raise CheckpointError(
            f"{folder}: the directory has {len(files):,} safetensors files; at most {_MAX_SHARDS:,} are allowed"
        )
    return tuple(files)


def indexed_tensors(folder: Path) -> Mapping[str, str]:
    """Map each tensor to its file according to the index. The map is empty if there is no index."""
    index = folder / _INDEX
    return {str(name): str(file) for name, file in _weight_map(index).items()} if index.is_file() else {}


def declared_block(folder: Path) -> tuple[int, int] | None:
    """Return the scale block that config.json declares.

    The result is None if the file declares no block, is missing or is invalid.
    """
    file = folder / "config.json"
    if not file.is_file():
        return None
    try:
        config = parse_json(read_bounded(file), str(file))
        section = config.optional("quantization_config")
        block = () if section is None or not section.has("weight_block_size") else section.integers("weight_block_size")
    except ConfigError:
        return None
    return (block[0], block[1]) if len(block) == 2 else None


def _shard_names(index: Path) -> tuple[str, ...]:
    names = sorted({str(name) for name in _weight_map(index).values()})
    # The index is untrusted: a shard must be in the same directory.
    outside = next((name for name in names if not _SHARD.fullmatch(name)), None)
    if outside is not None or len(names) > _MAX_SHARDS:
        raise CheckpointError(
            f"{index}: weight_map names '{(outside or names[0])[:80]}', "
            "which is not a safetensors file in the same directory"
        )
    return tuple(names)


def _weight_map(index: Path) -> Mapping[object, object]:
    try:
        raw = json.loads(read_bounded(index, MAX_HEADER_BYTES))
    except (ValueError, RecursionError):
        raise CheckpointError(f"{index}: not valid JSON") from None
    held = raw.get("weight_map") if isinstance(raw, dict) else None
    if not isinstance(held, dict):
        raise CheckpointError(f"{index}: weight_map is missing or not an object")
    return held
