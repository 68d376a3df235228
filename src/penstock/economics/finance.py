"""Discounts payments to today and values hardware at resale."""

from dataclasses import dataclass
from math import exp, expm1, log1p

from penstock.errors import UsageError

HOURS_PER_YEAR = 8760.0
MONTHS_PER_YEAR = 12.0
_NO_INTEREST = 1e-12
"""Exponent below which the quotient of `paid_years` loses all digits, so that its limit is used instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finance:
    """Parameters for comparing money over time."""

    discount_rate_fraction: float
    """Discount rate per year; 0 compares plain sums."""
    depreciation_years: float
    """Years of straight-line depreciation to salvage value."""
    salvage_fraction: float = 0.0
    """Resale price of fully depreciated hardware, as a fraction of the price paid."""
    resale_fraction: float = 0.0
    """Resale price of younger hardware above its salvage value, as a fraction of its book value above salvage."""

    def __post_init__(self) -> None:
        if self.discount_rate_fraction < 0 or self.depreciation_years <= 0:
            raise UsageError("the discount rate must be at least 0, and the depreciation time must be above 0 years")
        if not 0 <= self.salvage_fraction <= 1 or not 0 <= self.resale_fraction <= 1:
            raise UsageError("salvage and resale must be fractions from 0 to 1")

    def worth_today(self, years: float) -> float:
        """Return today's worth of a dollar paid in `years` years."""
        return exp(-years * log1p(self.discount_rate_fraction))

    def paid_years(self, start_years: float, end_years: float) -> float:
        """Return the discounted years of a steady payment between two dates; undiscounted at a discount rate of 0."""
        force, length = log1p(self.discount_rate_fraction), end_years - start_years
        if force * length < _NO_INTEREST:
            return length * self.worth_today(start_years)
        # expm1 keeps its precision for rates so small that 1 - (1 + rate)^-length would lose it.
        return self.worth_today(start_years) * -expm1(-force * length) / force

    def book_fraction(self, age_years: float) -> float:
        """Return the book value at an age, as a fraction of the price paid. Book value is no payment."""
        left = max(0.0, 1 - age_years / self.depreciation_years)
        return self.salvage_fraction + (1 - self.salvage_fraction) * left

    def sold_fraction(self, age_years: float) -> float:
        """Return the proceeds that the plan assumes for a sale at an age, as a fraction of the price paid."""
        above = self.book_fraction(age_years) - self.salvage_fraction
        return self.salvage_fraction + self.resale_fraction * above


@dataclass(frozen=True, slots=True, kw_only=True)
class Window(Finance):
    """Undiscounted payments between two dates; payments outside count as 0."""

    start_years: float
    end_years: float
    """End in years, exclusive: a payment on this day belongs to the next window."""
    tolerance_years: float = 1e-6
    """Difference up to which two dates count as equal: half a minute."""

    def worth_today(self, years: float) -> float:
        """Return 1 if a payment falls into the window, otherwise 0."""
        return 1.0 if self.start_years - self.tolerance_years <= years < self.end_years - self.tolerance_years else 0.0

    def paid_years(self, start_years: float, end_years: float) -> float:
        """Return the years of a steady payment that fall into the window."""
        inside = min(end_years, self.end_years) - max(start_years, self.start_years)
        return inside if inside > self.tolerance_years else 0.0
