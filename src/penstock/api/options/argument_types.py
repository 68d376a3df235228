"""Defines types of arguments. A value is either text as users type it, or an object of the library."""

from collections.abc import Sequence
from os import PathLike
from typing import TypeAlias

from penstock.catalog.accelerator import Accelerator
from penstock.model import ModelSpec

AskedModel: TypeAlias = str | PathLike[str] | ModelSpec
"""A config.json, a checkpoint directory, a catalog name, hf:org/name, or a loaded model."""
Target: TypeAlias = str | Accelerator | tuple[str | Accelerator, int]
Targets: TypeAlias = Target | Sequence[Target]
"""`mi300x,h100:2,8xb200`, an accelerator, or a sequence of them, each optionally with a device count."""
Tokens: TypeAlias = int | str
"""A token count: 4096, `32k` or `1M`."""
Loads: TypeAlias = int | str | Sequence[int]
"""Numbers of requests in flight: 64, `1,4,16,64` or a sequence of numbers."""
