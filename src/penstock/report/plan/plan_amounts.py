"""Formats the dollars, rates and other amounts that the reports of a plan show."""

from typing import Final

from penstock.planning.uncertainty.monte_carlo import Span

_MONEY: Final = {
    "USD": "",
    "USD/device": " a device",
    "USD/device/hour": " a device-hour",
    "USD/device/year": " per device and year",
    "USD/8 devices": " per 8 devices",
    "USD/node": " a node",
    "USD/kWh": " a kWh",
    "USD/kW/month": " per kW and month",
    "USD/year": " a year",
}
"""Suffix of a dollar amount, keyed by the unit of the input."""


_FRACTIONS: Final = {
    "per year": "per year",
    "of price": "of price",
    "of book value": "of book value",
    "of maximum": "of maximum",
    "of devices/year": "of devices a year",
    "of peak": "of peak",
    "of capacity": "of capacity",
}


_COUNTED: Final = ("years", "months", "engineers", "users")
"""Units that are written without the plural "s" after the number 1."""


_ESTIMATE: Final = "x estimate"


_CLOSE: Final = 0.02
"""Factors that differ from 1 by at most this amount are written with one more digit, so that they do not read as 1."""


_MILLION, _THOUSAND = 1e6, 1e3


_EXACT_BELOW = 10_000.0


def usd(amount_usd: float) -> str:
    """Format dollars as millions, thousands or whole dollars. An amount that is not finite is written as "-"."""
    if amount_usd != amount_usd or amount_usd in {float("inf"), float("-inf")}:  # noqa: PLR0124 - not a number
        return "-"
    size, sign = abs(amount_usd), "-" if amount_usd < 0 else ""
    if size >= 100 * _MILLION:
        return f"{sign}${size / _MILLION:,.0f}M"
    if size >= _MILLION:
        return f"{sign}${size / _MILLION:,.2f}M"
    return f"{sign}${size / _THOUSAND:,.0f}k" if size >= _EXACT_BELOW else f"{sign}${size:,.0f}"


def range_text(span: Span, served: str = "") -> str:
    """Format P10-P90 and median in brackets, and the cases that are served if not all are.

    The range is left out if P10 and P90 are equal after rounding.
    """
    low, median, high = usd(span.low), usd(span.median), usd(span.high)
    said = [] if low == high else [f"P10-P90 {low} to {high}, median {median}"]
    said += [f"in {served}"] if served else []
    return f" ({', '.join(said)})" if said else ""


def axis_unit(largest_usd: float) -> tuple[float, str]:
    """Return the unit of a chart's axis, in dollars and in words, so that its ticks have the digits of `usd`."""
    if largest_usd >= _MILLION:
        return _MILLION, "million dollars"
    return (_THOUSAND, "thousand dollars") if largest_usd >= _EXACT_BELOW else (1.0, "dollars")


def per_mtok(price: float | None) -> str:
    """Format a price per million tokens."""
    return "-" if price is None else f"${price:,.3f}" if price < 1 else f"${price:,.2f}"


def amount(value: float, unit: str) -> str:
    """Format an input with its unit."""
    figure, after = number(value, unit), _after(unit)
    return f"{figure}{after.removesuffix('s')}" if figure == "1" and unit in _COUNTED else f"{figure}{after}"


def spread(low: float, high: float, unit: str) -> str:
    """Format a range of values. The unit is written once."""
    return f"{number(low, unit)} to {amount(high, unit)}"


def number(value: float, unit: str) -> str:
    """Format an input without its unit."""
    if unit in _MONEY:
        return _dollars(value)
    if unit in _FRACTIONS:
        return f"{value:.1%}"
    if unit == _ESTIMATE:
        return f"{value:.3f}" if 0 < abs(value - 1) < _CLOSE else f"{value:.2f}"
    return f"{value:,.3g}"


def _after(unit: str) -> str:
    if unit in _MONEY:
        return _MONEY[unit]
    if unit in _FRACTIONS:
        return f" {_FRACTIONS[unit]}"
    if unit == "x stated":
        return " x the stated value"
    return " x the estimate" if unit == _ESTIMATE else f" {unit}".rstrip()


def _dollars(value: float) -> str:
    if value >= 100 or not value:  # cents matter below
        return f"${value:,.0f}"
    return f"${value:,.2f}" if value >= 1 else f"${value:,.3f}"


def rate(requests_per_s: float) -> str:
    """Format a rate of requests per second."""
    return f"{requests_per_s:,.0f}" if requests_per_s >= 100 else f"{requests_per_s:,.3g}"


def engineers(count: float) -> str:
    """Format a number of engineers."""
    return f"{count:.2g}"
