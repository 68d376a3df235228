"""Money over time; each test's name is the law."""

from math import isclose

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.economics import Finance
from penstock.errors import UsageError

law = settings(max_examples=200, deadline=None)
years = st.floats(0, 20)


@law
@given(start=years, length=years)
def test_at_a_rate_of_zero_a_payment_is_its_plain_sum(start: float, length: float) -> None:
    finance = Finance(discount_rate_fraction=0, depreciation_years=4)
    assert isclose(finance.paid_years(start, start + length), length, abs_tol=1e-9)
    assert finance.worth_today(start) == 1


@law
@given(rate=st.floats(0.001, 0.5), start=years, first=years, second=years)
def test_payments_of_adjoining_periods_add_up(rate: float, start: float, first: float, second: float) -> None:
    finance = Finance(discount_rate_fraction=rate, depreciation_years=4)
    middle, end = start + first, start + first + second
    together = finance.paid_years(start, middle) + finance.paid_years(middle, end)
    assert isclose(finance.paid_years(start, end), together, rel_tol=1e-6, abs_tol=1e-9)


@law
@given(low=st.floats(0, 0.5), more=st.floats(0, 0.5), end=st.floats(0.1, 20))
def test_a_higher_rate_never_makes_the_future_dearer(low: float, more: float, end: float) -> None:
    cheap = Finance(discount_rate_fraction=low + more, depreciation_years=4).paid_years(0, end)
    assert cheap <= Finance(discount_rate_fraction=low, depreciation_years=4).paid_years(0, end) * (1 + 1e-9)


def test_a_small_rate_agrees_with_the_limit() -> None:
    assert isclose(Finance(discount_rate_fraction=1e-7, depreciation_years=4).paid_years(0, 3), 3, rel_tol=1e-6)


def test_hardware_loses_its_value_in_a_straight_line_down_to_salvage() -> None:
    finance = Finance(discount_rate_fraction=0, depreciation_years=4, salvage_fraction=0.1)
    assert isclose(finance.book_fraction(0), 1)
    assert isclose(finance.book_fraction(1), 0.1 + 0.9 * 3 / 4)
    assert isclose(finance.book_fraction(9), 0.1)


@pytest.mark.parametrize(
    "wrong", [{"discount_rate_fraction": -0.1}, {"depreciation_years": 0}, {"salvage_fraction": 2}]
)
def test_money_that_cannot_be_meant_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        Finance(**{"discount_rate_fraction": 0.1, "depreciation_years": 4, **wrong})
