"""What does renting cost? The hour's price holds silicon, host, power and cooling; only people come on top."""

from penstock.economics.finance import HOURS_PER_YEAR, Finance
from penstock.economics.line import Item, Line, line


def rented(
    label: str,
    *,
    nodes: float,
    devices: int,
    usd_per_device_hour: float,
    period_years: tuple[float, float],
    finance: Finance,
) -> tuple[Line, ...]:
    """Bill nodes rented from one date to another, around the clock."""
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
