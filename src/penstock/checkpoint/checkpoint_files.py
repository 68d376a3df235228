"""Defines the Checkpoint type, and reads the small files of a checkpoint up to a size limit."""

from dataclasses import dataclass
from pathlib import Path

from penstock.checkpoint.safetensors.header import StoredTensor
from penstock.errors import CheckpointError
from penstock.model import ModelSpec
from penstock.model.config_json import MAX_CONFIG_BYTES, Config


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A model, and the source from which it was read."""

    spec: ModelSpec
    source: str
    repository: str | None = None
    """Hub repository, under whose name an engine loads the checkpoint. None if the checkpoint is in no repository."""
    tensors: tuple[StoredTensor, ...] | None = None
    """Tensors in the headers of the weight files. None if no headers were read."""
    config: Config | None = None
    """Parsed config.json, for properties that ModelSpec does not keep (activation schemes, KV scales)."""
    sidecar: Config | None = None
    """Parsed hf_quant_config.json, if there is one."""
    assumed: str = ""
    """What is assumed of the checkpoint without its own config; empty if its config was read."""


@dataclass(frozen=True, kw_only=True)
class ConfigFiles:
    """The config files of a model, parsed. The shape of the model is not read yet."""

    name: str
    """Short name of the model."""
    config: Config
    sidecar: Config | None
    source: str
    repository: str | None = None
    folder: Path | None = None
    """Directory that holds the files. None if the model is not on this machine."""


def read_bounded(path: Path, limit: int = MAX_CONFIG_BYTES) -> bytes:
    """Read a small file up to one byte beyond the size limit.

    The extra byte lets the parser refuse a file that is too large.
    """
    try:
        with path.open("rb") as file:
            return file.read(limit + 1)
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror or error}") from error
