"""What is it said to cost? A price, one price beside another, or a cost with the inputs it is made of."""

from dataclasses import dataclass

from penstock.audit.claims.amount import Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceStatement:
    """What one device costs to buy, or an hour of it to rent."""

    part: str
    bought: bool
    amount: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceRatioStatement:
    """How much less one device costs than another, as a share of the dearer."""

    part: str
    over: str
    bought: bool
    amount: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class CostStatement:
    """Dollars per million tokens, with the rent and the rate they come from."""

    usd_per_hour: float
    """Of all devices together."""
    tokens_per_s: float
    amount: Amount
    utilisation: float = 1.0
