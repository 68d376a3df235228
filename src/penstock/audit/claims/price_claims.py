"""Claims about cost: a price, a price ratio, or a cost with its inputs."""

from dataclasses import dataclass

from penstock.audit.claims.amount import Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceStatement:
    """The purchase price of one device, or its rent per hour."""

    accelerator: str
    bought: bool
    amount: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceRatioStatement:
    """The saving of one device relative to another, as a share of the more expensive one."""

    accelerator: str
    over: str
    bought: bool
    amount: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class CostStatement:
    """Dollars per million tokens, with the rent and token rate."""

    usd_per_hour: float
    """Rent of all devices together, in dollars per hour."""
    tokens_per_s: float
    amount: Amount
    utilisation: float = 1.0
