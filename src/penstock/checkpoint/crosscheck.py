"""Compares the weights that a ModelSpec expects with the tensors in safetensors headers, name by name."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from penstock.checkpoint.safetensors.header import StoredTensor
from penstock.checkpoint.safetensors.pairing import Block, fits_shape, scale_names, usual_block
from penstock.model import ModelSpec, Weight

AGREES_WITHIN = 0.01
_LISTED = 20

_EXPERT = re.compile(r"\.experts\.\d+\.")
_SUFFIX = re.compile(
    r"(\.(weight|weight_packed|weight_scale|weight_scale_inv|weight_scale_2|weight_shape|weight_zero_point"
    r"|weight_global_scale|input_scale|input_global_scale|k_scale|v_scale|scale|qweight|qzeros|scales|g_idx))$"
    r"|_(blocks|scales)$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossCheck:
    """Result of the comparison between the weight files and the config."""

    stored_bytes: int
    expected_bytes: int
    wrong_shapes: tuple[str, ...]
    """Unquantised tensors with an unexpected shape, and scales that cannot cover their weight (at most 20 entries)."""
    missing: tuple[str, ...]
    """Modules that the config implies but no file holds under the expected name (at most 20 entries). A missing module
    may be fused, renamed or absent."""
    unexpected: tuple[str, ...]
    """Stored modules that the config does not imply (at most 20 entries)."""

    @property
    def difference_fraction(self) -> float:
        """Return the relative difference of the stored bytes from the expected bytes."""
        return self.stored_bytes / self.expected_bytes - 1 if self.expected_bytes else 0.0

    @property
    def agrees(self) -> bool:
        """Return whether the bytes agree within 1%, no shape contradicts the config, and no module is absent."""
        # Unexpected modules may be the missing weights, fused or renamed. If there are none, missing weights are
        # absent.
        absent = self.missing and not self.unexpected
        return abs(self.difference_fraction) <= AGREES_WITHIN and not self.wrong_shapes and not absent


def cross_check(model: ModelSpec, tensors: Iterable[StoredTensor]) -> CrossCheck:
    """Compare every stored tensor with the weights that the config implies."""
    expected: dict[str, list[Weight]] = {}
    for weight in model.weights:
        expected.setdefault(weight.module, []).append(weight)
    stored_bytes, seen, wrong, unexpected = 0, set[str](), [], dict[str, None]()
    held = tuple(tensors)
    wrong += _wrong_scales(held, _declared_block(model))
    for tensor in held:
        stored_bytes += tensor.stored_bytes
        module = _EXPERT.sub(".experts.*.", _SUFFIX.sub("", tensor.name))
        if module not in expected:
            unexpected[module] = None
            continue
        seen.add(module)
        if tensor.name.endswith(".weight") and (problem := _wrong_shape(tensor, expected[module])):
            wrong.append(problem)
    return CrossCheck(
        stored_bytes=stored_bytes,
        expected_bytes=sum(_file_bytes(weight, model) for weight in model.weights),
        wrong_shapes=tuple(wrong[:_LISTED]),
        missing=tuple(module for module in expected if module not in seen)[:_LISTED],
        unexpected=tuple(unexpected)[:_LISTED],
    )


def _declared_block(model: ModelSpec) -> Block | None:
    """Return the scale block that the config declares for FP8 weights, or None."""
    for weight in model.weights:
        stored = weight.format
        if stored.name == "fp8" and stored.scale_columns is not None and (stored.scale_rows or 0) > 1:
            return stored.scale_rows or 1, stored.scale_columns
    return None


def _wrong_scales(tensors: Iterable[StoredTensor], declared: Block | None) -> list[str]:
    """Check the shape of every scale against its FP8 weight.

    The scale block is the block that the config declares, or else the most common block.
    """
    named = {tensor.name: tensor for tensor in tensors}
    pairs = [
        (named[scale], weight)
        for weight in named.values()
        if weight.dtype in {"F8_E4M3", "F8_E4M3FNUZ"}
        for scale in scale_names(weight.name)
        if scale in named
    ]
    block = declared or usual_block((scale.shape, weight.shape) for scale, weight in pairs)
    return [
        f"{scale.name} {list(scale.shape)}: cannot cover {list(weight.shape)}"
        for scale, weight in pairs
        if not fits_shape(scale.shape, weight.shape, block)
    ]


def _wrong_shape(tensor: StoredTensor, weights: list[Weight]) -> str | None:
    """Compare the stored shape with the expected shape.

    Shapes of equal rank must be equal. Shapes of different rank, as for the kernel of a convolution, must have the same
    number of elements.
    """
    if weights[0].format.bits < 16:  # quantised weights are packed
        return None
    shape, elements = weights[0].shape, sum(prod(weight.shape) for weight in weights)
    if len(weights) == 1 and len(tensor.shape) == len(shape) and tensor.shape != shape:
        return f"{tensor.name} {list(tensor.shape)}: expected {list(shape)}"
    if tensor.elements != elements:
        return f"{tensor.name} {list(tensor.shape)}: {tensor.elements:,} elements, expected {elements:,}"
    return None


def _file_bytes(weight: Weight, model: ModelSpec) -> int:
    """Return the bytes of a weight in the files. Files may hold a wider format than engines load."""
    if model.stored_dtype is not None and weight.format is model.dtype:
        return model.stored_dtype.bytes_of(weight.shape) * weight.copies
    return weight.stored_bytes
