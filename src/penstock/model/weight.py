"""Where do a checkpoint's bytes sit? Every weight with its name, shape, format and how engines split it."""

from dataclasses import dataclass
from enum import StrEnum
from math import ceil, prod


class Part(StrEnum):
    """What a weight is for; budgets and bar pictures group by it."""

    EMBEDDING = "embedding"
    ATTENTION = "attention"
    DENSE_FFN = "dense_ffn"
    ROUTED_EXPERTS = "routed_experts"
    SHARED_EXPERTS = "shared_experts"
    ROUTER = "router"
    NORM = "norm"
    LM_HEAD = "lm_head"
    VISION = "vision"
    MTP = "mtp"
    """Multi-token prediction: loaded only for speculative decoding, and outside published parameter counts."""


class Split(StrEnum):
    """How tensor parallelism divides a weight."""

    COLUMN = "column"
    """By output row of the matrix (heads, intermediate channels)."""
    ROW = "row"
    """By input column of the matrix."""
    VOCAB = "vocab"
    """By vocabulary entry, after padding."""
    REPLICATED = "replicated"


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormat:
    """How one matrix is stored: bits per element, and the scales that come with them."""

    name: str
    bits: float
    scale_bits: int = 0
    scale_rows: int | None = 1
    """Rows (outputs) one scale covers; None means all of them."""
    scale_columns: int | None = None
    """Columns (inputs) one scale covers; None means all of them."""
    zero_point_bits: int = 0
    widened_to: str | None = None
    """The format a kernel turns it into before it multiplies; None multiplies it as it is stored."""

    @property
    def multiplied_as(self) -> str:
        """The name of the format that is multiplied."""
        return self.widened_to or self.name

    def bytes_of(self, shape: tuple[int, ...]) -> int:
        """Bytes of a matrix of this shape, scales included."""
        elements = ceil(prod(shape) * self.bits / 8)
        if not self.scale_bits:
            return elements
        rows, columns = (shape[0], prod(shape[1:])) if len(shape) > 1 else (1, shape[0])
        groups = ceil(rows / (self.scale_rows or rows)) * ceil(columns / (self.scale_columns or columns))
        return elements + ceil(groups * (self.scale_bits + self.zero_point_bits) / 8)


BF16 = WeightFormat(name="bf16", bits=16)
FP16 = WeightFormat(name="fp16", bits=16)
FP32 = WeightFormat(name="fp32", bits=32)
FP8_TENSOR = WeightFormat(name="fp8", bits=8, scale_bits=32, scale_rows=None)
FP8_CHANNEL = WeightFormat(name="fp8", bits=8, scale_bits=32)
FP8_BLOCK = WeightFormat(name="fp8", bits=8, scale_bits=32, scale_rows=128, scale_columns=128)
MXFP8 = WeightFormat(name="mxfp8", bits=8, scale_bits=8, scale_columns=32)
MXFP4 = WeightFormat(name="mxfp4", bits=4, scale_bits=8, scale_columns=32)
NVFP4 = WeightFormat(name="nvfp4", bits=4, scale_bits=8, scale_columns=16)
INT4 = WeightFormat(name="int4", bits=4, scale_bits=16, scale_columns=128)
INT8_CHANNEL = WeightFormat(name="int8", bits=8, scale_bits=32)
FORMATS = {chosen.name: chosen for chosen in (BF16, FP8_CHANNEL, NVFP4, MXFP4, INT4)}
"""The formats rows are measured in, by the name rows have for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """One matrix or vector of the checkpoint, or `copies` of it when it belongs to routed experts."""

    module: str
    """The checkpoint's module path without `.weight`; `*` stands for the expert number."""
    shape: tuple[int, ...]
    part: Part
    format: WeightFormat
    split: Split = Split.REPLICATED
    units: int = 1
    """Indivisible pieces along the split dimension (heads, groups). With fewer than tp, each device holds one."""
    copies: int = 1
    active_copies: int = 1
    layer: int | None = None
    """Decoder layer the weight belongs to; None for the weights before and after the layers."""
    quantisable: bool = False
    """A linear layer that quantisation tools convert; norms, embeddings and routers stay as they are."""

    @property
    def params(self) -> int:
        """Parameters in all copies."""
        return prod(self.shape) * self.copies

    @property
    def active_params(self) -> int:
        """Parameters one token passes through."""
        return prod(self.shape) * self.active_copies

    @property
    def stored_bytes(self) -> int:
        """Bytes of all copies, unsharded."""
        return self.format.bytes_of(self.shape) * self.copies
