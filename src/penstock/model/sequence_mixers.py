"""What does a layer remember, and what does a query do with it? Each kind of sequence mixing, in bytes and FLOPs."""

from dataclasses import dataclass
from math import ceil, prod
from typing import Final, Protocol

from penstock.model.cache_dtypes import CacheDtype

EVERYTHING: Final = 2**62
"""The limit of attention that reads all of its context."""
RouterVisibility = tuple[tuple[int, float], ...]
"""Entries a query attends to, as limits and shares: with t tokens behind it, the sum of share x min(t, limit)."""


def heads_on_device(heads: int, tp: int) -> int:
    """Heads one device holds: engines replicate a head rather than cut it."""
    return max(1, ceil(heads / tp))


def _share_of_heads(heads: int, tp: int) -> float:
    return max(1.0, heads / tp)


def _fp8_index_bytes(width: int) -> int:
    """An fp8 index key with one fp32 scale per 128 elements."""
    return width + 4 * ceil(width / 128)


class SequenceMixer(Protocol):
    """What planning asks of any attention or recurrent layer: what it holds, and what a query reads and multiplies."""

    @property
    def kind(self) -> str:
        """Short name people group layers by: full, sliding, latent, ..."""

    def bytes_per_token(self, dtype: CacheDtype, tp: int) -> float:
        """Bytes a device caches for one more token, while the layer still remembers all of them."""

    def remembered_tokens(self, tokens: int) -> int:
        """Of a sequence of `tokens`, how many the layer still holds."""

    def bytes_per_sequence(self, dtype: CacheDtype, tp: int) -> int:
        """Bytes a device holds for a sequence however long it is."""

    @property
    def sight(self) -> RouterVisibility:
        """Entries of the cache a query attends to."""

    def entry_bytes(self, dtype: CacheDtype, tp: int) -> float:
        """Bytes read for each entry attended to."""

    def index_bytes(self, dtype: CacheDtype) -> float:
        """Bytes of index keys read for every token behind a query, attended to or not."""

    def state_bytes(self, dtype: CacheDtype, tp: int) -> int:
        """Bytes read for a decoded token however many came before it."""

    def decode_flops(self, tp: int) -> float:
        """FLOPs of one decoding query with one entry of the cache."""

    def prefill_flops(self, tp: int) -> float:
        """FLOPs of one query with one entry in prefill."""

    @property
    def extra_kernels(self) -> int:
        """Kernels the layer launches beside its matrices and plain attention."""

    @property
    def traits(self) -> tuple[str, ...]:
        """How attention backends tell it apart."""


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
    index_topk: int = 0
    """Tokens of the blocks such an indexer chooses."""

    @property
    def kind(self) -> str:
        """Full, sliding or sparse."""
        if self.index_dim:
            return "sparse"
        return "full" if self.window_tokens is None else "sliding"

    def bytes_per_token(self, dtype: CacheDtype, tp: int) -> float:
        """Keys and values of the heads on this device; index keys are replicated."""
        return 0.0 if self.shares_cache else self.entry_bytes(dtype, tp) + self.index_bytes(dtype)

    def remembered_tokens(self, tokens: int) -> int:
        """Everything, or the window."""
        if self.window_tokens is None or self.keeps_all_tokens:
            return tokens
        return min(tokens, self.window_tokens)

    def bytes_per_sequence(self, dtype: CacheDtype, tp: int) -> int:  # noqa: ARG002 - part of the protocol
        """Nothing beyond the tokens."""
        return 0

    @property
    def sight(self) -> RouterVisibility:
        """The window, the chosen blocks, or everything."""
        return ((self.window_tokens or self.index_topk or EVERYTHING, 1.0),)

    def entry_bytes(self, dtype: CacheDtype, tp: int) -> float:
        """Keys and values of the heads on this device, its own or an earlier layer's."""
        return float(heads_on_device(self.kv_heads, tp) * (self.key_dim + self.value_dim) * dtype.element_bytes)

    def index_bytes(self, dtype: CacheDtype) -> float:
        """Index keys in the cache's own dtype."""
        return float(self.index_dim * dtype.element_bytes)

    def state_bytes(self, dtype: CacheDtype, tp: int) -> int:  # noqa: ARG002 - part of the protocol
        """Nothing."""
        return 0

    def decode_flops(self, tp: int) -> float:
        """A query with a key and a weight with a value, for each head."""
        return 2 * _share_of_heads(self.query_heads, tp) * (self.key_dim + self.value_dim)

    def prefill_flops(self, tp: int) -> float:
        """The same as in decoding."""
        return self.decode_flops(tp)

    @property
    def extra_kernels(self) -> int:
        """An indexer scores, sorts and gathers."""
        return 3 if self.index_dim else 0

    @property
    def traits(self) -> tuple[str, ...]:
        """Grouped, and chunked, sparse or sliding."""
        if self.keeps_all_tokens:
            return ("gqa", "chunked")
        if self.index_dim:
            return ("gqa", "sparse")
        return ("gqa",) if self.window_tokens is None else ("gqa", "sliding")


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

    def bytes_per_token(self, dtype: CacheDtype, tp: int) -> float:
        """The latent, its rope part, and the indexer's key."""
        return self.entry_bytes(dtype, tp) + self.index_bytes(dtype)

    def remembered_tokens(self, tokens: int) -> int:
        """All of them: sparse attention reads fewer tokens, it does not forget any."""
        return tokens

    def bytes_per_sequence(self, dtype: CacheDtype, tp: int) -> int:  # noqa: ARG002 - part of the protocol
        """Nothing beyond the tokens."""
        return 0

    @property
    def sight(self) -> RouterVisibility:
        """The tokens an indexer chooses, or everything."""
        return ((self.index_topk or EVERYTHING, 1.0),)

    def entry_bytes(self, dtype: CacheDtype, tp: int) -> float:  # noqa: ARG002 - latents are not split
        """The latent and its rope part."""
        if dtype is CacheDtype.FP8 and self.packed_fp8:
            return float(self.latent_dim + 4 * ceil(self.latent_dim / 128) + 2 * self.rope_dim)
        return float((self.latent_dim + self.rope_dim) * dtype.element_bytes)

    def index_bytes(self, dtype: CacheDtype) -> float:  # noqa: ARG002 - has a dtype of its own
        """The lightning indexer's key, in fp8 whatever the cache is in."""
        return float(_fp8_index_bytes(self.index_dim))

    def state_bytes(self, dtype: CacheDtype, tp: int) -> int:  # noqa: ARG002 - part of the protocol
        """Nothing."""
        return 0

    def decode_flops(self, tp: int) -> float:
        """A query multiplies with the latent itself (absorbed)."""
        return 2 * _share_of_heads(self.query_heads, tp) * (2 * self.latent_dim + self.rope_dim)

    def prefill_flops(self, tp: int) -> float:
        """Latents are expanded to heads first."""
        return 2 * _share_of_heads(self.query_heads, tp) * (self.nope_dim + self.rope_dim + self.value_dim)

    @property
    def extra_kernels(self) -> int:
        """An indexer of its own scores, sorts and gathers."""
        return 3 if self.index_dim else 0

    @property
    def traits(self) -> tuple[str, ...]:
        """Latent, and sparse where an indexer chooses."""
        return ("mla", "sparse") if self.index_topk else ("mla",)


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

    def bytes_per_token(self, dtype: CacheDtype, tp: int) -> float:
        """The compressed entry and the index key, shared by the tokens they stand for."""
        if not self.compress_ratio:
            return 0.0
        return self.entry_bytes(dtype, tp) / self.compress_ratio + self.index_bytes(dtype)

    def remembered_tokens(self, tokens: int) -> int:
        """All of them, in compressed form."""
        return tokens if self.compress_ratio else 0

    def bytes_per_sequence(self, dtype: CacheDtype, tp: int) -> int:
        """The window of raw entries, and the compressors' running state."""
        return self.window_tokens * int(self.entry_bytes(dtype, tp)) + self.state_bytes(dtype, tp)

    @property
    def sight(self) -> RouterVisibility:
        """The window of raw entries, and the compressed ones: all of them, or those an indexer chooses."""
        window = (self.window_tokens, 1.0)
        if not self.compress_ratio:
            return (window,)
        return window, (self.index_topk * self.compress_ratio or EVERYTHING, 1 / self.compress_ratio)

    def entry_bytes(self, dtype: CacheDtype, tp: int) -> float:  # noqa: ARG002 - replicated over devices
        """Raw and compressed entries are stored alike."""
        if dtype is CacheDtype.FP8:
            # fp8 values, bf16 rope, one power-of-two scale per 64 values, padded to a word: 584 for 448 + 64.
            values = self.entry_dim - self.rope_dim
            return float(values + 2 * self.rope_dim + 8 * ceil(ceil(values / 64) / 8))
        return float(self.entry_dim * dtype.element_bytes)

    def index_bytes(self, dtype: CacheDtype) -> float:  # noqa: ARG002 - has a dtype of its own
        """One index key for each compressed entry."""
        return _fp8_index_bytes(self.index_dim) / self.compress_ratio if self.compress_ratio else 0.0

    def state_bytes(self, dtype: CacheDtype, tp: int) -> int:  # noqa: ARG002 - has a dtype of its own, on every device
        """The compressors' running state in fp32 (keys and gates)."""
        fine = bool(self.index_dim)
        state_tokens = 2 * self.compress_ratio if fine else self.compress_ratio
        width = (self.entry_dim + self.index_dim) * (2 if fine else 1)
        return state_tokens * 2 * width * 4

    def decode_flops(self, tp: int) -> float:
        """An entry is key and value at once."""
        return 4 * _share_of_heads(self.query_heads, tp) * self.entry_dim

    def prefill_flops(self, tp: int) -> float:
        """The same as in decoding."""
        return self.decode_flops(tp)

    @property
    def extra_kernels(self) -> int:
        """Mixing streams before and after attention and feed-forward; compressing, storing; an indexer's three."""
        return 4 + (2 if self.compress_ratio else 0) + (3 if self.index_dim else 0)

    @property
    def traits(self) -> tuple[str, ...]:
        """Compressed, with sinks in every layer."""
        return ("compressed", "sparse", "sinks")


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

    @property
    def sight(self) -> RouterVisibility:
        """No token but through the state."""
        return ()

    def entry_bytes(self, dtype: CacheDtype, tp: int) -> float:  # noqa: ARG002 - part of the protocol
        """There are no entries."""
        return 0.0

    def index_bytes(self, dtype: CacheDtype) -> float:  # noqa: ARG002 - part of the protocol
        """There is no indexer."""
        return 0.0

    def state_bytes(self, dtype: CacheDtype, tp: int) -> int:
        """All that is held."""
        return self.bytes_per_sequence(dtype, tp)

    def decode_flops(self, tp: int) -> float:  # noqa: ARG002 - part of the protocol
        """Its state is read far more slowly than it is multiplied."""
        return 0.0

    def prefill_flops(self, tp: int) -> float:  # noqa: ARG002 - part of the protocol
        """Linear in the prompt, and small beside its projections."""
        return 0.0

    @property
    def extra_kernels(self) -> int:
        """Convolution, state and gate."""
        return 3

    @property
    def traits(self) -> tuple[str, ...]:
        """Linear."""
        return ("linear",)
