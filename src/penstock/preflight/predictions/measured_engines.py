"""Who serves this model here? Engines that were measured doing it, with the newest image InferenceX used."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedBy:
    """One engine that was measured with this model on this part."""

    engine: str
    image: str
    until: str
    """The day the image came into use."""
    weights: tuple[str, ...]
    devices: tuple[int, ...]


def served_by(model: str, accelerator: str, table: Mapping[str, Any]) -> tuple[ServedBy, ...]:
    """Look a model of the catalog up; empty where nobody published a measurement."""
    found = table.get(model, {}).get(accelerator, {})
    return tuple(
        ServedBy(
            engine=engine,
            image=str(entry["image"]),
            until=str(entry["until"]),
            weights=tuple(entry["weights"]),
            devices=tuple(entry["devices"]),
        )
        for engine, entry in found.items()
    )
