"""Do the stored tensors agree with the config? Compares a ModelSpec with safetensors headers, name by name."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from penstock.checkpoint.safetensors_header import StoredTensor
from penstock.model import ModelSpec

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
    """How far the files and the config agree."""

    stored_bytes: int
    expected_bytes: int
    wrong_shapes: tuple[str, ...]
    """Unquantised tensors whose size is not the one the config implies (the first few)."""
    missing: tuple[str, ...]
    """Modules the config implies that no file holds under that name: fused, renamed or absent (the first few)."""
    unexpected: tuple[str, ...]
    """Stored modules the config does not imply (the first few)."""

    @property
    def difference_fraction(self) -> float:
        """Stored bytes over expected bytes, minus one."""
        return self.stored_bytes / self.expected_bytes - 1 if self.expected_bytes else 0.0

    @property
    def agrees(self) -> bool:
        """Whether bytes agree within a percent and no shape contradicts the config."""
        return abs(self.difference_fraction) <= AGREES_WITHIN and not self.wrong_shapes


def cross_check(model: ModelSpec, tensors: Iterable[StoredTensor]) -> CrossCheck:
    """Compare every stored tensor with what the config implies."""
    expected: dict[str, int] = {}
    plain: set[str] = set()
    for weight in model.weights:
        expected[weight.module] = expected.get(weight.module, 0) + prod(weight.shape)
        if weight.format.bits >= 16:  # noqa: PLR2004 - unquantised
            plain.add(weight.module)
    stored_bytes, seen, wrong, unexpected = 0, set[str](), [], dict[str, None]()
    for tensor in tensors:
        stored_bytes += tensor.stored_bytes
        module = _EXPERT.sub(".experts.*.", _SUFFIX.sub("", tensor.name))
        if module not in expected:
            unexpected[module] = None
        else:
            seen.add(module)
            if module in plain and tensor.name.endswith(".weight") and tensor.elements != expected[module]:
                wrong.append(f"{tensor.name} {list(tensor.shape)}: {tensor.elements:,} of {expected[module]:,}")
    return CrossCheck(
        stored_bytes=stored_bytes,
        expected_bytes=sum(weight.stored_bytes for weight in model.weights),
        wrong_shapes=tuple(wrong[:_LISTED]),
        missing=tuple(module for module in expected if module not in seen)[:_LISTED],
        unexpected=tuple(unexpected)[:_LISTED],
    )
