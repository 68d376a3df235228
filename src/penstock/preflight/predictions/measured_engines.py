"""Engines that InferenceX measured with a model on an accelerator, each with the newest image used."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.checkpoint import open_checkpoint
from penstock.model import ModelSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedBy:
    """One engine that was measured with the model on the accelerator."""

    engine: str
    image: str
    until: str
    """The day on which InferenceX began to use the image."""
    weights: tuple[str, ...]
    devices: tuple[int, ...]


def engines_measured_with(model: ModelSpec, accelerator: str, table: Mapping[str, Any]) -> tuple[ServedBy, ...]:
    """Return the engines measured with a catalog model on an accelerator, or with a model of the same shape.

    The result is empty if no measurement is published. Of a model of another name, only engines with the same weight
    format count.
    """
    found = table.get(model.name, {}).get(accelerator)
    if found is None:
        stored = set(model.formats)
        related = table.get(next(iter(_same_shape(model, table)), ""), {}).get(accelerator, {})
        found = {engine: entry for engine, entry in related.items() if stored & set(entry["weights"])}
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


def _same_shape(model: ModelSpec, table: Mapping[str, Any]) -> Iterator[str]:
    """Yield the measured models that have the shape of a model and share the beginning of its name."""
    word = model.name.partition("-")[0]
    known = (name for name in table if name.partition("-")[0] == word)
    yield from (name for name in known if _shape(open_checkpoint(name).spec) == _shape(model))


def _shape(model: ModelSpec) -> tuple[object, ...]:
    experts = model.experts
    routed = None if experts is None else (experts.routed, experts.per_token)
    return model.architecture, len(model.layers), model.query_heads, routed
