"""Describes the bytes and FLOPs of each kind of sequence mixer. A mixer is an attention layer or a recurrent layer."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import ceil, prod
from typing import Final

from penstock.model.cache_dtypes import CacheDtype

EVERYTHING: Final = 2**62
"""Limit in an AttentionSpan for attention that reads the whole context."""
AttentionSpan = tuple[tuple[int, float], ...]
"""Number of cache entries that a query attends to, as pairs of limit and share. With t tokens of context, the number is
the sum of share x min(t, limit) over all pairs."""


def heads_on_device(heads: int, tp: int) -> int:
    """Return the number of heads on one device. Engines replicate a head rather than divide it."""
    return max(1, ceil(heads / tp))


def _share_of_heads(heads: int, tp: int) -> float:
    return max(1.0, heads / tp)


def _fp8_index_bytes(width: int) -> int:
    """Return the bytes of an fp8 index key with one fp32 scale per 128 elements."""
    return width + 4 * ceil(width / 128)


class SequenceMixer(ABC):
    """Base class of attention and recurrent layers.

    The methods return the bytes that a layer keeps, and the bytes and FLOPs of a query.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def kind(self) -> str:
        """Return the short name by which layers are grouped: full, sliding, latent, ..."""

    @abstractmethod
    def bytes_per_token(self, dtype: CacheDtype, tp: int) -> float:
        """Return the bytes that one more token adds to a device's cache.

        The result is valid while the layer still keeps all tokens of the sequence.
        """

    @abstractmethod
    def remembered_tokens(self, tokens: int) -> int:
        """Return the number of tokens that the layer still keeps of a sequence with `tokens` tokens."""

    def bytes_per_sequence(self, dtype: CacheDtype, tp: int) -> int:  # noqa: ARG002 - a default
        """Return the bytes per sequence on a device that do not depend on the sequence length. The default is zero."""
        return 0

    @property
    @abstractmethod
    def sight(self) -> AttentionSpan:
        """Return the cache entries that a query attends to."""

    @abstractmethod
    def entry_bytes(self, dtype: CacheDtype, tp: int) -> float:
        """Return the bytes read for each attended entry."""

    def index_bytes(self, dtype: CacheDtype) -> float:  # noqa: ARG002 - a default
        """Return the bytes of index keys read per token of context, attended or not. The default is zero."""
        return 0.0

    def state_bytes(self, dtype: CacheDtype, tp: int) -> int:  # noqa: ARG002 - a default
        """Return the state bytes that are read per decoded token, at any context. The default is zero: no state."""
        return 0

    @abstractmethod
    def decode_flops(self, tp: int) -> float:
        """Return the attention FLOPs per pair of a query and a cache entry in decoding."""

    def prefill_flops(self, tp: int) -> float:
        """Return the attention FLOPs per pair of a query and a cache entry in prefill. Default: as in decoding."""
        return self.decode_flops(tp)

    @property
    @abstractmethod
    def extra_kernels(self) -> int:
        """Return the number of kernels that the layer launches besides its matrix products and plain attention."""

    @property
    @abstractmethod
    def traits(self) -> tuple[str, ...]:
        """Return the traits by which attention backends classify this mixer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedAttention(SequenceMixer):
    """Multi-head, grouped-query or multi-query attention, over the whole context or a window."""

    query_heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    window_tokens: int | None = None
    """Number of preceding tokens that a token attends to. None means all tokens."""
    shares_cache: bool = False
    """Whether the layer reads the keys and values of an earlier layer and stores no keys and values."""
    keeps_all_tokens: bool = False
    """Whether engines keep the whole sequence although the layer attends only within a chunk (Llama 4 in vLLM)."""
    index_dim: int = 0
    """Width of the extra keys that a block-sparse indexer stores per token (MiniMax-M3)."""
    index_topk: int = 0
    """Number of tokens in the blocks that the block-sparse indexer selects."""

    @property
    def kind(self) -> str:
        """Return `full`, `sliding` or `sparse`."""
        if self.index_dim:
            return "sparse"
        return "full" if self.window_tokens is None else "sliding"

    def bytes_per_token(self, dtype: CacheDtype, tp: int) -> float:
        """Return the bytes of the keys and values of the heads on this device, and of the index keys.

        Index keys are replicated on every device. A layer that shares the cache of an earlier layer adds zero bytes.
        """
        return 0.0 if self.shares_cache else self.entry_bytes(dtype, tp) + self.index_bytes(dtype)

    def remembered_tokens(self, tokens: int) -> int:
        """Return the number of kept tokens: all tokens, or at most the window if engines drop older tokens."""
        if self.window_tokens is None or self.keeps_all_tokens:
            return tokens
        return min(tokens, self.window_tokens)

    @property
    def sight(self) -> AttentionSpan:
        """Return the entries that a query attends to: the window, the selected blocks, or the whole context."""
        return ((self.window_tokens or self.index_topk or EVERYTHING, 1.0),)

    def entry_bytes(self, dtype: CacheDtype, tp: int) -> float:
        """Return the bytes of one token's keys and values for the heads on this device.

        A layer that shares its cache reads the keys and values of an earlier layer.
        """
        vectors = dtype.vector_bytes(self.key_dim) + dtype.vector_bytes(self.value_dim)
        return heads_on_device(self.kv_heads, tp) * vectors

    def index_bytes(self, dtype: CacheDtype) -> float:
        """Return the bytes of index keys per token of context. Index keys are stored in the dtype of the cache."""
        return dtype.vector_bytes(self.index_dim) if self.index_dim else 0.0

    def decode_flops(self, tp: int) -> float:
        """Return the attention FLOPs per pair of a query and a cache entry, for the heads on this device.

        Two products count: query times key, and attention weight times value.
        """
        return 2 * _share_of_heads(self.query_heads, tp) * (self.key_dim + self.value_dim)

    @property
    def extra_kernels(self) -> int:
        """Return three kernels if the layer has an indexer (to score, sort and gather), else zero."""
        return 3 if self.index_dim else 0

    @property
    def traits(self) -> tuple[str, ...]:
        """Return the trait `gqa`, followed by `chunked`, `sparse` or `sliding` if it applies."""
        if self.keeps_all_tokens:
            return ("gqa", "chunked")
        if self.index_dim:
            return ("gqa", "sparse")
        return ("gqa",) if self.window_tokens is None else ("gqa", "sliding")


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention(SequenceMixer):
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
    """Whether sparse MLA kernels store fp8 latents together with their scales and a bf16 rope part. A packed fp8 entry
    takes 656 bytes for 512 + 64 elements."""

    @property
    def kind(self) -> str:
        """Return `latent`, or `latent_sparse` if an indexer selects the tokens."""
        return "latent_sparse" if self.index_topk else "latent"

    def bytes_per_token(self, dtype: CacheDtype, tp: int) -> float:
        """Return the bytes of the latent, its rope part, and the indexer's key."""
        return self.entry_bytes(dtype, tp) + self.index_bytes(dtype)

    def remembered_tokens(self, tokens: int) -> int:
        """Return all tokens. Sparse attention reads only some tokens but keeps all tokens."""
        return tokens

    @property
    def sight(self) -> AttentionSpan:
        """Return the tokens that an indexer selects, or the whole context."""
        return ((self.index_topk or EVERYTHING, 1.0),)

    def entry_bytes(self, dtype: CacheDtype, tp: int) -> float:  # noqa: ARG002 - latents are not split
        """Return the bytes of the latent and its rope part."""
        if dtype is CacheDtype.FP8 and self.packed_fp8:
            return float(self.latent_dim + 4 * ceil(self.latent_dim / 128) + 2 * self.rope_dim)
        if dtype is CacheDtype.NVFP4_DS_MLA:
            return dtype.vector_bytes(self.latent_dim) + self.rope_dim  # 352 bytes for 512 + 64
        return dtype.vector_bytes(self.latent_dim + self.rope_dim)

    def index_bytes(self, dtype: CacheDtype) -> float:  # noqa: ARG002 - has a dtype of its own
        """Return the bytes of the lightning indexer's key. The key is stored in fp8 regardless of the cache dtype."""
        return float(_fp8_index_bytes(self.index_dim))

    def decode_flops(self, tp: int) -> float:
        """Return the attention FLOPs per pair of a query and a cache entry.

        In decoding, the query multiplies the latent itself (absorbed MLA).
        """
        return 2 * _share_of_heads(self.query_heads, tp) * (2 * self.latent_dim + self.rope_dim)

    def prefill_flops(self, tp: int) -> float:
        """Return the attention FLOPs per pair of a query and a cache entry.

        In prefill, latents are first expanded to heads.
        """
        return 2 * _share_of_heads(self.query_heads, tp) * (self.nope_dim + self.rope_dim + self.value_dim)

    @property
    def extra_kernels(self) -> int:
        """Return three kernels if the layer has an indexer (to score, sort and gather), else zero."""
        return 3 if self.index_dim else 0

    @property
    def traits(self) -> tuple[str, ...]:
        """Return the trait `mla`, and `sparse` if an indexer selects the tokens."""
        return ("mla", "sparse") if self.index_topk else ("mla",)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedAttention(SequenceMixer):
    """Attention of DeepSeek-V4.

    The layer keeps a sliding window of raw entries, and one compressed entry per `compress_ratio` tokens.
    """

    query_heads: int
    entry_dim: int
    rope_dim: int
    window_tokens: int
    compress_ratio: int
    """Tokens per compressed entry. A layer with ratio 0 keeps only the window. Ratios 4 and 128 add a compressed cache
    that grows with the sequence."""
    index_dim: int = 0
    index_topk: int = 0

    @property
    def kind(self) -> str:
        """Return `window`, `compressed_4` or `compressed_128`, depending on the compression ratio."""
        return f"compressed_{self.compress_ratio}" if self.compress_ratio else "window"

    def bytes_per_token(self, dtype: CacheDtype, tp: int) -> float:
        """Return the bytes of a compressed entry and its index key, divided by the tokens that the entry represents."""
        if not self.compress_ratio:
            return 0.0
        return self.entry_bytes(dtype, tp) / self.compress_ratio + self.index_bytes(dtype)

    def remembered_tokens(self, tokens: int) -> int:
        """Return the number of tokens kept in compressed form: all, or zero if the layer keeps only the window."""
        return tokens if self.compress_ratio else 0

    def bytes_per_sequence(self, dtype: CacheDtype, tp: int) -> int:
        """Return the bytes of the window of raw entries and of the compressors' running state."""
        return self.window_tokens * int(self.entry_bytes(dtype, tp)) + self.state_bytes(dtype, tp)

    @property
    def sight(self) -> AttentionSpan:
        """Return the entries that a query attends to.

        A query attends to the window of raw entries, and either to all compressed entries or to those that an indexer
        selects.
        """
        window = (self.window_tokens, 1.0)
        if not self.compress_ratio:
            return (window,)
        return window, (self.index_topk * self.compress_ratio or EVERYTHING, 1 / self.compress_ratio)

    def entry_bytes(self, dtype: CacheDtype, tp: int) -> float:  # noqa: ARG002 - replicated over devices
        """Return the bytes of an entry. Raw and compressed entries are stored in the same format."""
        if dtype is CacheDtype.FP8:
            # fp8 values, bf16 rope, one power-of-two scale per 64 values, padded to a word: 584 bytes for 448 + 64.
            values = self.entry_dim - self.rope_dim
            return float(values + 2 * self.rope_dim + 8 * ceil(ceil(values / 64) / 8))
        return dtype.vector_bytes(self.entry_dim)

    def index_bytes(self, dtype: CacheDtype) -> float:  # noqa: ARG002 - has a dtype of its own
        """Return the bytes of index keys per token of context. There is one index key per compressed entry."""
        return _fp8_index_bytes(self.index_dim) / self.compress_ratio if self.compress_ratio else 0.0

    def state_bytes(self, dtype: CacheDtype, tp: int) -> int:  # noqa: ARG002 - has a dtype of its own, on every device
        """Return the bytes of the compressors' running state in fp32 (keys and gates)."""
        fine = bool(self.index_dim)
        state_tokens = 2 * self.compress_ratio if fine else self.compress_ratio
        width = (self.entry_dim + self.index_dim) * (2 if fine else 1)
        return state_tokens * 2 * width * 4

    def decode_flops(self, tp: int) -> float:
        """Return the attention FLOPs per pair of a query and a cache entry. The entry is both key and value."""
        return 4 * _share_of_heads(self.query_heads, tp) * self.entry_dim

    @property
    def extra_kernels(self) -> int:
        """Return the number of kernels in addition to matrix products and plain attention.

        Four kernels mix streams before and after attention and feed-forward. If the layer compresses, two more kernels
        compress and store entries. If the layer has an indexer, the indexer needs three more kernels.
        """
        return 4 + (2 if self.compress_ratio else 0) + (3 if self.index_dim else 0)

    @property
    def traits(self) -> tuple[str, ...]:
        """Return the traits `compressed`, `sparse` and `sinks`. Every layer has attention sinks."""
        return ("compressed", "sparse", "sinks")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentState(SequenceMixer):
    """Linear-attention or state-space layer.

    The layer keeps a state of fixed size per sequence, which is split over devices by head.
    """

    kind_name: str
    heads: int
    state_shape: tuple[int, int]
    """Shape of the state of one head."""
    state_bytes_per_element: int
    conv_channels: int
    conv_taps: int
    """Number of inputs that the short convolution keeps, which is its kernel width minus one."""
    conv_bytes_per_element: int = 2

    @property
    def kind(self) -> str:
        """Return the family name: `mamba2`, `gated_delta`, `kda` or `short_conv`."""
        return self.kind_name

    def bytes_per_token(self, dtype: CacheDtype, tp: int) -> float:  # noqa: ARG002 - part of the interface
        """Return zero: no bytes grow with the sequence."""
        return 0.0

    def remembered_tokens(self, tokens: int) -> int:  # noqa: ARG002 - part of the interface
        """Return zero: the state represents all tokens, and no token is kept separately."""
        return 0

    def bytes_per_sequence(self, dtype: CacheDtype, tp: int) -> int:  # noqa: ARG002 - has a dtype of its own
        """Return the bytes of the recurrent heads and of the share of the convolution window on this device."""
        state = heads_on_device(self.heads, tp) * prod(self.state_shape) * self.state_bytes_per_element
        conv = ceil(self.conv_channels / tp) * self.conv_taps * self.conv_bytes_per_element
        return state + conv if self.heads else conv

    @property
    def sight(self) -> AttentionSpan:
        """Return no entries: tokens are read only through the state."""
        return ()

    def entry_bytes(self, dtype: CacheDtype, tp: int) -> float:  # noqa: ARG002 - part of the interface
        """Return zero: there are no entries."""
        return 0.0

    def state_bytes(self, dtype: CacheDtype, tp: int) -> int:
        """Return all bytes per sequence, because the whole state is read for each decoded token."""
        return self.bytes_per_sequence(dtype, tp)

    def decode_flops(self, tp: int) -> float:  # noqa: ARG002 - part of the interface
        """Return zero, in prefill too.

        In decoding, reading the state takes far longer than the arithmetic on the state. In prefill, the FLOPs grow
        linearly with the prompt and are small relative to the projections.
        """
        return 0.0

    @property
    def extra_kernels(self) -> int:
        """Return three kernels: for the convolution, the state and the gate."""
        return 3

    @property
    def traits(self) -> tuple[str, ...]:
        """Return the trait `linear`."""
        return ("linear",)
