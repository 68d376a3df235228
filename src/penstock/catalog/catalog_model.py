"""Describes models known by name: a trimmed config.json, its source, and the published size for a check."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, ClassVar

from penstock.reading.toml import STRICT


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedSize:
    """Parameter counts that the publisher states, and the parts they include."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = STRICT

    total_params: float
    source: str
    active_params: float | None = None
    excludes: tuple[str, ...] = ()
    """Parts of the checkpoint that the total leaves out, such as `mtp` or `vision`."""
    active_excludes: tuple[str, ...] = ()
    """Parts that the active count leaves out, in addition to the parts that no text token passes. Publishers differ on
    embeddings."""
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogModel:
    """Model known by name."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = STRICT

    id: str
    repo: str
    source: str
    checked_on: date
    config: Mapping[str, Any]
    """The keys of the checkpoint's config.json that determine its shape, as published."""
    published: PublishedSize | None = None
    aliases: tuple[str, ...] = ()
    quantisation_file: Mapping[str, Any] | None = None
    """Contents of hf_quant_config.json, for checkpoints that keep their quantisation in this separate file."""
