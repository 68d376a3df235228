"""Claims about money: a price, a price ratio, or a cost together with the inputs of its computation."""

from dataclasses import dataclass

from penstock.audit.claims.amount import Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceStatement:
    """A claim about the purchase price of one device, or about its rent per hour."""

    accelerator: str
    bought: bool
    amount: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceRatioStatement:
    """A claim about how much cheaper a device is than the device `over`, as a share of the price of `over`."""

    accelerator: str
    over: str
    bought: bool
    amount: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class CostStatement:
    """A claim about dollars per million tokens, with the rent and the token rate that the computation used."""

    usd_per_hour: float
    """Rent of all devices together, in dollars per hour."""
    tokens_per_s: float
    amount: Amount
    utilisation: float = 1.0
