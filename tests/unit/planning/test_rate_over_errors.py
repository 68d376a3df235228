"""Laws of the curve of a rate over the prediction error, with rates that are known in closed form."""

from dataclasses import dataclass
from math import log

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.planning.candidates.replica_capacity import P10_ERROR
from penstock.planning.verification.rate_over_errors import curve_over_errors, slowdown_at


@dataclass(frozen=True)
class KnownRates:
    """A pool of rate 10 at the predicted speed that sustains nothing from a slowdown of `most` on."""

    most: float

    def feasible(self, slowdown: float) -> bool:
        return slowdown < self.most

    def sustained_per_s(self, slowdown: float) -> float:
        return 10 * (self.most / slowdown - 1) / (self.most - 1) if self.feasible(slowdown) else 0.0


@given(most=st.floats(1.05, 5), fast=st.floats(-0.8, -0.02), slow=st.floats(0.02, 0.8))
def test_the_edge_of_feasibility_is_found_within_two_hundredths_of_a_deviation(
    most: float, fast: float, slow: float
) -> None:
    edge = log(most) / slow * P10_ERROR
    assume(abs(edge) < 2.5)
    curve = curve_over_errors(KnownRates(most), (fast, slow))
    served = [error for error, rate in zip(curve.errors, curve.requests_per_s, strict=True) if rate > 0]
    assert edge <= min(served) <= edge + 0.04
    assert not curve.at(np.array([edge - 0.04, edge - 1])).any()


@given(fast=st.floats(-0.8, 0.1), slow=st.floats(-0.1, 0.8))
def test_p10_and_p90_are_the_rates_at_the_ends_of_the_predicted_interval(fast: float, slow: float) -> None:
    rates = KnownRates(most=9)
    found = curve_over_errors(rates, (fast, slow)).range
    assert found.value == pytest.approx(10)
    assert found.low == pytest.approx(rates.sustained_per_s(max(1.0, np.exp(slow))))
    assert found.high == pytest.approx(rates.sustained_per_s(min(1.0, np.exp(fast))))


def test_a_pool_that_never_meets_the_slo_has_no_rate() -> None:
    assert curve_over_errors(KnownRates(most=0.1), (-0.3, 0.3)).range.high == 0


def test_the_slowdown_at_p10_of_the_rate_is_the_p90_of_step_times() -> None:
    assert slowdown_at(P10_ERROR, (-0.2, 0.3)) == pytest.approx(np.exp(0.3))
    assert slowdown_at(-P10_ERROR, (-0.2, 0.3)) == pytest.approx(np.exp(-0.2))
