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

    def __post_init__(self) -> None:
        if self.discount_rate_fraction < 0 or self.depreciation_years <= 0 or not 0 <= self.salvage_fraction <= 1:
            raise UsageError(
                "a discount rate is at least 0, depreciation takes time, salvage is a fraction of the price"
            )

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
        """What is left of the price paid after so many years."""
        left = max(0.0, 1 - age_years / self.depreciation_years)
        return self.salvage_fraction + (1 - self.salvage_fraction) * left
