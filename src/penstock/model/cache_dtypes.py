"""Lists the KV-cache dtypes that engines know, and their spellings."""

from enum import StrEnum
from typing import Final

from penstock.errors import ConfigError


class CacheDtype(StrEnum):
    """Storage dtype of keys and values."""

    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    FP32 = "fp32"
    FP8_DYNAMIC = "fp8_per_token_head"
    INT8_DYNAMIC = "int8_per_token_head"
    INT4_DYNAMIC = "int4_per_token_head"
    """INT4 with one scale per token and head, computed as tokens arrive. FP8_DYNAMIC and INT8_DYNAMIC are alike."""
    NVFP4 = "nvfp4"
    NVFP4_DS_MLA = "nvfp4_ds_mla"
    """NVFP4 latents with an FP8 rope part, for sparse MLA."""

    def vector_bytes(self, width: int) -> float:
        """Return the bytes of a cached vector of `width` elements, with the scales that are stored with it."""
        bits, scales_per_element, scale_bytes = _LAYOUTS[self]
        return width * (bits / 8 + scales_per_element) + scale_bytes


_LAYOUTS: Final = {
    CacheDtype.FP32: (32, 0.0, 0),
    CacheDtype.BF16: (16, 0.0, 0),
    CacheDtype.FP16: (16, 0.0, 0),
    CacheDtype.FP8: (8, 0.0, 0),
    CacheDtype.FP8_DYNAMIC: (8, 0.0, 4),
    CacheDtype.INT8_DYNAMIC: (8, 0.0, 4),
    CacheDtype.INT4_DYNAMIC: (4, 0.0, 4),
    CacheDtype.NVFP4: (4, 1 / 16, 0),
    CacheDtype.NVFP4_DS_MLA: (4, 1 / 16, 0),
}
"""Bits of an element, FP8 scales per element, and bytes of the fp32 scale of a whole vector, as vLLM budgets them
(vllm@v0.25.0:vllm/v1/kv_cache_interface.py, page_size_bytes; nvfp4_kv_cache_full_dim in vllm/utils/torch_utils.py).
SGLang's fp4 caches have the same bytes (sglang@v0.5.18:python/sglang/srt/model_executor/pool_configurator.py)."""
_SPELLINGS: Final = {
    CacheDtype.BF16: ("bfloat16", "bf16"),
    CacheDtype.FP16: ("float16", "fp16", "half"),
    CacheDtype.FP32: ("float32", "fp32", "float"),
    CacheDtype.FP8: ("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_ds_mla"),
    CacheDtype.FP8_DYNAMIC: ("fp8_per_token_head",),
    CacheDtype.INT8_DYNAMIC: ("int8_per_token_head",),
    CacheDtype.INT4_DYNAMIC: ("int4_per_token_head",),
    CacheDtype.NVFP4: ("nvfp4", "nvfp4_4over6", "fp4_e2m1", "fp4_mx_block16"),
    CacheDtype.NVFP4_DS_MLA: ("nvfp4_ds_mla",),
}


def cache_dtype(name: str) -> CacheDtype:
    """Parse a cache dtype as engines and configs spell it."""
    spelled = name.strip().lower().removeprefix("torch.")
    for dtype, spellings in _SPELLINGS.items():
        if spelled in spellings:
            return dtype
    raise ConfigError(f"'{name[:40]}' is not a cache dtype; known: {', '.join(CacheDtype)}")
