"""FP8 numerics, by exhausting all 256 codes of each dialect against ml_dtypes."""

import ml_dtypes
import numpy as np
import pytest

from penstock.checkpoint.fp8.numerics import (
    CODES,
    Dialect,
    convert_to_fnuz,
    decode_table,
    largest,
    misread,
    nan_codes,
    unrepresentable_codes,
)

REFERENCE = {
    Dialect.E4M3FN: ml_dtypes.float8_e4m3fn,
    Dialect.E4M3FNUZ: ml_dtypes.float8_e4m3fnuz,
    Dialect.E5M2: ml_dtypes.float8_e5m2,
    Dialect.E5M2FNUZ: ml_dtypes.float8_e5m2fnuz,
    Dialect.E8M0: ml_dtypes.float8_e8m0fnu,
}


@pytest.mark.parametrize("dialect", list(Dialect))
def test_every_code_has_the_reference_value(dialect: Dialect) -> None:
    reference = np.arange(CODES, dtype=np.uint8).view(REFERENCE[dialect]).astype(np.float64)
    ours = decode_table(dialect)
    assert np.array_equal(ours, reference, equal_nan=True)
    assert np.array_equal(np.signbit(ours[~np.isnan(ours)]), np.signbit(reference[~np.isnan(reference)]))


def test_the_largest_values_and_nan_codes_are_those_of_the_formats() -> None:
    assert [largest(dialect) for dialect in (Dialect.E4M3FN, Dialect.E4M3FNUZ)] == [448, 240]
    assert nan_codes(Dialect.E4M3FN) == (0x7F, 0xFF)
    assert nan_codes(Dialect.E4M3FNUZ) == (0x80,)
    assert nan_codes(Dialect.E8M0) == (0xFF,)


def test_the_same_byte_differs_by_two_in_every_finite_code() -> None:
    fn, fnuz = decode_table(Dialect.E4M3FN), decode_table(Dialect.E4M3FNUZ)
    both = np.isfinite(fn) & np.isfinite(fnuz) & (fn != 0)
    assert np.array_equal(fn[both], 2 * fnuz[both])


def test_conversion_by_bits_is_exact_for_all_254_finite_codes() -> None:
    codes = np.arange(CODES, dtype=np.uint8)
    fn = decode_table(Dialect.E4M3FN)
    finite = np.isfinite(fn)
    assert finite.sum() == 254
    read = 2 * decode_table(Dialect.E4M3FNUZ)[convert_to_fnuz(codes)]
    assert np.array_equal(read[finite], fn[finite])


def test_casting_by_value_loses_14_codes_one_way_and_16_the_other() -> None:
    lost = unrepresentable_codes(Dialect.E4M3FN, Dialect.E4M3FNUZ)
    assert {abs(decode_table(Dialect.E4M3FN)[code]) for code in lost} == {256, 288, 320, 352, 384, 416, 448}
    assert len(lost) == 14
    assert len(unrepresentable_codes(Dialect.E4M3FNUZ, Dialect.E4M3FN)) == 16


def test_nan_codes_become_the_largest_value_of_the_other_dialect() -> None:
    fnuz = decode_table(Dialect.E4M3FNUZ)
    assert [fnuz[code] for code in nan_codes(Dialect.E4M3FN)] == [240, -240]


def test_reading_unconverted_bytes_halves_a_layers_output() -> None:
    histogram = np.zeros(CODES, np.int64)
    histogram[0x10:0x70] = 100
    error = misread(histogram, Dialect.E4M3FN, Dialect.E4M3FNUZ)
    assert error.unconverted == pytest.approx(0.5)
    assert error.cast_by_value == 0
    assert error.nan_as_finite == 0


def test_one_nan_code_costs_what_480_would_weigh_in_the_matrix() -> None:
    histogram = np.zeros(CODES, np.int64)
    histogram[0x38] = 10_000  # 1.0
    histogram[0x7F] = 1
    error = misread(histogram, Dialect.E4M3FN, Dialect.E4M3FNUZ)
    assert error.nan_as_finite == pytest.approx((480**2 / 10_000) ** 0.5)
