"""Computes the exact values of all 256 codes of each FP8 dialect.

The module also computes the error that results if codes are read in another dialect.
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

CODES: Final = 256
Table = NDArray[np.float64]
Histogram = NDArray[np.int64]


class Dialect(StrEnum):
    """FP8 dialect, which defines the exponent bits, the mantissa bits and the exponent bias.

    Comments give the safetensors names.
    """

    E4M3FN = "e4m3fn"  # F8_E4M3, OCP
    E4M3FNUZ = "e4m3fnuz"  # F8_E4M3FNUZ, gfx940 to gfx942
    E5M2 = "e5m2"  # F8_E5M2, OCP
    E5M2FNUZ = "e5m2fnuz"  # F8_E5M2FNUZ
    E8M0 = "e8m0"  # F8_E8M0: a power of two, for scales


DIALECT_OF: Final = {
    "F8_E4M3": Dialect.E4M3FN,
    "F8_E4M3FNUZ": Dialect.E4M3FNUZ,
    "F8_E5M2": Dialect.E5M2,
    "F8_E5M2FNUZ": Dialect.E5M2FNUZ,
    "F8_E8M0": Dialect.E8M0,
}


@dataclass(frozen=True, slots=True)
class _Layout:
    mantissa_bits: int
    bias: int
    fnuz: bool
    """Whether the dialect is FNUZ, which has one NaN at 0x80, no infinities and no negative zero."""


_LAYOUTS: Final = {
    Dialect.E4M3FN: _Layout(3, 7, fnuz=False),
    Dialect.E4M3FNUZ: _Layout(3, 8, fnuz=True),
    Dialect.E5M2: _Layout(2, 15, fnuz=False),
    Dialect.E5M2FNUZ: _Layout(2, 16, fnuz=True),
}


@cache
def decode_table(dialect: Dialect) -> Table:
    """Return the value of each code as float64, which represents all values exactly."""
    codes = np.arange(CODES)
    if dialect is Dialect.E8M0:
        values = np.ldexp(1.0, codes - 127)
        values[255] = np.nan
    else:
        values = _floats(_LAYOUTS[dialect], codes)
    values.setflags(write=False)
    return values


def _floats(layout: _Layout, codes: NDArray[np.int64]) -> Table:
    mantissa_span = 1 << layout.mantissa_bits
    magnitude = codes & 0x7F
    exponent, mantissa = magnitude // mantissa_span, magnitude % mantissa_span
    normal = np.ldexp(1 + mantissa / mantissa_span, exponent - layout.bias)
    subnormal = np.ldexp(mantissa / mantissa_span, 1 - layout.bias)
    values: Table = np.where(exponent > 0, normal, subnormal)
    values = np.where(codes & 0x80, -values, values)
    if layout.fnuz:
        values[0x80] = np.nan
    elif layout.mantissa_bits == 3:  # E4M3FN spends one code per sign on NaN and has no infinity
        values[[0x7F, 0xFF]] = np.nan
    else:
        top = exponent == exponent.max()  # E5M2 keeps IEEE's top exponent for infinity and NaN
        values[top] = np.where(mantissa[top] == 0, np.copysign(np.inf, values[top]), np.nan)
    return values


def nan_codes(dialect: Dialect) -> tuple[int, ...]:
    """Return the NaN codes of a dialect."""
    return tuple(int(code) for code in np.flatnonzero(np.isnan(decode_table(dialect))))


def largest(dialect: Dialect) -> float:
    """Return the largest finite value of a dialect."""
    values = decode_table(dialect)
    return float(values[np.isfinite(values)].max())


def unrepresentable_codes(source: Dialect, target: Dialect) -> tuple[int, ...]:
    """Return the finite codes of one dialect whose value the other dialect cannot represent.

    A cast to the other dialect would change these values.
    """
    values, held = decode_table(source), decode_table(target)
    finite = np.isfinite(values)
    exact = np.isin(values, held[np.isfinite(held)])
    return tuple(int(code) for code in np.flatnonzero(finite & ~exact))


def convert_to_fnuz(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Convert codes as engines do for FNUZ chips.

    All bytes are kept except 0x80, which becomes 0x00. The caller must double the scales.
    """
    return np.where(codes == 0x80, np.uint8(0), codes)  # OCP's negative zero is FNUZ's NaN


@dataclass(frozen=True, slots=True, kw_only=True)
class Misreading:
    """Expected relative errors of a layer's output if its weights are misread, for inputs of random direction."""

    unconverted: float
    """Error if bytes are read in the other dialect and the scales are not doubled."""
    cast_by_value: float
    """Error if values beyond the other dialect's range are clipped."""
    nan_as_finite: float
    """Error that NaN codes cause, because the conversion turns them into the other dialect's largest value."""


def misread(histogram: Histogram, source: Dialect, target: Dialect) -> Misreading:
    """Compute the relative error of the output W x for random x.

    The relative error is the norm of the change in W, divided by the norm of W.
    """
    values = decode_table(source)
    other = decode_table(target)
    finite = np.isfinite(values)
    size = float(np.sum(histogram[finite] * values[finite] ** 2))
    if not size:
        return Misreading(unconverted=0.0, cast_by_value=0.0, nan_as_finite=0.0)
    read = np.nan_to_num(other, nan=0.0)
    unconverted = float(np.sum(histogram[finite] * (read[finite] - values[finite]) ** 2))
    limit = largest(target)
    clipped = np.clip(values[finite], -limit, limit)
    by_value = float(np.sum(histogram[finite] * (clipped - values[finite]) ** 2))
    stray = int(histogram[list(nan_codes(source))].sum())
    # After the conversion a NaN byte is the target's largest value times a doubled scale.
    nan_error = stray * (2 * limit) ** 2
    return Misreading(
        unconverted=float(np.sqrt(unconverted / size)),
        cast_by_value=float(np.sqrt(by_value / size)),
        nan_as_finite=float(np.sqrt(nan_error / size)),
    )
