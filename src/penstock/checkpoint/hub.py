"""Reads a checkpoint's config and tensor headers, but neither code nor weights, from the Hugging Face hub."""

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.checkpoint.checkpoint_files import ConfigFiles, read_bounded
from penstock.checkpoint.safetensors.header import DTYPE_BITS, StoredTensor
from penstock.errors import CheckpointError, MissingExtra
from penstock.model.config_json import parse_json

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_REPOSITORY = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}(@[\w./-]{1,96})?")


def hub_config(repository: str) -> ConfigFiles:
    """Read the config files of `org/name` or `org/name@revision` from the hub."""
    api, name, revision = _client(repository)
    config = _download(api, name, "config.json", revision)
    if config is None:
        raise CheckpointError(f"hf:{repository} has no config.json")
    sidecar = _download(api, name, "hf_quant_config.json", revision)
    return ConfigFiles(
        name=name.rpartition("/")[2],
        config=parse_json(config, f"hf:{repository} config.json"),
        sidecar=None if sidecar is None else parse_json(sidecar, "hf_quant_config.json"),
        source=f"hf:{repository}",
    )


def hub_tensors(repository: str) -> tuple[StoredTensor, ...]:
    """Return the tensors in the headers of all shards of `org/name` or `org/name@revision` on the hub."""
    return _stored_tensors(*_client(repository))


def _client(repository: str) -> tuple["HfApi", str, str | None]:
    """Return a client of the hub, and the name and revision of a repository."""
    if not _REPOSITORY.fullmatch(repository):
        raise CheckpointError(
            f"'{repository[:120]}' is not a hub repository; use `hf:org/name` or `hf:org/name@revision`"
        )
    name, _, revision = repository.partition("@")
    try:
        from huggingface_hub import HfApi  # noqa: PLC0415 - optional extra
    except ImportError:
        raise MissingExtra("reading from the hub needs an extra: pip install 'penstock[hub]'") from None
    # The client prints two lines for each attempt to reach the hub; the error at the end says the same in one.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    return HfApi(), name, revision or None


def _download(api: "HfApi", name: str, file: str, revision: str | None) -> bytes | None:
    from huggingface_hub.errors import (  # noqa: PLC0415 - optional extra
        EntryNotFoundError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
    )

    try:
        return read_bounded(Path(api.hf_hub_download(name, file, revision=revision)))
    except LocalEntryNotFoundError as error:
        raise CheckpointError(
            f"hf:{name}: the hub cannot be reached; give a local directory or a catalog name"
        ) from error
    except EntryNotFoundError:
        return None
    except (HfHubHTTPError, OSError, ValueError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CheckpointError(f"hf:{name}: {first[:200]}") from error


def _stored_tensors(api: "HfApi", name: str, revision: str | None) -> tuple[StoredTensor, ...]:
    """Return the tensors in the headers of all shards. The client downloads only the headers."""
    metadata = api.get_safetensors_metadata(name, revision=revision)
    found = []
    for file in metadata.files_metadata.values():
        for tensor_name, tensor in file.tensors.items():
            if tensor.dtype not in DTYPE_BITS:
                raise CheckpointError(f"hf:{name}: tensor '{tensor_name[:80]}' has an unknown dtype")
            found.append(StoredTensor(tensor_name, str(tensor.dtype), tuple(tensor.shape)))
    return tuple(found)
