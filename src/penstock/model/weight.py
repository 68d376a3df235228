"""Describes each weight of a checkpoint by its name, shape, format and tensor-parallel split."""

from dataclasses import dataclass
from enum import StrEnum
from math import ceil, prod


class Part(StrEnum):
    """Purpose of a weight. Memory budgets and bar charts group weights by part."""

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
    """Multi-token prediction. Engines load weights of multi-token prediction only for speculative decoding. Published
    parameter counts leave these weights out."""


class Split(StrEnum):
    """Axis along which tensor parallelism divides a weight."""

    COLUMN = "column"
    """Split by output (row of the matrix): heads or intermediate channels."""
    ROW = "row"
    """Split by input (column of the matrix)."""
    VOCAB = "vocab"
    """Split by vocabulary entry, after padding."""
    REPLICATED = "replicated"


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormat:
    """Storage format of a matrix: the bits per element, and the layout of the scales."""

    name: str
    bits: float
    scale_bits: int = 0
    scale_rows: int | None = 1
    """Rows (outputs) that share a scale. None means all rows."""
    scale_columns: int | None = None
    """Columns (inputs) that share a scale. None means all columns."""
    zero_point_bits: int = 0
    widened_to: str | None = None
    """Format to which a kernel converts the weight before the multiplication. None if the weight is multiplied as
    stored."""

    @property
    def multiplied_as(self) -> str:
        """Return the name of the format in which the kernel multiplies."""
        return self.widened_to or self.name

    def bytes_of(self, shape: tuple[int, ...]) -> int:
        """Return the bytes of a matrix of this shape, including scales."""
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
"""Weight formats, keyed by their names in measured rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """Matrix or vector of the checkpoint.

    A weight of routed experts represents `copies` matrices or vectors of equal shape.
    """

    module: str
    """Module path in the checkpoint without `.weight`. In weights of routed experts, `*` stands for the expert
    number."""
    shape: tuple[int, ...]
    part: Part
    format: WeightFormat
    split: Split = Split.REPLICATED
    units: int = 1
    """Number of indivisible slices along the split dimension (heads, groups). If there are fewer slices than
    tensor-parallel devices, each device holds one slice."""
    copies: int = 1
    active_copies: int = 1
    layer: int | None = None
    """Index of the decoder layer. None for weights before and after the layers."""
    quantisable: bool = False
    """Whether the weight is a linear layer that quantisation tools convert. Norms, embeddings and routers stay
    unquantised."""

    @property
    def params(self) -> int:
        """Return the number of parameters in all copies."""
        return prod(self.shape) * self.copies

    @property
    def active_params(self) -> int:
        """Return the number of parameters that one token passes through."""
        return prod(self.shape) * self.active_copies

    @property
    def stored_bytes(self) -> int:
        """Return the bytes of all copies before tensor parallelism splits them."""
        return self.format.bytes_of(self.shape) * self.copies
