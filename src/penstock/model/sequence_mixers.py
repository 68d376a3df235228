"""Describes each kind of sequence mixer by its bytes and FLOPs: attention and recurrent states."""

from dataclasses import dataclass
from math import ceil, prod
from typing import Final, Protocol

from penstock.model.cache_dtypes import CacheDtype

EVERYTHING: Final = 2**62
"""Limit of attention that reads its whole context."""
AttentionSpan = tuple[tuple[int, float], ...]
"""Entries that a query attends to, as pairs of limit and share. With t tokens of context, the number of entries is the
sum of share x min(t, limit)."""


def heads_on_device(heads: int, tp: int) -> int:
    """Return the heads on one device. Engines replicate a head rather than divide it."""
    return max(1, ceil(heads / tp))


def _share_of_heads(heads: int, tp: int) -> float:
    return max(1.0, heads / tp)


def _fp8_index_bytes(width: int) -> int:
    """Return the bytes of an fp8 index key with one fp32 scale per 128 elements."""
    return width + 4 * ceil(width / 128)


class SequenceMixer(Protocol):
    """Interface of attention and recurrent layers: the bytes they keep, and the bytes and FLOPs of a query."""

    @property
    def kind(self) -> str:
        """Return the short name by which layers are grouped: full, sliding, latent, ..."""

    def bytes_per_token(self, dtype: CacheDtype, tp: int) -> float:
        """Return the bytes that one more token adds to a device's cache while the layer still keeps all tokens."""

    def remembered_tokens(self, tokens: int) -> int:
        """Return how many tokens of a sequence of `tokens` tokens the layer still keeps."""

    def bytes_per_sequence(self, dtype: CacheDtype, tp: int) -> int:
        """Return the bytes per sequence on a device that do not depend on its length."""

    @property
    def sight(self) -> AttentionSpan:
        """Return the cache entries that a query attends to."""

    def entry_bytes(self, dtype: CacheDtype, tp: int) -> float:
        """Return the bytes read for each attended entry."""

    def index_bytes(self, dtype: CacheDtype) -> float:
        """Return the bytes of index keys read for every token of context, attended or not."""

    def state_bytes(self, dtype: CacheDtype, tp: int) -> int:
        """Return the bytes read per decoded token, independent of the context."""

    def decode_flops(self, tp: int) -> float:
        """Return the FLOPs of one decoding query with one cache entry."""

    def prefill_flops(self, tp: int) -> float:
        """Return the FLOPs of one query with one entry in prefill."""

    @property
    def extra_kernels(self) -> int:
        """Return the kernels that the layer launches besides its matrices and plain attention."""

    @property
    def traits(self) -> tuple[str, ...]:
        """Return the traits by which attention backends distinguish this mixer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedAttention:
    """Multi-head, grouped-query or multi-query attention, over the whole context or a window."""

    query_heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    window_tokens: int | None = None
    """Number of preceding tokens that a token attends to. None means all."""
    shares_cache: bool = False
    """Whether it reads an earlier layer's keys and values instead of storing its own."""
    keeps_all_tokens: bool = False
    """Whether it attends within a chunk while engines keep the whole sequence (Llama 4 in vLLM)."""
    index_dim: int = 0
    """Width of the extra keys that a block-sparse indexer stores per token (MiniMax-M3)."""
    index_topk: int = 0
    """Tokens in the blocks that such an indexer selects."""

    @property
    def kind(self) -> str:
        """Return full, sliding or sparse."""
        if self.index_dim:
            return "sparse"
        return "full" if self.window_tokens is None else "sliding"

    def bytes_per_token(self, dtype: CacheDtype, tp: int) -> float:
        """Return the bytes of keys and values of the heads on this device. Index keys are replicated."""
        return 0.0 if self.shares_cache else self.entry_bytes(dtype, tp) + self.index_bytes(dtype)

    def remembered_tokens(self, tokens: int) -> int:
        """Return all tokens, or at most the window if there is one."""
        if self.window_tokens is None or self.keeps_all_tokens:
            return tokens
        return min(tokens, self.window_tokens)

    def bytes_per_sequence(self, dtype: CacheDtype, tp: int) -> int:  # noqa: ARG002 - part of the protocol
        """Return zero: all bytes are per token."""
        return 0

    @property
    def sight(self) -> AttentionSpan:
        """Return the window, the selected blocks, or the whole context."""
        return ((self.window_tokens or self.index_topk or EVERYTHING, 1.0),)

    def entry_bytes(self, dtype: CacheDtype, tp: int) -> float:
        """Return the bytes of keys and values of the heads on this device.

        A layer that shares its cache reads the keys and values of an earlier layer.
        """
        return float(heads_on_device(self.kv_heads, tp) * (self.key_dim + self.value_dim) * dtype.element_bytes)

    def index_bytes(self, dtype: CacheDtype) -> float:
        """Return the bytes of index keys in the cache's own dtype."""
        return float(self.index_dim * dtype.element_bytes)

    def state_bytes(self, dtype: CacheDtype, tp: int) -> int:  # noqa: ARG002 - part of the protocol
        """Return zero: there is no state."""
        return 0

    def decode_flops(self, tp: int) -> float:
        """Return the FLOPs of a query times a key, and of an attention weight times a value, for the device's heads."""
        return 2 * _share_of_heads(self.query_heads, tp) * (self.key_dim + self.value_dim)

    def prefill_flops(self, tp: int) -> float:
        """Return the same FLOPs as in decoding."""
        return self.decode_flops(tp)

    @property
    def extra_kernels(self) -> int:
        """Return three if there is an indexer, which scores, sorts and gathers."""
        return 3 if self.index_dim else 0

    @property
    def traits(self) -> tuple[str, ...]:
        """Return grouped, and chunked, sparse or sliding."""
        if self.keeps_all_tokens:
            return ("gqa", "chunked")
        if self.index_dim:
            return ("gqa", "sparse")
        return ("gqa",) if self.window_tokens is None else ("gqa", "sliding")


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (MLA): one compressed vector per token, replicated on every device."""

    query_heads: int
    latent_dim: int
    rope_dim: int
    nope_dim: int
    value_dim: int
    index_dim: int = 0
    """Width of the lightning indexer's key (DeepSeek sparse attention). 0 if the layer has no indexer."""
    index_topk: int = 0
    packed_fp8: bool = False
    """Whether sparse MLA kernels store fp8 latents with their scales and a bf16 rope part (656 bytes for 512 + 64)."""

    @property
    def kind(self) -> str:
        """Return latent, or sparse if an indexer selects the tokens."""
        return "latent_sparse" if self.index_topk else "latent"

    def bytes_per_token(self, dtype: CacheDtype, tp: int) -> float:
        """Return the bytes of the latent, its rope part, and the indexer's key."""
        return self.entry_bytes(dtype, tp) + self.index_bytes(dtype)

    def remembered_tokens(self, tokens: int) -> int:
        """Return all tokens. Sparse attention reads fewer tokens but keeps all."""
        return tokens

    def bytes_per_sequence(self, dtype: CacheDtype, tp: int) -> int:  # noqa: ARG002 - part of the protocol
        """Return zero: all bytes are per token."""
        return 0

    @property
    def sight(self) -> AttentionSpan:
        """Return the tokens that an indexer selects, or the whole context."""
        return ((self.index_topk or EVERYTHING, 1.0),)

    def entry_bytes(self, dtype: CacheDtype, tp: int) -> float:  # noqa: ARG002 - latents are not split
        """Return the bytes of the latent and its rope part."""
        if dtype is CacheDtype.FP8 and self.packed_fp8:
            return float(self.latent_dim + 4 * ceil(self.latent_dim / 128) + 2 * self.rope_dim)
        return float((self.latent_dim + self.rope_dim) * dtype.element_bytes)

    def index_bytes(self, dtype: CacheDtype) -> float:  # noqa: ARG002 - has a dtype of its own
        """Return the bytes of the lightning indexer's key, which is in fp8 regardless of the cache dtype."""
        return float(_fp8_index_bytes(self.index_dim))

    def state_bytes(self, dtype: CacheDtype, tp: int) -> int:  # noqa: ARG002 - part of the protocol
        """Return zero: there is no state."""
        return 0

    def decode_flops(self, tp: int) -> float:
        """Return the FLOPs of a query that multiplies with the latent itself (absorbed)."""
        return 2 * _share_of_heads(self.query_heads, tp) * (2 * self.latent_dim + self.rope_dim)

    def prefill_flops(self, tp: int) -> float:
        """Return the FLOPs of a query with latents expanded to heads first."""
        return 2 * _share_of_heads(self.query_heads, tp) * (self.nope_dim + self.rope_dim + self.value_dim)

    @property
    def extra_kernels(self) -> int:
        """Return three if the layer has its own indexer, which scores, sorts and gathers."""
        return 3 if self.index_dim else 0

    @property
    def traits(self) -> tuple[str, ...]:
        """Return latent, and sparse if an indexer selects the tokens."""
        return ("mla", "sparse") if self.index_topk else ("mla",)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedAttention:
    """DeepSeek-V4 attention: a sliding window of raw entries, and one compressed entry per `compress_ratio` tokens."""

    query_heads: int
    entry_dim: int
    rope_dim: int
    window_tokens: int
    compress_ratio: int
    """Tokens per compressed entry. 0 keeps the window only; 4 and 128 add a compressed cache that grows."""
    index_dim: int = 0
    index_topk: int = 0

    @property
    def kind(self) -> str:
        """Return the name by ratio: window, compressed_4, compressed_128."""
        return f"compressed_{self.compress_ratio}" if self.compress_ratio else "window"

    def bytes_per_token(self, dtype: CacheDtype, tp: int) -> float:
        """Return the bytes of the compressed entry and the index key, divided by the tokens that they represent."""
        if not self.compress_ratio:
            return 0.0
        return self.entry_bytes(dtype, tp) / self.compress_ratio + self.index_bytes(dtype)

    def remembered_tokens(self, tokens: int) -> int:
        """Return all tokens, in compressed form. Zero if the layer keeps the window only."""
        return tokens if self.compress_ratio else 0

    def bytes_per_sequence(self, dtype: CacheDtype, tp: int) -> int:
        """Return the bytes of the window of raw entries and of the compressors' running state."""
        return self.window_tokens * int(self.entry_bytes(dtype, tp)) + self.state_bytes(dtype, tp)

    @property
    def sight(self) -> AttentionSpan:
        """Return the window of raw entries, and all compressed entries or those that an indexer selects."""
        window = (self.window_tokens, 1.0)
        if not self.compress_ratio:
            return (window,)
        return window, (self.index_topk * self.compress_ratio or EVERYTHING, 1 / self.compress_ratio)

    def entry_bytes(self, dtype: CacheDtype, tp: int) -> float:  # noqa: ARG002 - replicated over devices
        """Return the bytes of an entry. Raw and compressed entries are stored in the same format."""
        if dtype is CacheDtype.FP8:
            # fp8 values, bf16 rope, one power-of-two scale per 64 values, padded to a word: 584 for 448 + 64.
            values = self.entry_dim - self.rope_dim
            return float(values + 2 * self.rope_dim + 8 * ceil(ceil(values / 64) / 8))
        return float(self.entry_dim * dtype.element_bytes)

    def index_bytes(self, dtype: CacheDtype) -> float:  # noqa: ARG002 - has a dtype of its own
        """Return the bytes per token of one index key for each compressed entry."""
        return _fp8_index_bytes(self.index_dim) / self.compress_ratio if self.compress_ratio else 0.0

    def state_bytes(self, dtype: CacheDtype, tp: int) -> int:  # noqa: ARG002 - has a dtype of its own, on every device
        """Return the bytes of the compressors' running state in fp32 (keys and gates)."""
        fine = bool(self.index_dim)
        state_tokens = 2 * self.compress_ratio if fine else self.compress_ratio
        width = (self.entry_dim + self.index_dim) * (2 if fine else 1)
        return state_tokens * 2 * width * 4

    def decode_flops(self, tp: int) -> float:
        """Return the FLOPs per entry, which is both key and value."""
        return 4 * _share_of_heads(self.query_heads, tp) * self.entry_dim

    def prefill_flops(self, tp: int) -> float:
        """Return the same FLOPs as in decoding."""
        return self.decode_flops(tp)

    @property
    def extra_kernels(self) -> int:
        """Return the kernels that mix streams before and after attention and feed-forward, compress, store and index.

        Mixing takes four, compressing and storing two, an indexer three.
        """
        return 4 + (2 if self.compress_ratio else 0) + (3 if self.index_dim else 0)

    @property
    def traits(self) -> tuple[str, ...]:
        """Return compressed and sparse, with sinks in every layer."""
        return ("compressed", "sparse", "sinks")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentState:
    """Linear attention or a state-space layer: a fixed state per sequence, split over devices by head."""

    kind_name: str
    heads: int
    state_shape: tuple[int, int]
    """Shape per head."""
    state_bytes_per_element: int
    conv_channels: int
    conv_taps: int
    """Kernel width minus one: the inputs that the short convolution keeps."""
    conv_bytes_per_element: int = 2

    @property
    def kind(self) -> str:
        """Return the family name: mamba2, gated_delta, kda, short_conv."""
        return self.kind_name

    def bytes_per_token(self, dtype: CacheDtype, tp: int) -> float:  # noqa: ARG002 - part of the protocol
        """Return zero: nothing grows with the sequence."""
        return 0.0

    def remembered_tokens(self, tokens: int) -> int:  # noqa: ARG002 - part of the protocol
        """Return zero: the state represents all tokens."""
        return 0

    def bytes_per_sequence(self, dtype: CacheDtype, tp: int) -> int:  # noqa: ARG002 - has a dtype of its own
        """Return the bytes of the recurrent heads on this device and of its share of the convolution window."""
        state = heads_on_device(self.heads, tp) * prod(self.state_shape) * self.state_bytes_per_element
        conv = ceil(self.conv_channels / tp) * self.conv_taps * self.conv_bytes_per_element
        return state + conv if self.heads else conv

    @property
    def sight(self) -> AttentionSpan:
        """Return no entries: tokens are read only through the state."""
        return ()

    def entry_bytes(self, dtype: CacheDtype, tp: int) -> float:  # noqa: ARG002 - part of the protocol
        """Return zero: there are no entries."""
        return 0.0

    def index_bytes(self, dtype: CacheDtype) -> float:  # noqa: ARG002 - part of the protocol
        """Return zero: there is no indexer."""
        return 0.0

    def state_bytes(self, dtype: CacheDtype, tp: int) -> int:
        """Return all bytes per sequence."""
        return self.bytes_per_sequence(dtype, tp)

    def decode_flops(self, tp: int) -> float:  # noqa: ARG002 - part of the protocol
        """Return zero: reading the state takes far longer than multiplying it."""
        return 0.0

    def prefill_flops(self, tp: int) -> float:  # noqa: ARG002 - part of the protocol
        """Return zero: the FLOPs are linear in the prompt and small relative to the projections."""
        return 0.0

    @property
    def extra_kernels(self) -> int:
        """Return three: convolution, state and gate."""
        return 3

    @property
    def traits(self) -> tuple[str, ...]:
        """Return linear."""
        return ("linear",)
