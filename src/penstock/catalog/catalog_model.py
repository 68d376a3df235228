"""Describes the models of the catalog.

Each model has a trimmed config.json, the source of that file, and the published size to check against.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedSize:
    """Parameter counts that the publisher states, and the parts of the checkpoint that these counts leave out."""

    total_params: float
    source: str
    active_params: float | None = None
    excludes: tuple[str, ...] = ()
    """Parts of the checkpoint that the published total leaves out, such as `mtp` or `vision`."""
    active_excludes: tuple[str, ...] = ()
    """Parts of the checkpoint that the published number of active parameters leaves out, such as embeddings, which only
    some publishers count. Parts that no text token passes through are always left out and not listed here."""
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogModel:
    """Model known by name."""

    id: str
    repo: str
    source: str
    checked_on: date
    config: Mapping[str, Any]
    """Published config.json of the checkpoint, trimmed to the keys that determine the shape of the model."""
    published: PublishedSize | None = None
    aliases: tuple[str, ...] = ()
    quantisation_file: Mapping[str, Any] | None = None
    """Contents of hf_quant_config.json, for checkpoints that keep their quantisation in this separate file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadCatalogModel:
    """Model known by name whose shape no reader of this version knows. Its architecture may be `unknown` too."""

    id: str
    repo: str
    architecture: str
    source: str
    checked_on: date
