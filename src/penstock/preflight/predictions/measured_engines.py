"""Engines that InferenceX measured with a model on an accelerator, each with the newest image used."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedBy:
    """One engine that was measured with the model on the accelerator."""

    engine: str
    image: str
    until: str
    """The day on which InferenceX began to use the image."""
    weights: tuple[str, ...]
    devices: tuple[int, ...]


def engines_measured_with(model: str, accelerator: str, table: Mapping[str, Any]) -> tuple[ServedBy, ...]:
    """Return the engines measured with a catalog model on an accelerator.

    The result is empty if no measurement is published.
    """
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
