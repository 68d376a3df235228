"""Describes devices that endpoints share, for the gateway's processes."""

from dataclasses import asdict, dataclass
from typing import Any

from penstock.fleet.pools import Eviction


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingEndpoint:
    """One endpoint on a shared device, with the memory and the times of its model."""

    endpoint: int
    """Index of the endpoint in the fleet."""
    asleep_bytes: int
    swap_bytes: int
    """Bytes that the model takes while it is awake, in addition to `asleep_bytes`."""
    wake_s: float
    sleep_s: float
    kept_awake: bool
    patience_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedDevice:
    """A device whose endpoints take turns."""

    name: str
    capacity_bytes: int
    eviction: Eviction
    members: tuple[SharingEndpoint, ...]

    @property
    def swap_s(self) -> float:
        """Longest predicted time to put one model to sleep and to wake another."""
        return max(one.sleep_s for one in self.members) + max(one.wake_s for one in self.members)

    def to_json(self) -> dict[str, Any]:
        """Return the device as plain values."""
        return asdict(self)

    @staticmethod
    def from_json(values: dict[str, Any]) -> "RoutedDevice":
        """Return the device that `to_json` wrote."""
        members = tuple(SharingEndpoint(**one) for one in values["members"])
        return RoutedDevice(**{**values, "members": members})
