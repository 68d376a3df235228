"""What does a layer remember? Each kind of sequence mixing, and the bytes it caches per token or per sequence."""

from dataclasses import dataclass
from enum import StrEnum
from math import ceil, prod
from typing import Protocol

from penstock.errors import ConfigError


class CacheDtype(StrEnum):
    """How keys and values are stored."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"

    @property
    def element_bytes(self) -> int:
        """Bytes of one cached element."""
        return _ELEMENT_BYTES[self]


_ELEMENT_BYTES = {CacheDtype.FP32: 4, CacheDtype.BF16: 2, CacheDtype.FP16: 2, CacheDtype.FP8: 1}


def heads_on_device(heads: int, tp: int) -> int:
    """Heads one device holds: engines replicate a head rather than cut it."""
    return max(1, ceil(heads / tp))


class SequenceMixer(Protocol):
    """What memory planning asks of any attention or recurrent layer."""

    @property
    def kind(self) -> str:
        """Short name people group layers by: full, sliding, latent, ..."""

    def bytes_per_token(self, dtype: CacheDtype, tp: int) -> float:
        """Bytes a device caches for one more token, while the layer still remembers all of them."""

    def remembered_tokens(self, tokens: int) -> int:
        """Of a sequence of `tokens`, how many the layer still holds."""

    def bytes_per_sequence(self, dtype: CacheDtype, tp: int) -> int:
        """Bytes a device holds for a sequence however long it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedAttention:
    """Multi-head, grouped-query or multi-query attention, over everything or over a window."""

    query_heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    window_tokens: int | None = None
    """A token attends to this many before it; None is all of them."""
    shares_cache: bool = False
    """Reads an earlier layer's keys and values instead of storing its own."""
    keeps_all_tokens: bool = False
    """Attends within a chunk, but engines keep the whole sequence (Llama 4 in vLLM)."""
    index_dim: int = 0
    """Width of the extra keys a block-sparse indexer stores per token (MiniMax-M3)."""

    @property
    def kind(self) -> str:
        """Full, sliding or sparse."""
        if self.index_dim:
            return "sparse"
        return "full" if self.window_tokens is None else "sliding"

    def bytes_per_token(self, dtype: CacheDtype, tp: int) -> float:
        """Keys and values of the heads on this device; index keys are replicated."""
        if self.shares_cache:
            return 0.0
        elements = heads_on_device(self.kv_heads, tp) * (self.key_dim + self.value_dim) + self.index_dim
        return float(elements * dtype.element_bytes)

    def remembered_tokens(self, tokens: int) -> int:
        """Everything, or the window."""
        if self.window_tokens is None or self.keeps_all_tokens:
            return tokens
        return min(tokens, self.window_tokens)

    def bytes_per_sequence(self, dtype: CacheDtype, tp: int) -> int:  # noqa: ARG002 - part of the protocol
        """Nothing beyond the tokens."""
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (MLA): one compressed vector per token, the same on every device."""

    query_heads: int
    latent_dim: int
    rope_dim: int
    nope_dim: int
    value_dim: int
    index_dim: int = 0
    """Width of the lightning indexer's key (DeepSeek sparse attention); 0 where the layer has no indexer."""
    index_topk: int = 0
    packed_fp8: bool = False
    """Sparse MLA kernels store fp8 latents with their scales and a bf16 rope part (656 bytes for 512 + 64)."""

    @property
    def kind(self) -> str:
        """Latent, or sparse when an indexer picks the tokens."""
        return "latent_sparse" if self.index_topk else "latent"

    def bytes_per_token(self, dtype: CacheDtype, tp: int) -> float:  # noqa: ARG002 - latents are not split
        """The latent, its rope part, and the indexer's fp8 key with one fp32 scale per 128 elements."""
        if dtype is CacheDtype.FP8 and self.packed_fp8:
            latent = self.latent_dim + 4 * ceil(self.latent_dim / 128) + 2 * self.rope_dim
        else:
            latent = (self.latent_dim + self.rope_dim) * dtype.element_bytes
        return float(latent + self.index_dim + 4 * ceil(self.index_dim / 128))

    def remembered_tokens(self, tokens: int) -> int:
        """All of them: sparse attention reads fewer tokens, it does not forget any."""
        return tokens

    def bytes_per_sequence(self, dtype: CacheDtype, tp: int) -> int:  # noqa: ARG002 - part of the protocol
        """Nothing beyond the tokens."""
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedAttention:
    """DeepSeek-V4: a sliding window of raw entries, and one compressed entry per `compress_ratio` tokens."""

    query_heads: int
    entry_dim: int
    rope_dim: int
    window_tokens: int
    compress_ratio: int
    """0 keeps the window only; 4 and 128 add a compressed cache that grows."""
    index_dim: int = 0
    index_topk: int = 0

    @property
    def kind(self) -> str:
        """By ratio: window, compressed_4, compressed_128."""
        return f"compressed_{self.compress_ratio}" if self.compress_ratio else "window"

    def _entry_bytes(self, dtype: CacheDtype) -> int:
        if dtype is CacheDtype.FP8:
            # fp8 values, bf16 rope, one power-of-two scale per 64 values, padded to a word: 584 for 448 + 64.
            values = self.entry_dim - self.rope_dim
            return values + 2 * self.rope_dim + 8 * ceil(ceil(values / 64) / 8)
        return self.entry_dim * dtype.element_bytes

    def bytes_per_token(self, dtype: CacheDtype, tp: int) -> float:  # noqa: ARG002 - replicated over devices
        """The compressed entry and the index key, shared by the tokens they stand for."""
        if not self.compress_ratio:
            return 0.0
        index = self.index_dim + 4 * ceil(self.index_dim / 128)
        return (self._entry_bytes(dtype) + index) / self.compress_ratio

    def remembered_tokens(self, tokens: int) -> int:
        """All of them, in compressed form."""
        return tokens if self.compress_ratio else 0

    def bytes_per_sequence(self, dtype: CacheDtype, tp: int) -> int:  # noqa: ARG002 - replicated over devices
        """The window of raw entries, and the compressors' running state in fp32 (keys and gates)."""
        window = self.window_tokens * self._entry_bytes(dtype)
        if not self.compress_ratio:
            return window
        fine = bool(self.index_dim)
        state_tokens = 2 * self.compress_ratio if fine else self.compress_ratio
        width = (self.entry_dim + self.index_dim) * (2 if fine else 1)
        return window + state_tokens * 2 * width * 4


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentState:
    """Linear attention or a state-space layer: a fixed state per sequence, split over devices by head."""

    kind_name: str
    heads: int
    state_shape: tuple[int, int]
    """Per head."""
    state_bytes_per_element: int
    conv_channels: int
    conv_taps: int
    """Kernel width minus one: the inputs the short convolution keeps."""
    conv_bytes_per_element: int = 2

    @property
    def kind(self) -> str:
        """The family name: mamba2, gated_delta, kda, short_conv."""
        return self.kind_name

    def bytes_per_token(self, dtype: CacheDtype, tp: int) -> float:  # noqa: ARG002 - part of the protocol
        """Nothing grows with the sequence."""
        return 0.0

    def remembered_tokens(self, tokens: int) -> int:  # noqa: ARG002 - part of the protocol
        """The state stands for all of them."""
        return 0

    def bytes_per_sequence(self, dtype: CacheDtype, tp: int) -> int:  # noqa: ARG002 - has a dtype of its own
        """The recurrent state of the heads on this device and its share of the convolution window."""
        state = heads_on_device(self.heads, tp) * prod(self.state_shape) * self.state_bytes_per_element
        conv = ceil(self.conv_channels / tp) * self.conv_taps * self.conv_bytes_per_element
        return state + conv if self.heads else conv


def cache_dtype(name: str) -> CacheDtype:
    """Read a cache dtype as engines and configs spell it."""
    spelled = name.strip().lower().removeprefix("torch.")
    known = {
        "bfloat16": CacheDtype.BF16,
        "bf16": CacheDtype.BF16,
        "float16": CacheDtype.FP16,
        "fp16": CacheDtype.FP16,
        "half": CacheDtype.FP16,
        "float32": CacheDtype.FP32,
        "fp32": CacheDtype.FP32,
        "float": CacheDtype.FP32,
        "fp8": CacheDtype.FP8,
        "fp8_e4m3": CacheDtype.FP8,
        "fp8_e5m2": CacheDtype.FP8,
    }
    if spelled not in known:
        raise ConfigError(f"'{name[:40]}' is not a cache dtype; known: bf16, fp16, fp8, fp32")
    return known[spelled]
