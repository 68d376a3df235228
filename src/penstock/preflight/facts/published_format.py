"""Finds the published checkpoint of a model's weights in another format, such as the FP8 version of a BF16 model."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from penstock.catalog import find_model, model_ids
from penstock.checkpoint import open_checkpoint
from penstock.errors import PenstockError
from penstock.preflight.facts.situation import Subject
from penstock.preflight.facts.subject import subject_of

_STORAGE: Final = frozenset({"torch_dtype", "dtype", "quantization_config", "tie_word_embeddings"})
"""Keys of a config that say how the weights are stored, not which weights they are."""


@cache
def published_format(model: str, weights: str) -> Subject | None:
    """Return the catalog's checkpoint with the weights of a model in a format; None if the catalog has none.

    The id of such a checkpoint is the model's id and the format, such as `qwen3-32b-fp8` for `qwen3-32b`. Both configs
    must describe the same shape. Of several checkpoints, the one with the shortest id is taken.
    """
    try:
        own = find_model(model)
    except PenstockError:
        return None
    names = sorted((ident for ident in model_ids() if ident.startswith(f"{own.id}-{weights}")), key=len)
    for name in names:
        if _same_shape(own.config, find_model(name).config):
            found = open_checkpoint(name)
            if next(iter(found.spec.formats), None) == weights:
                return subject_of(found, name)
    return None


def _same_shape(own: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two configs agree in every key that both state, except in how the weights are stored."""
    return all(
        _same_shape(own[key], other[key]) if isinstance(own[key], Mapping) else own[key] == other[key]
        for key in (own.keys() & other.keys()) - _STORAGE
    )
