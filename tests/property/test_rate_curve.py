"""Laws of the rate that a replica sustains over the prediction error."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.performance.prediction.predict_deployment import Range
from penstock.planning.candidates.replica_capacity import P10_ERROR, RateCurve

RATES = st.lists(st.just(0.0) | st.floats(0.01, 1e4), min_size=1, max_size=9).map(sorted)


@st.composite
def curves(draw: st.DrawFn) -> RateCurve:
    rates = draw(RATES)
    first, step = draw(st.floats(-3, 1)), draw(st.floats(0.2, 1))
    return RateCurve(errors=tuple(first + step * n for n in range(len(rates))), requests_per_s=tuple(rates))


@given(curve=curves())
def test_a_faster_replica_never_sustains_less(curve: RateCurve) -> None:
    rates = curve.at(np.linspace(-4, 4, 200))
    assert np.all(np.diff(rates) >= -1e-9 * rates[1:])


@given(curve=curves())
def test_the_curve_passes_through_its_points_and_is_0_wherever_the_slo_cannot_be_kept(curve: RateCurve) -> None:
    assert curve.at(np.array(curve.errors)) == pytest.approx(curve.requests_per_s)
    unserved = [error for error, rate in zip(curve.errors, curve.requests_per_s, strict=True) if not rate]
    if unserved:
        assert not curve.at(np.linspace(-5, max(unserved), 20)).any()


@given(value=st.floats(0.01, 1e4), low=st.floats(0.1, 1), high=st.floats(1, 10), error=st.floats(-4, 4))
def test_a_curve_through_an_interval_is_the_two_piece_log_normal_of_this_interval(
    value: float, low: float, high: float, error: float
) -> None:
    curve = RateCurve.through(Range(value=value, low=value * low, high=value * high))
    assert curve.range == Range(value=value, low=value * low, high=value * high)
    expected = value * (low ** (error / P10_ERROR) if error < 0 else high ** (error / -P10_ERROR))
    assert float(curve.at(np.array(error))) == pytest.approx(expected)


def test_a_curve_whose_rates_fall_is_refused() -> None:
    with pytest.raises(ValueError, match="must not decrease"):
        RateCurve(errors=(0.0, 1.0), requests_per_s=(2.0, 1.0))
