"""Documents of `catalog`."""

from typing import Literal

from typing_extensions import TypedDict

from penstock.catalog.accelerator import Accelerator
from penstock.catalog.accelerator_diff import ComparedFigure, Trap
from penstock.catalog.catalog_model import PublishedSize
from penstock.catalog.price import Price


class CatalogListDocument(TypedDict):
    """Accelerators, each fact with its source."""

    schema: Literal["penstock.catalog.list/1"]
    accelerators: list[Accelerator]


class CatalogShowDocument(TypedDict):
    """One accelerator and its prices."""

    schema: Literal["penstock.catalog.show/1"]
    accelerator: Accelerator
    prices: list[Price]


class CatalogDiffDocument(TypedDict):
    """Two accelerators side by side."""

    schema: Literal["penstock.catalog.diff/1"]
    left: str
    right: str
    rows: list[ComparedFigure]
    traps: list[Trap]


class CatalogPricesDocument(TypedDict):
    """The dated prices of one accelerator."""

    schema: Literal["penstock.catalog.prices/1"]
    accelerator: str
    prices: list[Price]


class CatalogModelEntry(TypedDict):
    """A model known by name."""

    id: str
    repo: str
    architecture: str
    total_params: int
    active_params: int
    source: str
    published: PublishedSize | None


class CatalogModelsDocument(TypedDict):
    """The models known by name."""

    schema: Literal["penstock.catalog.models/1"]
    models: list[CatalogModelEntry]
