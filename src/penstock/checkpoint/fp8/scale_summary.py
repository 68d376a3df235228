"""Summarises scale tensors, so that a scan need not keep their values."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.checkpoint.fp8.scales import ScaleValues, Values, problems
from penstock.checkpoint.safetensors.header import StoredTensor
from penstock.checkpoint.safetensors.stream import Codes

_NEXT: Final = 10.0
_DEAD: Final = 1e-3
MIN_GROUP: Final = 4
"""Minimum number of values in which an outlier can be detected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleSummary:
    """Summary of a scale tensor."""

    tensor: StoredTensor
    kinds: tuple[str, ...]
    typical: float | None
    top: bool
    """Whether an e8m0 byte is 254 or 255."""
    ones: bool
    dead: int
    """Number of scales below a thousandth of the median. Quantisers write scales near zero for blocks of zeros."""
    constant: bool
    """Whether the tensor has several scales and all of them are equal."""
    peak: float = 1.0
    """Ratio of the largest scale to the median. The ratio is set to 1 if another scale is within a factor of 10 of the
    largest."""

    @property
    def powers(self) -> bool:
        """Return whether the scales are stored as powers of two, with the dtype E8M0 or U8 (unlabelled)."""
        return self.tensor.dtype in {"F8_E8M0", "U8"}


def summarise(scale: ScaleValues, raw: Codes) -> ScaleSummary:
    """Summarise a scale tensor for the checks, so that its values need not stay in memory."""
    sound = np.sort(scale.values[np.isfinite(scale.values) & (scale.values > 0)])
    median = float(sound[(sound.size - 1) // 2] + sound[sound.size // 2]) / 2 if sound.size else 0.0
    top = scale.tensor.dtype in {"F8_E8M0", "U8"} and raw.size > 0 and int(raw.max()) >= 0xFE
    kinds = problems(scale.values)
    return ScaleSummary(
        tensor=scale.tensor,
        kinds=tuple(kind for kind in kinds if not (kind == "scale_nan" and top)),
        typical=float(np.exp(np.mean(np.log(sound)))) if sound.size else None,
        top=top,
        ones=bool(scale.values.size and (scale.values == 1.0).all()),
        dead=int(np.count_nonzero(scale.values < median * _DEAD)) if sound.size else 0,
        constant=scale.values.size > 1 and float(scale.values.max()) == float(scale.values.min()),
        peak=_peak(sound, median),
    )


def _peak(ordered: Values, median: float) -> float:
    """Return the ratio of the largest scale to the median.

    The ratio is set to 1 if another scale is within a factor of 10 of the largest.
    """
    if ordered.size < MIN_GROUP:
        return 1.0
    following, largest = ordered[-2:]
    return float(largest / median) if largest > _NEXT * following else 1.0
