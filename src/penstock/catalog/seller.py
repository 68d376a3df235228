"""Classifies the seller of a price, and estimates how dear each seller is compared with the others.

A hyperscaler asks two to three times as much as a specialised cloud for the same device. The median over all sellers
therefore depends as much on the sellers in the sample as on the device. Prices are compared within
one class of sellers.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import fmean, median
from typing import Final, Literal, Protocol

SellerClass = Literal["specialised cloud", "hyperscaler", "marketplace", "survey", "estimate", "reseller list"]
SELLER_CLASSES: Final[tuple[SellerClass, ...]] = (
    "specialised cloud",
    "hyperscaler",
    "marketplace",
    "survey",
    "estimate",
    "reseller list",
)
"""Classes of sellers, the class that sells to most renters first."""


class Offered(Protocol):
    """Seller, device and amount of a recorded price."""

    @property
    def provider(self) -> str:
        """Return the name of the seller, as recorded."""

    @property
    def sku(self) -> str | None:
        """Return the seller's name of what is sold, if recorded."""

    @property
    def usd_per_device(self) -> float:
        """Return the dollars per device."""


_SAME_SELLER: Final[Mapping[str, str]] = {
    "oci": "oracle oci",
    "azure ND MI300X v5": "azure",
    "AMD Developer Cloud (DigitalOcean)": "digitalocean",
}
"""Maps other spellings of a seller to the seller's usual name."""
_CLASS_BY_SELLER: Final[Mapping[str, SellerClass]] = {
    **dict.fromkeys(("aws", "azure", "gcp", "oracle oci"), "hyperscaler"),
    **dict.fromkeys(("akash", "cloudrift", "mithril", "shadeform", "vast"), "marketplace"),
    **dict.fromkeys(
        (
            "bentaus",
            "coreweave",
            "crusoe",
            "cudo",
            "cyfuture",
            "digitalocean",
            "fluidstack",
            "hot aisle",
            "hyperstack",
            "iforels",
            "lambda",
            "nebius",
            "ovhcloud",
            "paperspace",
            "runpod",
            "scaleway",
            "seeweb",
            "tensorwave",
            "together",
            "verda",
            "vultr",
            "yotta",
        ),
        "specialised cloud",
    ),
    **dict.fromkeys(("CDW list", "NVIDIA MSRP", "AMD SEP", "NVIDIA list (Tom's Hardware)"), "reseller list"),
    **dict.fromkeys(
        (
            "Mercatus trade survey",
            "SemiAnalysis 1-year contract index",
            "SemiAnalysis 1-year contract index (as retold)",
            "SemiAnalysis BoM model",
            "SemiAnalysis TCO model",
            "gpu.fm buyers guide",
        ),
        "survey",
    ),
}
_RESOLD_SKU: Final = "community"
"""A SKU with this word is a device of a private owner, which a cloud resells."""


def seller_of(price: Offered) -> str:
    """Return the seller's usual name, so that one cloud is counted once."""
    return _SAME_SELLER.get(price.provider, price.provider)


def class_of(price: Offered) -> SellerClass:
    """Return the class of a price's seller; an unlisted source of a price counts as an estimate."""
    found = _CLASS_BY_SELLER.get(seller_of(price), "estimate")
    resold = price.sku is not None and _RESOLD_SKU in price.sku.lower()
    return "marketplace" if resold and found == "specialised cloud" else found


@dataclass(frozen=True, slots=True, kw_only=True)
class SellerLevels:
    """How dear each seller is for the same device, as the logarithm of a factor; the zero point is arbitrary."""

    by_seller: Mapping[tuple[str, SellerClass], float]

    def paired_usd(self, offers: Sequence[Offered], asked: SellerClass) -> float | None:
        """Return the price that a median seller of a class would ask for a device, estimated from its `offers`.

        Each offer is corrected by the level of its seller. The result is None if no seller's level is known.
        """
        levels = [level for (_, found), level in self.by_seller.items() if found == asked]
        corrected = [
            log(offer.usd_per_device) - self.by_seller[key]
            for offer in offers
            if (key := (seller_of(offer), class_of(offer))) in self.by_seller
        ]
        return exp(fmean(corrected) + median(levels)) if levels and corrected else None


def seller_levels(offers_by_device: Iterable[Sequence[Offered]]) -> SellerLevels:
    """Estimate the level of each seller from the offers of many devices, each seller's newest offer per device.

    The logarithm of a price is the sum of a device's level and a seller's level, fitted by least squares. Only a seller
    that offers several devices says how the prices of two devices compare.
    """
    offers = [
        (device, (seller_of(price), class_of(price)), log(price.usd_per_device))
        for device, prices in enumerate(offers_by_device)
        for price in prices
        if class_of(price) != "estimate"
    ]
    devices = dict.fromkeys((device for device, _, _ in offers), 0.0)
    sellers = dict.fromkeys((seller for _, seller, _ in offers), 0.0)
    moved = 1.0
    while moved > _SETTLED:
        devices = {key: fmean(usd - sellers[s] for d, s, usd in offers if d == key) for key in devices}
        found = {key: fmean(usd - devices[d] for d, s, usd in offers if s == key) for key in sellers}
        moved = max((abs(found[key] - before) for key, before in sellers.items()), default=0.0)
        sellers = found
    return SellerLevels(by_seller=sellers)


_SETTLED: Final = 1e-7
"""Change of a level, in one round of the fit, below which the fit has converged."""
