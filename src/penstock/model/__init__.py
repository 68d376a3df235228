"""Converts the config of a checkpoint into a ModelSpec. The package opens no files and uses no network."""

from penstock.model.cache_dtypes import CacheDtype, cache_dtype
from penstock.model.model_reader import read_config, read_model
from penstock.model.model_spec import Experts, Layer, ModelSpec
from penstock.model.sequence_mixers import LatentAttention, RecurrentState
from penstock.model.weight import Part, Split, Weight, WeightFormat

__all__ = [
    "CacheDtype",
    "Experts",
    "LatentAttention",
    "Layer",
    "ModelSpec",
    "Part",
    "RecurrentState",
    "Split",
    "Weight",
    "WeightFormat",
    "cache_dtype",
    "read_config",
    "read_model",
]
