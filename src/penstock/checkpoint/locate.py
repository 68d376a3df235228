"""Locates a model by its config.json, its directory, its catalog name or its hub repository."""

import json
from pathlib import Path
from typing import Final

from penstock.catalog import find_model, find_unread_model
from penstock.checkpoint.checkpoint_files import Checkpoint, ConfigFiles, read_bounded
from penstock.checkpoint.hub import hub_config, hub_tensors
from penstock.checkpoint.safetensors.header import StoredTensor, read_header
from penstock.checkpoint.shards import shards_of
from penstock.errors import CheckpointError, UnknownName, UsageError
from penstock.model import read_model
from penstock.model.config_json import Config, parse_json

_CONFIG: Final = "config.json"
_SIDECAR: Final = "hf_quant_config.json"


def open_checkpoint(name: str, *, headers: bool = False) -> Checkpoint:
    """Open the model that a user names.

    The name is `hf:org/name` for a model on the hub, else a path if the path exists, else a catalog name.
    """
    files = open_config(name)
    spec = read_model(files.config, files.name, files.sidecar)
    tensors = None
    if headers and files.folder is not None:
        tensors = _headers(files.folder)
    elif headers and name.startswith("hf:"):
        tensors = hub_tensors(name.removeprefix("hf:"))
    return Checkpoint(
        spec=spec,
        source=files.source,
        repository=files.repository,
        tensors=tensors,
        config=files.config,
        sidecar=files.sidecar,
    )


def open_config(name: str) -> ConfigFiles:
    """Open the config files of the model that a user names, without reading the shape of the model."""
    if not name.strip():
        raise UsageError("no model is named; give a config.json, a directory, a catalog name or hf:org/name")
    if name.startswith("hf:"):
        return hub_config(name.removeprefix("hf:"))
    path = Path(name)
    try:
        exists = path.exists()
    except (OSError, ValueError):
        exists = False
    if not exists:
        return _catalog_config(name)
    config = path / _CONFIG if path.is_dir() else path
    return _local_config(config, str(path)) if config.is_file() else _shadowed_config(path)


def _local_config(config: Path, source: str) -> ConfigFiles:
    beside = config.parent / _SIDECAR
    return ConfigFiles(
        name=config.resolve().parent.name if config.name == _CONFIG else config.stem,
        config=parse_json(read_bounded(config), str(config)),
        sidecar=parse_json(read_bounded(beside), _SIDECAR) if beside.is_file() else None,
        source=source,
        folder=config.parent,
    )


def _headers(folder: Path) -> tuple[StoredTensor, ...] | None:
    files = shards_of(folder)
    return tuple(tensor for file in files for tensor in read_header(file)) if files else None


def _shadowed_config(path: Path) -> ConfigFiles:
    """Open the catalog model whose name is also the name of a directory without a checkpoint."""
    try:
        return _catalog_config(str(path))
    except UnknownName:
        raise CheckpointError(f"{path} has no {_CONFIG}") from None


def _catalog_config(name: str) -> ConfigFiles:
    try:
        known = find_model(name)
    except UnknownName as error:
        if (unread := find_unread_model(name)) is not None:
            config = Config({"architectures": [unread.architecture]}, unread.id)
            return ConfigFiles(
                name=unread.id, config=config, sidecar=None, source=unread.source, repository=unread.repo
            )
        hub = f"; on the hub it would be hf:{name}" if name.count("/") == 1 else ""
        raise UnknownName(f"{error}{hub}; no file or directory has this name either") from None
    beside = known.quantisation_file
    return ConfigFiles(
        name=known.id,
        config=parse_json(json.dumps(known.config).encode(), f"{known.id}.toml"),
        sidecar=None if beside is None else parse_json(json.dumps(beside).encode(), _SIDECAR),
        source=known.source,
        repository=known.repo,
    )
