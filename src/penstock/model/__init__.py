"""What is this model? ModelSpec and how a config becomes one; pure, no files, no network."""

from penstock.model.attention import LatentAttention, RecurrentState
from penstock.model.cache import CacheDtype, cache_dtype
from penstock.model.read import read_config, read_model
from penstock.model.spec import Experts, Layer, ModelSpec
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
