"""Computes costs: discounted line items with their formulas, as pure functions of prices, power and people."""

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
