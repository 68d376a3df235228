"""Which models are known by name? A trimmed config.json, where it was read, and the published size to check against."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, ClassVar

from penstock.reading.toml import STRICT


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedSize:
    """The parameter counts the publisher states, and what they count."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = STRICT

    total_params: float
    source: str
    active_params: float | None = None
    excludes: tuple[str, ...] = ()
    """Parts of the checkpoint the total leaves out, such as `mtp` or `vision`."""
    active_excludes: tuple[str, ...] = ()
    """Parts the active count leaves out besides those no text token passes; publishers differ on embeddings."""
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogModel:
    """A model people ask for by name."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = STRICT

    id: str
    repo: str
    source: str
    checked_on: date
    config: Mapping[str, Any]
    """The keys of the checkpoint's config.json that decide its shape, as published."""
    published: PublishedSize | None = None
    aliases: tuple[str, ...] = ()
    quantisation_file: Mapping[str, Any] | None = None
    """hf_quant_config.json, for checkpoints that keep their quantisation beside config.json."""
