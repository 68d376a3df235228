"""Discounts payments to today, and computes the resale value of hardware."""

from dataclasses import dataclass
from math import exp, expm1, log1p

from penstock.errors import UsageError

HOURS_PER_YEAR = 8760.0
MONTHS_PER_YEAR = 12.0
_NO_INTEREST = 1e-12
"""Value of log(1 + rate) times years below which `Finance.paid_years` ignores discounting within the period. For
smaller values, the quotient of the discount formula would lose all its digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finance:
    """Parameters for comparing money over time."""

    discount_rate_fraction: float
    """Discount rate per year, as a fraction. At 0, payments are summed without discounting."""
    depreciation_years: float
    """Years over which hardware is depreciated linearly, from the price paid to the salvage value."""
    salvage_fraction: float = 0.0
    """Resale price of fully depreciated hardware, as a fraction of the price paid."""
    resale_fraction: float = 0.0
    """Fraction of the difference between book value and salvage value that a sale before full depreciation yields, in
    addition to the salvage value."""

    def __post_init__(self) -> None:
        if self.discount_rate_fraction < 0 or self.depreciation_years <= 0:
            raise UsageError("the discount rate must be at least 0, and the depreciation time must be above 0 years")
        if not 0 <= self.salvage_fraction <= 1 or not 0 <= self.resale_fraction <= 1:
            raise UsageError("salvage and resale must be fractions from 0 to 1")

    def worth_today(self, years: float) -> float:
        """Return the present value of one dollar that is paid `years` years from today."""
        return exp(-years * log1p(self.discount_rate_fraction))

    def paid_years(self, start_years: float, end_years: float) -> float:
        """Return the present value of one dollar per year, paid steadily between two dates.

        At a discount rate of 0, the result is the length of the period in years.
        """
        force, length = log1p(self.discount_rate_fraction), end_years - start_years
        if force * length < _NO_INTEREST:
            return length * self.worth_today(start_years)
        # For very small rates expm1 is precise, while 1 - (1 + rate)^-length would lose its digits.
        return self.worth_today(start_years) * -expm1(-force * length) / force

    def book_fraction(self, age_years: float) -> float:
        """Return the book value of hardware at an age, as a fraction of the price paid. Book value is not a payment."""
        left = max(0.0, 1 - age_years / self.depreciation_years)
        return self.salvage_fraction + (1 - self.salvage_fraction) * left

    def sold_fraction(self, age_years: float) -> float:
        """Return the assumed proceeds of selling hardware at an age, as a fraction of the price paid."""
        above = self.book_fraction(age_years) - self.salvage_fraction
        return self.salvage_fraction + self.resale_fraction * above


@dataclass(frozen=True, slots=True, kw_only=True)
class Window(Finance):
    """Rules for a window between two dates: payments inside it count in full, and payments outside it count as 0."""

    start_years: float
    end_years: float
    """End in years, exclusive. A payment made exactly at the end of a window belongs to the next window."""
    tolerance_years: float = 1e-6
    """Two dates that differ by at most this many years count as equal. The default, 1e-6 years, is half a minute."""

    def worth_today(self, years: float) -> float:
        """Return 1 if a payment at `years` years from today falls into the window, otherwise 0."""
        return 1.0 if self.start_years - self.tolerance_years <= years < self.end_years - self.tolerance_years else 0.0

    def paid_years(self, start_years: float, end_years: float) -> float:
        """Return how many years of a steady payment between two dates fall into the window."""
        inside = min(end_years, self.end_years) - max(start_years, self.start_years)
        return inside if inside > self.tolerance_years else 0.0
