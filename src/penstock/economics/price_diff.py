"""Compares the prices of two accelerators: rent and purchase, per device, per GiB of HBM and per TB/s of bandwidth."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.catalog.accelerator import Accelerator
from penstock.catalog.accelerator_diff import ComparedFigure
from penstock.catalog.device_prices import DevicePrice, hourly_rent, purchase_price
from penstock.economics.rent_rates import HOURS_PER_MONTH, rent_usd_per_gib_month
from penstock.units import GIB, TERA

_LABELS = {
    "rent_usd_per_device_hour": "rent, $ per device-hour",
    "rent_usd_per_hbm_gib_month": "rent, $ per GiB of HBM and month",
    "rent_usd_per_hbm_tb_per_s_month": "rent, $ per TB/s and month",
    "purchase_usd_per_device": "purchase, $ per device",
    "purchase_usd_per_hbm_gib": "purchase, $ per GiB of HBM",
    "purchase_usd_per_hbm_tb_per_s": "purchase, $ per TB/s",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceComparison:
    """Prices of two accelerators side by side, and the market prices from which the rows are computed."""

    rows: tuple[ComparedFigure, ...]
    prices: tuple[DevicePrice, ...]


def compare_prices(left: Accelerator, right: Accelerator) -> PriceComparison:
    """Compare the market prices of two accelerators. A row that neither accelerator has is left out."""
    prices = [(hourly_rent(one.id), purchase_price(one.id)) for one in (left, right)]
    ours, theirs = (_figures(one, *found) for one, found in zip((left, right), prices, strict=True))
    rows = tuple(
        ComparedFigure(name, label, ours.get(name), theirs.get(name), _ratio(ours.get(name), theirs.get(name)))
        for name, label in _LABELS.items()
        if name in ours or name in theirs
    )
    return PriceComparison(rows=rows, prices=tuple(price for pair in prices for price in pair if price is not None))


def _figures(accelerator: Accelerator, rent: DevicePrice | None, purchase: DevicePrice | None) -> Mapping[str, float]:
    gib, tb_per_s = accelerator.memory.hbm_bytes / GIB, accelerator.memory.hbm_bytes_per_s / TERA
    figures: dict[str, float] = {}
    if rent is not None:
        month = rent.usd_per_device * HOURS_PER_MONTH
        figures["rent_usd_per_device_hour"] = rent.usd_per_device
        figures["rent_usd_per_hbm_gib_month"] = rent_usd_per_gib_month(
            rent.usd_per_device, accelerator.memory.hbm_bytes
        )
        figures["rent_usd_per_hbm_tb_per_s_month"] = month / tb_per_s
    if purchase is not None:
        figures["purchase_usd_per_device"] = purchase.usd_per_device
        figures["purchase_usd_per_hbm_gib"] = purchase.usd_per_device / gib
        figures["purchase_usd_per_hbm_tb_per_s"] = purchase.usd_per_device / tb_per_s
    return figures


def _ratio(left: float | None, right: float | None) -> float | None:
    return None if left is None or right is None else left / right
