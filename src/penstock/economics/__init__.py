"""Computes costs from prices, power and people.

All functions are pure. Each cost is a discounted line item that states its formula.
"""

from penstock.economics.bill_line import Item, Line
from penstock.economics.finance import Finance
from penstock.economics.tco import Ownership, Site, StackCosts, Waterfall, ownership_bill, people, waterfall

__all__ = [
    "Finance",
    "Item",
    "Line",
    "Ownership",
    "Site",
    "StackCosts",
    "Waterfall",
    "ownership_bill",
    "people",
    "waterfall",
]
