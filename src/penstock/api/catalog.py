"""Queries the catalog of accelerators, prices and models, with sources: `penstock.catalog`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from rich.console import RenderableType
from typing_extensions import TypedDict

from penstock.api.answer import ApiAnswer, Cell, Row
from penstock.catalog import load_accelerator, load_accelerators, load_models, load_prices
from penstock.catalog.accelerator import Accelerator, facts
from penstock.catalog.accelerator_diff import ComparedFigure, Trap, compare
from penstock.catalog.catalog_model import PublishedSize
from penstock.catalog.device_prices import DevicePrice
from penstock.catalog.price import Price, PriceKind
from penstock.checkpoint import open_checkpoint
from penstock.economics.price_diff import compare_prices
from penstock.errors import UsageError
from penstock.report.catalog import (
    render_accelerator,
    render_comparison,
    render_list,
    render_models,
    render_prices,
)
from penstock.report.drawing.plain_json import plain_fields

CatalogQuestion: TypeAlias = Literal["list", "show", "diff", "prices", "models"]


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
    price_rows: list[ComparedFigure]
    prices: list[DevicePrice]


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


@dataclass(frozen=True, kw_only=True, repr=False)
class CatalogAnswer(ApiAnswer):
    """An answer of the catalog."""

    about: str
    facts: Mapping[str, object]
    """Contents of the document as objects of the library's types."""
    table: tuple[Row, ...]
    draw: Callable[[int], RenderableType]
    shown: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Return true, because a catalog query has no verdict."""
        return True

    def document(self) -> Mapping[str, object]:
        """Return the document that `catalog ... --json` prints."""
        return self.facts

    def rows(self) -> list[Row]:
        """Return one row per accelerator, fact, price or model."""
        return [dict(row) for row in self.table]

    def render(self, columns: int) -> RenderableType:
        """Return what `catalog` prints."""
        return self.draw(columns)

    def _summary(self) -> tuple[str, Sequence[str]]:
        return self.about, self.shown


def catalog(
    what: CatalogQuestion = "list", *names: str, everything: bool = False, kind: str | None = None
) -> CatalogAnswer:
    """Query the catalog, as `penstock catalog` does: `catalog("diff", "mi300x", "h100")` or `catalog("models")`.

    `everything` is the --all flag of `catalog list`; `kind` is the --kind flag of `catalog prices`.
    """
    wanted = {"list": 0, "show": 1, "diff": 2, "prices": 1, "models": 0}
    if what not in wanted:
        raise UsageError(f"'{what}' is not a catalog query; use one of {', '.join(wanted)}")
    if len(names) != wanted[what]:
        raise UsageError(f"catalog {what} takes {wanted[what]} accelerators, not {len(names)}")
    if what == "list":
        return _list(everything=everything)
    if what == "show":
        return _show(*names)
    if what == "diff":
        return _diff(*names)
    return _models() if what == "models" else _prices(*names, kind=kind)


def _list(*, everything: bool) -> CatalogAnswer:
    accelerators = [one for one in load_accelerators() if everything or one.recommendable]
    return CatalogAnswer(
        about="accelerators",
        facts=CatalogListDocument(schema="penstock.catalog.list/1", accelerators=accelerators),
        table=tuple(_flat(one) for one in accelerators),
        draw=lambda columns: render_list(accelerators, columns),
        shown=tuple(one.id for one in accelerators),
    )


def _flat(accelerator: Accelerator) -> Row:
    row: Row = {"accelerator": accelerator.id, "vendor": accelerator.vendor, "architecture": accelerator.architecture}
    row |= {name: _cell(value) for name, value in facts(accelerator)}
    return row | {"status": accelerator.status, "recommendable": accelerator.recommendable}


def _cell(value: object) -> Cell:
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _show(name: str) -> CatalogAnswer:
    accelerator, prices = load_accelerator(name), load_prices(name)
    rows: list[Row] = []
    for fact, value in facts(accelerator):
        source = accelerator.source_of(fact)
        rows.append(
            {
                "fact": fact,
                "value": _cell(value),
                "basis": source.basis.value,
                "title": source.title,
                "url": source.url,
                "checked_on": source.checked_on.isoformat(),
            }
        )
    return CatalogAnswer(
        about=accelerator.id,
        facts=CatalogShowDocument(schema="penstock.catalog.show/1", accelerator=accelerator, prices=list(prices)),
        table=tuple(rows),
        draw=lambda _: render_accelerator(accelerator, prices),
        shown=(f"{len(rows)} facts", f"{len(prices)} prices"),
    )


def _diff(left: str, right: str) -> CatalogAnswer:
    ours, theirs = load_accelerator(left), load_accelerator(right)
    if ours.id == theirs.id:
        raise UsageError(f"'{left}' and '{right}' are both {ours.id}; name two different accelerators")
    found, money = compare(ours, theirs), compare_prices(ours, theirs)
    rows: list[Row] = [
        {"fact": row.name, ours.id: _cell(row.left), theirs.id: _cell(row.right), "ratio": row.ratio}
        for row in (*found.rows, *money.rows)
    ]
    return CatalogAnswer(
        about=f"{ours.id} and {theirs.id}",
        facts=CatalogDiffDocument(
            schema="penstock.catalog.diff/1",
            left=ours.id,
            right=theirs.id,
            rows=list(found.rows),
            traps=list(found.traps),
            price_rows=list(money.rows),
            prices=list(money.prices),
        ),
        table=tuple(rows),
        draw=lambda _: render_comparison(found, money),
        shown=(f"{len(rows)} facts", f"{len(found.traps)} traps"),
    )


def _prices(name: str, *, kind: str | None) -> CatalogAnswer:
    if kind is not None and kind not in get_args(PriceKind):
        raise UsageError(f"'{kind}' is not a kind of price; use one of {', '.join(get_args(PriceKind))}")
    accelerator = load_accelerator(name)
    prices = [price for price in load_prices(name) if kind is None or price.kind == kind]
    return CatalogAnswer(
        about=accelerator.id,
        facts=CatalogPricesDocument(schema="penstock.catalog.prices/1", accelerator=accelerator.id, prices=prices),
        table=tuple(_price_row(accelerator, price) for price in prices),
        draw=lambda width: render_prices(accelerator.id, prices, width),
        shown=(f"{len(prices)} prices",),
    )


def _price_row(accelerator: Accelerator, price: Price) -> Row:
    row: Row = {name: _cell(value) for name, value in plain_fields(price).items()}
    return {"accelerator": accelerator.id, **row, "usd_per_device": price.usd_per_device}


def _models() -> CatalogAnswer:
    models = [(model, open_checkpoint(model.id).spec) for model in load_models()]
    rows: list[Row] = [
        {
            "id": model.id,
            "repo": model.repo,
            "architecture": spec.architecture,
            "total_params": spec.total_params,
            "active_params": spec.active_params,
            "source": model.source,
        }
        for model, spec in models
    ]
    documents = [{**row, "published": model.published} for row, (model, _) in zip(rows, models, strict=True)]
    return CatalogAnswer(
        about="models",
        facts={"schema": "penstock.catalog.models/1", "models": documents},
        table=tuple(rows),
        draw=lambda width: render_models(
            [(model, spec.total_params, spec.active_params) for model, spec in models], width
        ),
        shown=tuple(model.id for model, _ in models),
    )
