"""What is a dollar of another year worth today? Discounting, and what hardware is worth when it is given back."""

from dataclasses import dataclass
from math import exp, expm1, log1p

from penstock.errors import UsageError

HOURS_PER_YEAR = 8760.0
MONTHS_PER_YEAR = 12.0
_NO_INTEREST = 1e-12
"""Below this the quotient has no digits left and the limit is exact to all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finance:
    """How money is compared over time."""

    discount_rate_fraction: float
    """Per year; 0 compares plain sums."""
    depreciation_years: float
    """Straight line: hardware of this age is worth its salvage value."""
    salvage_fraction: float = 0.0
    """Of the price paid, what fully depreciated hardware still sells for."""
    resale_fraction: float = 0.0
    """Of what the books say above salvage, what a sale before that age brings; 0 counts on salvage alone."""

    def __post_init__(self) -> None:
        if self.discount_rate_fraction < 0 or self.depreciation_years <= 0:
            raise UsageError("a discount rate is at least 0 and depreciation takes time")
        if not 0 <= self.salvage_fraction <= 1 or not 0 <= self.resale_fraction <= 1:
            raise UsageError("salvage is a fraction of the price and resale a fraction of the book value")

    def worth_today(self, years: float) -> float:
        """What a dollar paid so many years from now is worth today."""
        return exp(-years * log1p(self.discount_rate_fraction))

    def paid_years(self, start_years: float, end_years: float) -> float:
        """Years of a steady payment between two dates, each moment discounted to today; plain years at a rate of 0."""
        force, length = log1p(self.discount_rate_fraction), end_years - start_years
        if force * length < _NO_INTEREST:
            return length * self.worth_today(start_years)
        # expm1 keeps its digits where the rate is so small that 1 - (1 + rate)^-length would lose them.
        return self.worth_today(start_years) * -expm1(-force * length) / force

    def book_fraction(self, age_years: float) -> float:
        """What the books say is left of the price paid after so many years: accounting, not money."""
        left = max(0.0, 1 - age_years / self.depreciation_years)
        return self.salvage_fraction + (1 - self.salvage_fraction) * left

    def sold_fraction(self, age_years: float) -> float:
        """What of the price paid a sale brings after so many years: the money a plan counts on."""
        above = self.book_fraction(age_years) - self.salvage_fraction
        return self.salvage_fraction + self.resale_fraction * above


@dataclass(frozen=True, slots=True, kw_only=True)
class Window(Finance):
    """Money as it is paid between two dates: plain dollars, nothing discounted, nothing outside."""

    start_years: float
    end_years: float
    """A payment on this day belongs to the next window."""
    tolerance_years: float = 1e-6
    """Dates closer than this are one: half a minute."""

    def worth_today(self, years: float) -> float:
        """Count a payment that falls into the window."""
        return 1.0 if self.start_years - self.tolerance_years <= years < self.end_years - self.tolerance_years else 0.0

    def paid_years(self, start_years: float, end_years: float) -> float:
        """The part of a steady payment that falls into the window."""
        inside = min(end_years, self.end_years) - max(start_years, self.start_years)
        return inside if inside > self.tolerance_years else 0.0
