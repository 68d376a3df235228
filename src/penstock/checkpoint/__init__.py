"""Reads the configs and tensor headers of a checkpoint from disk or from the hub.

The package `fp8` also reads weights.
"""

from penstock.checkpoint.checkpoint_files import Checkpoint
from penstock.checkpoint.crosscheck import CrossCheck, cross_check
from penstock.checkpoint.locate import open_checkpoint, open_config
from penstock.checkpoint.safetensors.header import StoredTensor, read_header

__all__ = ["Checkpoint", "CrossCheck", "StoredTensor", "cross_check", "open_checkpoint", "open_config", "read_header"]
