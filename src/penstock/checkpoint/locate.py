"""Locates a model by its config.json, its directory, its catalog name or its hub repository."""

import json
from pathlib import Path
from typing import Final

from penstock.catalog import find_model
from penstock.checkpoint.checkpoint_files import Checkpoint, read_bounded
from penstock.checkpoint.hub import open_hub
from penstock.checkpoint.safetensors.header import StoredTensor, read_header
from penstock.checkpoint.shards import shards_of
from penstock.errors import CheckpointError, UnknownName, UsageError
from penstock.model import read_model
from penstock.model.config_json import parse_json

_CONFIG: Final = "config.json"
_SIDECAR: Final = "hf_quant_config.json"


def open_checkpoint(name: str, *, headers: bool = False) -> Checkpoint:
    """Open the model that a user names.

    The name is `hf:org/name` for a model on the hub, else a path if the path exists, else a catalog name.
    """
    if not name.strip():
        raise UsageError("no model is named; give a config.json, a directory, a catalog name or hf:org/name")
    if name.startswith("hf:"):
        return open_hub(name.removeprefix("hf:"), headers=headers)
    path = Path(name)
    try:
        exists = path.exists()
    except (OSError, ValueError):
        exists = False
    if not exists:
        return _open_catalog(name)
    config = path / _CONFIG if path.is_dir() else path
    return _open_config(config, str(path), headers=headers) if config.is_file() else _open_shadowed(path)


def _open_config(config: Path, source: str, *, headers: bool) -> Checkpoint:
    beside = config.parent / _SIDECAR
    parsed = parse_json(read_bounded(config), str(config))
    sidecar = parse_json(read_bounded(beside), _SIDECAR) if beside.is_file() else None
    spec = read_model(parsed, config.resolve().parent.name if config.name == _CONFIG else config.stem, sidecar)
    tensors = _headers(config.parent) if headers else None
    return Checkpoint(spec=spec, source=source, tensors=tensors, config=parsed, sidecar=sidecar)


def _headers(folder: Path) -> tuple[StoredTensor, ...] | None:
    files = shards_of(folder)
    return tuple(tensor for file in files for tensor in read_header(file)) if files else None


def _open_shadowed(path: Path) -> Checkpoint:
    """Open the catalog model whose name is also the name of a directory without a checkpoint."""
    try:
        return _open_catalog(str(path))
    except UnknownName:
        raise CheckpointError(f"{path} has no {_CONFIG}") from None


def _open_catalog(name: str) -> Checkpoint:
    try:
        known = find_model(name)
    except UnknownName as error:
        hub = f"; on the hub it would be hf:{name}" if name.count("/") == 1 else ""
        raise UnknownName(f"'{name}' is not a file or directory, and {error}{hub}") from None
    config = parse_json(json.dumps(known.config).encode(), f"{known.id}.toml")
    beside = known.quantisation_file
    sidecar = None if beside is None else parse_json(json.dumps(beside).encode(), _SIDECAR)
    spec = read_model(config, known.id, sidecar)
    return Checkpoint(spec=spec, source=known.source, repository=known.repo, config=config, sidecar=sidecar)
