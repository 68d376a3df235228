"""Bills rented nodes. The hourly price includes silicon, host, power and cooling, but not engineers."""

from dataclasses import dataclass
from math import ceil
from typing import Final

from penstock.economics.bill_line import Item, Line, line
from penstock.economics.finance import HOURS_PER_YEAR, MONTHS_PER_YEAR, Finance

_EPSILON: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """Term of a rental contract. Whole terms are paid, even if the nodes are needed for a shorter time."""

    months: int

    @property
    def years(self) -> float:
        """Return the length of one term, in years."""
        return self.months / MONTHS_PER_YEAR

    def ends_years(self, start_years: float, needed_years: float) -> float:
        """Return the end, in years, of a contract that is renewed from `start_years` until it covers `needed_years`."""
        return start_years + self.years * max(1, ceil(needed_years / self.years - _EPSILON))


def rent_bill(
    label: str,
    *,
    nodes: float,
    devices: int,
    usd_per_device_hour: float,
    period_years: tuple[float, float],
    finance: Finance,
) -> tuple[Line, ...]:
    """Bill nodes that are rented between two dates. Every hour is paid, whether the nodes are busy or not."""
    return (
        line(
            Item.RENT,
            label,
            "nodes*devices*usd_per_device_hour*hours_per_year*paid_years",
            nodes=nodes,
            devices=devices,
            usd_per_device_hour=usd_per_device_hour,
            hours_per_year=HOURS_PER_YEAR,
            paid_years=finance.paid_years(*period_years),
        ),
    )
