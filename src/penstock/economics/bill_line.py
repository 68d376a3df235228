"""Defines a line item of a bill, with the formula and the inputs that give its amount."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache


class Item(StrEnum):
    """Cost category of a line of a bill. Categories are listed in the order of a waterfall chart, silicon first."""

    SILICON = "silicon"
    KEPT = "resale given up"
    RENT = "rent"
    HOST = "host"
    NETWORK = "network"
    POWER = "power"
    COOLING = "cooling"
    HOSTING = "hosting"
    SUPPORT = "support"
    LICENCES = "licences"
    FAILURES = "failures"
    SPARES = "spares"
    SOFTWARE = "software"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One amount in today's dollars.

    Readers can check the amount by hand, because `formula` evaluated on `inputs` gives `usd`.
    """

    item: Item
    label: str
    usd: float
    formula: str
    inputs: Mapping[str, float]


def line(item: Item, label: str, formula: str, **inputs: float) -> Line:
    """Evaluate a formula of the form `a*b*(c - d*e)` on its inputs and return the result as a line of a bill."""
    return Line(item=item, label=label, usd=_product(formula, inputs), formula=formula, inputs=inputs)


def _product(formula: str, inputs: Mapping[str, float]) -> float:
    total = 1.0
    for factor in _parse_formula(formula):
        difference = 0.0
        for number, names in enumerate(factor):
            product = 1.0
            for name in names:
                product *= inputs[name] if name in inputs else float(name)
            difference += product if number == 0 else -product
        total *= difference
    return total


@cache
def _parse_formula(formula: str) -> tuple[tuple[tuple[str, ...], ...], ...]:
    """Return the factors of a formula; the first term of a factor counts positive, and its other terms negative."""
    factors = (factor.rstrip(")") for factor in formula.replace(" ", "").split("*("))
    return tuple(tuple(tuple(term.split("*")) for term in factor.split("-")) for factor in factors)


def total_usd(lines: tuple[Line, ...]) -> float:
    """Return the sum of all lines of a bill, in dollars."""
    return sum(entry.usd for entry in lines)
