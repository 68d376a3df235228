"""Renders the list of accelerators, one accelerator with its sources, and a comparison of two accelerators."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from penstock.catalog.accelerator import Accelerator, Basis, Precision, Source, facts
from penstock.catalog.accelerator_diff import AcceleratorComparison, Trap
from penstock.catalog.catalog_model import CatalogModel
from penstock.catalog.price import Price, instance_sizes, market_price, prices_by_class
from penstock.economics.price_diff import PriceComparison
from penstock.report.drawing.comparison_table import measured_width
from penstock.report.price_note import price_notes
from penstock.units import GB, GIB, TERA, format_params

_MARK = {Basis.UNVERIFIED: "?", Basis.ESTIMATED: "~", Basis.DERIVED: "=", Basis.MEASURED: "*", Basis.VENDOR_SPEC: ""}
MARKS = "? unverified   ~ estimated   = derived   * measured   (no mark) vendor specification"


_WIDE = 110
"""Minimum terminal width, in columns, at which every fact of a row fits on one line."""
_COLUMNS = (
    ("id", ""),
    ("memory", "as sold"),
    ("usable", "GiB"),
    ("bandwidth", "TB/s"),
    ("bf16", "TFLOPS"),
    ("fp8", "TFLOPS"),
    ("fp4", "TFLOPS"),
    ("link", "GB/s one way"),
    ("TDP", "W"),
    ("FP8", "dialect"),
    ("", ""),
)
_LEFT_OUT_WHEN_NARROW = {"memory", "link", "TDP", "FP8"}


def render_list(accelerators: Sequence[Accelerator], width: int) -> RenderableType:
    """Draw the catalog, one line per accelerator. A narrow terminal gets fewer columns, so that no number is cut."""
    parts = sorted(accelerators, key=lambda part: (part.vendor, part.memory.hbm_bytes))
    table = _list_table(parts, frozenset())
    caption = (
        "Dense FLOPS, without sparsity. `?`: excluded from recommendations. `penstock catalog show ID` lists sources"
    )
    if measured_width(table) > width:
        table = _list_table(parts, frozenset(_LEFT_OUT_WHEN_NARROW))
        caption += ". A wider terminal also shows memory as sold, link, TDP and FP8 dialect"
    return Group(table, Text(caption, style="dim"))


def _list_table(parts: Sequence[Accelerator], left_out: frozenset[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    shown = [number for number, (name, _) in enumerate(_COLUMNS) if name not in left_out]
    for number in shown:
        name, _ = _COLUMNS[number]
        table.add_column(name, justify="left" if name in {"id", "link", "FP8", ""} else "right", no_wrap=True)
    table.add_row(*(Text(_COLUMNS[number][1], style="dim") for number in shown))
    for part in parts:
        row = _list_row(part)
        table.add_row(*(row[number] for number in shown))
    return table


def _list_row(part: Accelerator) -> list[str | Text]:
    flops = [
        f"{part.dense_flops_per_s[kind] / TERA:,.0f}" if kind in part.dense_flops_per_s else "-"
        for kind in (Precision.BF16, Precision.FP8, Precision.FP4)
    ]
    link = "-"
    if part.link is not None and part.link.aggregate_bytes_per_s_one_way is not None:
        link = f"{part.link.aggregate_bytes_per_s_one_way / GB:,.0f} {part.link.topology}"
    return [
        Text(part.id, style="bold"),
        f"{part.memory.nominal_gb:g} GB",
        f"{part.usable_hbm_bytes / GIB:,.1f}",
        f"{part.memory.hbm_bytes_per_s / TERA:.2f}",
        *flops,
        link,
        f"{part.tdp_watts:,.0f}" if part.tdp_watts else "-",
        part.fp8_dialect or "-",
        "" if part.recommendable else Text(f"? {part.status}", style="yellow"),
    ]


def render_accelerator(part: Accelerator, prices: Sequence[Price]) -> RenderableType:
    """Draw every fact about one accelerator, with its basis and source."""
    title = Text.assemble(
        (part.name, "bold"), f"  {part.vendor}, {part.architecture}, {part.form_factor}, {part.status}"
    )
    pieces: list[RenderableType] = [title]
    if part.note:
        pieces.append(Text(part.note))
    if not part.recommendable:
        pieces.append(
            Text(
                "This accelerator is excluded from recommendations, because it is not shipping or decisive facts are "
                "unverified.",
                style="yellow",
            )
        )
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("fact")
    table.add_column("value", justify="right")
    table.add_column("basis")
    table.add_column("source")
    for name, value in facts(part):
        source = part.source_of(name)
        weak = source.basis in {Basis.UNVERIFIED, Basis.ESTIMATED}
        basis = Text(source.basis.value.replace("_", " "), style="yellow" if weak else "dim")
        table.add_row(name, format_fact(name, value), basis, f"[{part.sources.index(source) + 1}]")
    pieces += [Text(), table, Text()]
    pieces += [_reference(number, source) for number, source in enumerate(part.sources, 1)]
    if prices:
        pieces += [Text(), _price_summary(part, prices)]
    return Group(*pieces)


def _reference(number: int, source: Source) -> Text:
    text = Text(f"[{number}] ", overflow="fold")
    text.append(
        ", ".join(piece for piece in (source.title, source.url, f"checked {source.checked_on}") if piece), style="dim"
    )
    if source.note:
        text.append(f"\n    {source.note}", style="italic dim")
    return text


def _price_summary(part: Accelerator, prices: Sequence[Price]) -> Text:
    text = Text(f"{len(prices)} dated prices", style="bold")
    market = market_price(prices, "rent_on_demand")
    if market is not None:
        low, high = market.offers[0], market.offers[-1]
        text.append(
            f"; on demand ${market.usd_per_device:,.2f} per device-hour, from ${low.usd_per_device:,.2f} "
            f"({low.provider}, {low.effective_from}) to ${high.usd_per_device:,.2f} "
            f"({high.provider}, {high.effective_from})",
            style="default not bold",
        )
    text.append(f"; `penstock catalog prices {part.id}` lists them", style="dim not bold")
    return text


def format_fact(name: str, value: object) -> str:
    """Format a fact in its customary unit. The stored value is in SI units."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if "flops_per_s" in name:
            return f"{value / TERA:,.1f} TFLOPS"
        if name.endswith("bytes_per_s"):
            return f"{value / TERA:,.3f} TB/s"
        if name.endswith("bytes_per_s_one_way"):
            return f"{value / GB:,.1f} GB/s"
        if name.endswith("_bytes"):
            return f"{value / GIB:,.2f} GiB"
        if "watts" in name:
            return f"{value:,.0f} W"
        return f"{value:,g}"
    if isinstance(value, tuple):
        return ", ".join(str(entry) for entry in value)
    return str(value)


def render_comparison(comparison: AcceleratorComparison, money: PriceComparison) -> RenderableType:
    """Draw two accelerators side by side with their prices, then common errors in published comparisons."""
    left, right = comparison.left, comparison.right
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("")
    table.add_column(left.id, justify="right")
    table.add_column(right.id, justify="right")
    table.add_column(f"{left.id} / {right.id}", justify="right")
    for row in comparison.rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}x"
        table.add_row(
            row.label, _cell(left, row.name, row.left), _cell(right, row.name, row.right), Text(ratio, style="bold")
        )
    for row in money.rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}x"
        table.add_row(row.label, _usd(row.left), _usd(row.right), Text(ratio, style="bold"))
    pieces: list[RenderableType] = [table, Text(MARKS, style="dim"), price_notes(money.prices), Text()]
    if comparison.traps:
        pieces.append(Text("Where published comparisons go wrong", style="bold"))
        pieces += [_trap(trap) for trap in comparison.traps]
    return Group(*pieces)


def _cell(part: Accelerator, name: str, value: object) -> str:
    if value is None:
        return "-"
    return f"{format_fact(name, value)} {_MARK[part.source_of(name).basis]}".rstrip()


def _usd(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else "-"


def _trap(trap: Trap) -> Text:
    return Text.assemble(("  ! ", "yellow"), trap.text)


def render_prices(name: str, prices: Sequence[Price], width: int) -> RenderableType:
    """Draw all dated prices of an accelerator, oldest first."""
    table = _wide_prices(prices) if width >= _WIDE else _narrow_prices(prices)
    return Group(
        *_rents_by_class(name, prices), Text(f"{name}: {len(prices)} prices, oldest first", style="bold"), table
    )


def _rents_by_class(name: str, prices: Sequence[Price]) -> Iterator[RenderableType]:
    """Draw the newest hourly rents, class of sellers by class, with the sizes of instances that are rented."""
    found = prices_by_class(prices)
    if not found:
        return
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("class of seller")
    for column in ("sellers", "lowest", "median", "highest"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("devices per instance")
    for entry in found:
        usd = (entry.low_usd_per_device, entry.median_usd_per_device, entry.high_usd_per_device)
        sizes = instance_sizes(prices, "rent_on_demand", seller_class=entry.seller_class)
        table.add_row(
            entry.seller_class,
            str(entry.sellers),
            *(f"{amount:,.2f}" for amount in usd),
            ", ".join(map(str, sizes)) or "not recorded",
        )
    yield Text(f"{name}: rent by the hour, USD per device, newest price of each seller", style="bold")
    yield table
    yield Text()


def _wide_prices(prices: Sequence[Price]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("from", "kind", "provider", "devices", "USD", "per device", "confidence", "region / SKU"):
        number = column in {"devices", "USD", "per device"}
        # Text columns wrap in a narrow terminal, so that no number or date is cut.
        whole = number or column == "from"
        table.add_column(column, justify="right" if number else "left", no_wrap=whole, overflow="fold")
    for price in prices:
        hour = "/h" if price.hourly else ""
        table.add_row(
            _since(price),
            _kind(price),
            price.provider,
            str(price.devices),
            f"{price.usd:,.2f}{hour}",
            f"{price.usd_per_device:,.2f}{hour}",
            price.confidence,
            Text(_what(price), style="dim"),
        )
    return table


def _narrow_prices(prices: Sequence[Price]) -> RenderableType:
    """Draw prices for a narrow terminal. Long text gets its own line, because a column would wrap it."""
    kinds, width = [_kind(price) for price in prices], 12
    wide = max(map(len, kinds), default=0)
    lines: list[RenderableType] = [
        Text(f"{'from':10}  {'kind':{wide}}  {'per device':>{width}}  provider", style="bold")
    ]
    for price, kind in zip(prices, kinds, strict=True):
        hour = "/h" if price.hourly else ""
        each, total = f"{price.usd_per_device:,.2f}{hour}", f"{price.devices} for {price.usd:,.2f}{hour}"
        lines.append(Text(f"{_since(price):10}  {kind:{wide}}  {each:>{width}}  {price.provider}"))
        words = ", ".join(part for part in (total if price.devices > 1 else "", price.confidence, _what(price)) if part)
        lines.append(Padding(Text(words, style="dim"), (0, 0, 0, 4)))
    return Group(*lines)


def _since(price: Price) -> str:
    return price.effective_from.isoformat()[: {"day": 10, "month": 7, "year": 4}[price.date_precision]]


def _kind(price: Price) -> str:
    return price.kind if price.term_months is None else f"{price.kind}, {price.term_months} months"


def _what(price: Price) -> str:
    return " ".join(part for part in (price.region, price.sku, _unused(price)) if part)


def _unused(price: Price) -> str:
    if price.corrected_by is not None:
        return f"(not used: mislabelled, see {price.corrected_by})"
    return "(not used: not available that day)" if price.available is False else ""


def render_models(models: Sequence[tuple[CatalogModel, int, int]], width: int) -> RenderableType:
    """Draw the catalog's models with their total and active parameters. Names of repositories are never wrapped."""
    below = width < _WIDE
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("name, repository" if below else "name", no_wrap=True)
    for column in ("parameters", "active"):
        table.add_column(column, justify="right", no_wrap=True)
    if not below:
        table.add_column("repository", no_wrap=True)
    for model, total, active in models:
        shown = format_params(active) if active < 0.95 * total else ""
        name, repository = Text(model.id, style="bold"), Text(model.repo, style="dim")
        first = Text.assemble(name, "\n  ", repository) if below else name
        table.add_row(first, format_params(total), shown, *(() if below else (repository,)))
    return table
