"""Rent per month and memory, and rent per million tokens, from a price per device-hour."""

from typing import Final

from penstock.economics.finance import HOURS_PER_YEAR, MONTHS_PER_YEAR
from penstock.economics.token_price import token_price
from penstock.units import GIB

HOURS_PER_MONTH: Final = HOURS_PER_YEAR / MONTHS_PER_YEAR


def rent_usd_per_gib_month(usd_per_device_hour: float, device_bytes: float) -> float:
    """Return the rent of a device for a month, per GiB of `device_bytes`."""
    return usd_per_device_hour * HOURS_PER_MONTH / (device_bytes / GIB)


def rent_usd_per_output_mtok(usd_per_device_hour: float, devices: int, output_tokens_per_s: float) -> float:
    """Return the rent of devices per million output tokens. All of the rent is charged to output tokens."""
    usd_per_hour, tokens = usd_per_device_hour * devices, output_tokens_per_s * 3600
    return token_price(usd_per_hour, input_tokens=0, output_tokens=tokens, prefill_fraction=None).blended_usd_per_mtok
