"""Where is the model? A config.json, a directory, a name the catalog knows, or a hub repository."""

import json
from pathlib import Path
from typing import Final

from penstock.catalog import find_model
from penstock.checkpoint.files import Checkpoint, read_bounded
from penstock.checkpoint.hub import open_hub
from penstock.checkpoint.safetensors_header import StoredTensor, read_header
from penstock.errors import CheckpointError, UnknownName
from penstock.model import read_config

_SIDECAR: Final = "hf_quant_config.json"
_MAX_SHARDS: Final = 4096


def open_checkpoint(name: str, *, headers: bool = False) -> Checkpoint:
    """Resolve what a user typed: a path if it exists, else a catalog name, else `hf:org/name` on the hub."""
    if name.startswith("hf:"):
        return open_hub(name.removeprefix("hf:"), headers=headers)
    path = Path(name)
    try:
        exists = path.exists()
    except (OSError, ValueError):
        exists = False
    if exists:
        return _open_path(path, headers=headers)
    return _open_catalog(name)


def _open_path(path: Path, *, headers: bool) -> Checkpoint:
    config = path / "config.json" if path.is_dir() else path
    if not config.is_file():
        raise CheckpointError(f"{path} has no config.json")
    sidecar = config.parent / _SIDECAR
    spec = read_config(
        read_bounded(config),
        path.resolve().name if path.is_dir() else path.stem,
        read_bounded(sidecar) if sidecar.is_file() else None,
    )
    tensors = _headers(path) if headers and path.is_dir() else None
    return Checkpoint(spec=spec, source=str(path), tensors=tensors)


def _headers(folder: Path) -> tuple[StoredTensor, ...] | None:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        return None
    if len(files) > _MAX_SHARDS:
        raise CheckpointError(
            f"{folder} holds {len(files):,} safetensors files; a checkpoint has at most {_MAX_SHARDS:,}"
        )
    return tuple(tensor for file in files for tensor in read_header(file))


def _open_catalog(name: str) -> Checkpoint:
    try:
        known = find_model(name)
    except UnknownName as error:
        hub = f"; on the hub it would be hf:{name}" if name.count("/") == 1 else ""
        raise UnknownName(f"'{name}' is not a file or directory, and {error}{hub}") from None
    sidecar = None if known.quantisation_file is None else json.dumps(known.quantisation_file).encode()
    spec = read_config(json.dumps(known.config).encode(), known.id, sidecar)
    return Checkpoint(spec=spec, source=known.source)
