"""Renders an invoice by tenant: what each tenant used and pays, its promises, and what the pools were rented for."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Final, Literal, Protocol

from rich.console import Group, RenderableType
from rich.text import Text
from typing_extensions import TypedDict

from penstock.billing.invoice import Invoice, PoolLine, TenantLine
from penstock.report.drawing.comparison_table import Column, Figure, sheet
from penstock.report.drawing.json_document import at

_HOUR_S: Final = 3600.0
_MINUTES: Final = "%Y-%m-%d %H:%M"
_USED: Final = (
    Column("tenant", figures=False),
    *(Column(head) for head in ("requests", "tokens\nin", "cached", "tokens\nout", "replica\nhours", "$", "share")),
)
_POOLS: Final = (
    Column("pool", figures=False),
    Column("vendor", figures=False),
    *(Column(head) for head in ("requests", "replica\nhours", "busy", "own", "$", "idle $")),
)
_SCALES: Final = ((1e9, "B"), (1e6, "M"), (1e4, "k"))


class TenantDocument(TypedDict):
    """The invoice of one tenant."""

    tenant: str
    requests: int
    refused: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    seconds: float
    own_s: float
    shared_s: float
    credited_s: float
    usd: float
    idle_usd: float
    share_fraction: float | None
    kept: int
    missed: int
    unknown: int
    vendor_usd: dict[str, float | None]
    api_usd: float | None


class BilledPoolDocument(TypedDict):
    """How the rented time of one pool was used."""

    pool: str
    model: str
    vendor: str
    requests: int
    rented_s: float
    busy_s: float
    own_s: float
    own_scale: float
    usd: float
    idle_usd: float


class InvoiceDocument(TypedDict):
    """An invoice by tenant. The dollars of all tenants and of idle time add up to the rent."""

    schema: Literal["penstock.bill/1"]
    from_unix_s: Annotated[float, at("period.start_unix_s")]
    to_unix_s: Annotated[float, at("period.end_unix_s")]
    idle: Annotated[str, at("invoice.idle")]
    rent_usd: Annotated[float, at("invoice.rent_usd")]
    idle_usd: Annotated[float, at("invoice.idle_usd")]
    metered_fraction: float
    tenants: Annotated[list[TenantDocument], at("invoice.tenants")]
    pools: Annotated[list[BilledPoolDocument], at("invoice.pools")]
    cut_files: list[str]


class Period(Protocol):
    """A period in seconds since 1970."""

    @property
    def start_unix_s(self) -> float:
        """Start of the period."""

    @property
    def end_unix_s(self) -> float:
        """End of the period."""


def render_bill(
    invoice: Invoice, period: Period, metered_fraction: float, cut_files: Sequence[str], width: int
) -> RenderableType:
    """Draw the whole invoice."""
    start, end = (datetime.fromtimestamp(s, UTC).strftime(_MINUTES) for s in (period.start_unix_s, period.end_unix_s))
    pieces: list[RenderableType] = [Text(f"Invoice from {start} to {end} UTC: ${_usd(invoice.rent_usd)}", style="bold")]
    if cut_files:
        pieces.append(Text(f"Left out: the truncated last line of {', '.join(cut_files)}", style="yellow"))
    used = [_usage_cells(line) for line in invoice.tenants]
    idle_s = sum(one.rented_s - one.busy_s for one in invoice.pools)
    if invoice.idle == "separate" or invoice.idle_usd > 0:
        hours = _hours(idle_s) if invoice.idle == "separate" else "-"
        used.append([Text("idle", style="dim"), "-", "-", "-", "-", hours, _usd(invoice.idle_usd), "-"])
    pieces += [Text(), sheet(_USED, used, width), Text()]
    if invoice.tenants:
        vendors = tuple(dict.fromkeys(one.vendor for one in invoice.pools))
        api = any(line.api_usd is not None for line in invoice.tenants)
        pieces += [sheet(_beside(vendors, api=api), _comparison(invoice, vendors, api=api), width), Text()]
    pieces += [sheet(_POOLS, [_pool(line) for line in invoice.pools], width), Text()]
    return Group(*pieces, Text(_notes(invoice, metered_fraction), style="dim"))


def _beside(vendors: Sequence[str], *, api: bool) -> list[Column]:
    heads = ["SLO\nkept", "missed", "not\nknown", "refused", *(f"all on\n{vendor}, $" for vendor in vendors)]
    return [Column("tenant", figures=False), *(Column(head) for head in (*heads, *(["API, $"] if api else [])))]


def _comparison(invoice: Invoice, vendors: Sequence[str], *, api: bool) -> list[list[Figure]]:
    return [
        [
            _tenant(line),
            *(f"{count:,}" for count in (line.kept, line.missed, line.unknown, line.refused)),
            *(_usd(line.vendor_usd.get(vendor)) for vendor in vendors),
            *([_usd(line.api_usd)] if api else []),
        ]
        for line in invoice.tenants
    ]


def _tenant(line: TenantLine) -> Figure:
    return line.tenant or Text("anonymous", style="dim")


def _usage_cells(line: TenantLine) -> list[Figure]:
    return [
        _tenant(line),
        f"{line.requests:,}",
        *(_count(tokens) for tokens in (line.input_tokens, line.cached_tokens, line.output_tokens)),
        _hours(line.seconds),
        _usd(line.usd),
        "-" if line.share_fraction is None else f"{line.share_fraction:.1%}",
    ]


def _pool(line: PoolLine) -> list[Figure]:
    return [
        line.pool,
        line.vendor,
        f"{line.requests:,}",
        _hours(line.rented_s),
        f"{line.busy_s / line.rented_s:.0%}" if line.rented_s > 0 else "-",
        f"{line.own_s / line.rented_s:.0%}" if line.rented_s > 0 else "-",
        _usd(line.usd),
        _usd(line.idle_usd),
    ]


def _notes(invoice: Invoice, metered_fraction: float) -> str:
    idle = {
        "separate": "Idle time is a line of its own (`--idle spread` divides it).",
        "spread": "Idle time is divided among the requests of the same model.",
    }[invoice.idle]
    tokens = (
        f"The engines counted the tokens of {metered_fraction:.0%} of the requests, one by one or in sum; those of "
        "others are estimated from bytes."
    )
    scaled = [one.pool for one in invoice.pools if one.own_scale < 1]
    more = (
        f" In {', '.join(scaled)} the model predicts more work than the replicas had time for; it is scaled down."
        if scaled
        else ""
    )
    return (
        "Each request pays the time that it added to its replica's steps (own), and for each of its steps an equal "
        f"part of the other busy time. {idle} {tokens}{more} `all on`: the same work in batches of the same size on "
        "the vendor's cheapest pool."
    )


def _hours(seconds: float) -> str:
    hours = seconds / _HOUR_S
    return f"{hours:,.1f}" if hours >= 100 else f"{hours:.4f}" if hours < 0.1 else f"{hours:.2f}"


def _usd(usd: float | None) -> str:
    """Format dollars with cents, or with more decimals if they are less than a dollar."""
    if usd is None:
        return "-"
    return f"{usd:,.2f}" if usd == 0 or abs(usd) >= 1 else f"{usd:.4f}"


def _count(tokens: int) -> str:
    for scale, letter in _SCALES:
        if tokens >= scale:
            power = 1e3 if letter == "k" else scale
            return f"{tokens / power:,.1f}{letter}"
    return f"{tokens:,}"
