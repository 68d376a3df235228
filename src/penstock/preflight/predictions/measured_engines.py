"""Engines measured with a model on an accelerator, with the newest image that InferenceX used."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedBy:
    """One engine measured with this model on this accelerator."""

    engine: str
    image: str
    until: str
    """The day the image came into use."""
    weights: tuple[str, ...]
    devices: tuple[int, ...]


def engines_measured_with(model: str, accelerator: str, table: Mapping[str, Any]) -> tuple[ServedBy, ...]:
    """Return the engines measured with a catalog model; empty if no measurement is published."""
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
