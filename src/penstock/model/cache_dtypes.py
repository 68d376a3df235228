"""Lists the KV-cache dtypes that engines know, and their spellings."""

from enum import StrEnum
from typing import Final

from penstock.errors import ConfigError


class CacheDtype(StrEnum):
    """Storage dtype of keys and values."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"

    @property
    def element_bytes(self) -> int:
        """Return the bytes of one cached element."""
        return _ELEMENT_BYTES[self]


_ELEMENT_BYTES: Final = {CacheDtype.FP32: 4, CacheDtype.BF16: 2, CacheDtype.FP16: 2, CacheDtype.FP8: 1}
_SPELLINGS: Final = {
    CacheDtype.BF16: ("bfloat16", "bf16"),
    CacheDtype.FP16: ("float16", "fp16", "half"),
    CacheDtype.FP32: ("float32", "fp32", "float"),
    CacheDtype.FP8: ("fp8", "fp8_e4m3", "fp8_e5m2"),
}


def cache_dtype(name: str) -> CacheDtype:
    """Parse a cache dtype as engines and configs spell it."""
    spelled = name.strip().lower().removeprefix("torch.")
    for dtype, spellings in _SPELLINGS.items():
        if spelled in spellings:
            return dtype
    raise ConfigError(f"'{name[:40]}' is not a cache dtype; known: bf16, fp16, fp8, fp32")
