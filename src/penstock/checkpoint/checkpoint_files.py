"""What is a checkpoint once its files are read?"""

from dataclasses import dataclass
from pathlib import Path

from penstock.checkpoint.safetensors.header import StoredTensor
from penstock.errors import CheckpointError
from penstock.model import ModelSpec
from penstock.model.config_json import MAX_CONFIG_BYTES, Config


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A model and where it was read."""

    spec: ModelSpec
    source: str
    repository: str | None = None
    """Its name on the hub, where it has one: what an engine is told to load."""
    tensors: tuple[StoredTensor, ...] | None = None
    """Headers of the weight files, where they are at hand."""
    config: Config | None = None
    """config.json as it was parsed, for what a ModelSpec does not keep (activation schemes, KV scales)."""
    sidecar: Config | None = None
    """hf_quant_config.json beside it."""


def read_bounded(path: Path, limit: int = MAX_CONFIG_BYTES) -> bytes:
    """Read a small file; one byte beyond the limit is enough for its parser to refuse it."""
    try:
        with path.open("rb") as file:
            return file.read(limit + 1)
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror or error}") from error
