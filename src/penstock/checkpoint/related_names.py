"""Reads a repository that the catalog does not have as one that it has: the same name without a known suffix."""

import json
import re
from collections.abc import Mapping
from typing import Final

from penstock.catalog import find_model
from penstock.catalog.catalog_model import CatalogModel
from penstock.checkpoint.checkpoint_files import Checkpoint
from penstock.errors import UnknownName
from penstock.model import read_model
from penstock.model.config_json import parse_json

_SUFFIX: Final = re.compile(
    r"(?P<base>[\w-]+/[\w.-]+?)-(?:(?P<date>(?:0[1-9]|1[0-2])(?:[0-2]\d|3[01]))|(?P<draft>DSpark)|(?P<fp8>FP8)"
    r"|(?P<tuned>Chat|Instruct|Thinking|Base))",
    re.IGNORECASE,
)
_BLOCK_FP8_OWNERS: Final = frozenset({"qwen"})
"""Owners all of whose FP8 checkpoints that were read store blocks of 128 (https://huggingface.co/Qwen)."""
_FP8: Final[Mapping[str, object]] = {
    "quant_method": "fp8",
    "activation_scheme": "dynamic",
    "weight_block_size": [128, 128],
    "modules_to_not_convert": [
        *("lm_head", "embed_tokens", "visual", "in_proj_a", "in_proj_b", "conv1d", "mlp.gate", "shared_expert_gate"),
        "mtp.fc",
    ],
}
"""How Qwen stores FP8, as a copy "identical on disk" to Qwen3.6-35B-A3B-FP8 lists it
(https://friendli.ai/models/gsting/Qwen3.6-35B-A3B-abliterated-FP8)."""


def open_related(name: str) -> Checkpoint | None:
    """Open a repository under the shape of the catalog model whose repository it names with a suffix, or return None.

    The suffixes are a month and day (-0731), -DSpark, -FP8 (of owners whose FP8 layout is known), -Chat, -Instruct,
    -Thinking and -Base. The checkpoint says that its shape is assumed.
    """
    match = _SUFFIX.fullmatch(name.strip())
    known = None if match is None else _catalog_model(match["base"])
    if match is None or known is None:
        return None
    config, beside, as_what = dict(known.config), known.quantisation_file, "the shape of"
    if match["fp8"]:
        if beside is not None or "quantization_config" in json.dumps(config):
            return None
        if match["base"].partition("/")[0].lower() not in _BLOCK_FP8_OWNERS:
            return None
        config["quantization_config"], as_what = dict(_FP8), "in blocks of FP8 the shape of"
    parsed = parse_json(json.dumps(config).encode(), f"{known.id}.toml")
    sidecar = None if beside is None else parse_json(json.dumps(beside).encode(), "hf_quant_config.json")
    drafts = "; its draft module is not counted" if match["draft"] else ""
    return Checkpoint(
        spec=read_model(parsed, known.id, sidecar),
        source=known.source,
        repository=name.strip(),
        config=parsed,
        sidecar=sidecar,
        assumed=f"whether {name.strip()} has {as_what} {known.id}, as its name says{drafts}",
    )


def _catalog_model(repository: str) -> CatalogModel | None:
    try:
        return find_model(repository)
    except UnknownName:
        return None
