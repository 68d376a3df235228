"""Renders replayed gateway decisions: a row per policy, and one decision explained by endpoint."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor, log10
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from penstock.report.drawing.comparison_table import Column, Figure, sheet
from penstock.routing.baselines.policies import RoutingPolicy
from penstock.routing.replay import Receipt, ReceiptLine
from penstock.units import format_s

SCHEMA: Final = "penstock.receipts/3"
_POLICIES: Final = (
    Column("policy", figures=False),
    Column("same\nendpoint"),
    Column("expected to miss its\npromise, or turned away"),
    Column("engine time of\n1,000 requests, $"),
    Column("of it in\nelastic pools, $"),
    Column("turned\naway"),
    Column("most to one\nendpoint"),
)
_ENDPOINTS: Final = (
    Column("endpoint", figures=False),
    *(Column(head) for head in ("order", "TTFT", "TPOT", "misses", "harm", "engine\ntime, $", "cached\ntokens")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedPolicy:
    """Result of replaying recorded decisions with another policy."""

    policy: RoutingPolicy
    agreed_fraction: float
    turned_away: int
    expected_miss_fraction: float
    """Expected share of all requests that miss their SLO, by the state known then; shed requests count as missed."""
    sent_miss_fraction: float
    """The same share over the requests that it would have sent."""
    engine_usd_per_1000_requests: float
    """Price of the time that requests add to engine steps, in dollars. Not a bill, which includes idle time."""
    elastic_usd_per_1000_requests: float
    """The part of it in elastic pools, in dollars; other pools cost the same under every policy."""
    sent: Mapping[str, int]
    """Requests by endpoint address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """One explained decision."""

    number: int
    addresses: tuple[str, ...]
    order: tuple[int, ...]
    """Indices of the endpoints that the gateway tries, in order."""
    receipt: Receipt


def receipts_document(
    decisions: int, replays: Sequence[ReplayedPolicy], explained: Explained | None, cut_files: Sequence[str] = ()
) -> dict[str, object]:
    """Collect the JSON document of `receipts --json`."""
    return {
        "schema": SCHEMA,
        "decisions": decisions,
        "cut_files": list(cut_files),
        "policies": [
            {
                "policy": one.policy.name,
                "source": one.policy.source,
                "agreed_fraction": one.agreed_fraction,
                "turned_away": one.turned_away,
                "expected_miss_fraction": one.expected_miss_fraction,
                "sent_miss_fraction": one.sent_miss_fraction,
                "engine_usd_per_1000_requests": one.engine_usd_per_1000_requests,
                "elastic_usd_per_1000_requests": one.elastic_usd_per_1000_requests,
                "sent": dict(one.sent),
            }
            for one in replays
        ],
        "explained": None if explained is None else _explained_values(explained),
    }


def _explained_values(explained: Explained) -> dict[str, object]:
    told = explained.receipt
    return {
        "number": explained.number,
        "input_tokens": told.input_tokens,
        "expected_output_tokens": told.expected_output_tokens,
        "order": [explained.addresses[index] for index in explained.order],
        "endpoints": [_line_values(explained.addresses[line.endpoint], line) for line in told.lines],
    }


def _line_values(address: str, line: ReceiptLine) -> dict[str, object]:
    able = line.ruled_out is None
    figures = ("ttft_s", "tpot_s", "miss_fraction", "harm", "engine_usd", "elastic_usd")
    return {
        "address": address,
        "ruled_out": line.ruled_out,
        "cached_tokens": line.cached_tokens,
        **{name: getattr(line, name) if able else None for name in figures},
    }


def render_receipts(
    decisions: int,
    replays: Sequence[ReplayedPolicy],
    explained: Explained | None,
    cut_files: Sequence[str],
    width: int,
) -> RenderableType:
    """Draw the whole answer."""
    pieces: list[RenderableType] = [Text(f"{decisions:,} decisions asked again", style="bold"), Text()]
    if cut_files:
        pieces.insert(1, Text(f"left out: the last line of {', '.join(cut_files)}, which was cut", style="yellow"))
    pieces += [sheet(_POLICIES, [_policy(one) for one in replays], width), Text()]
    if explained is not None:
        pieces += [_heading(explained), sheet(_ENDPOINTS, _endpoints(explained), width), Text()]
    pieces.append(
        Text(
            "A request that is turned away has missed its promise. "
            "Each decision by itself, with the fleet as the policy that ran had left it; "
            "what another one would have made of the fleet, `penstock simulate --fleet` says. "
            "Engine time is what requests add to steps, at the endpoints' prices, and no bill: pools that are not "
            "`elastic` are paid anyway, and cost the same under every policy.",
            style="dim",
        )
    )
    return Group(*pieces)


def _policy(one: ReplayedPolicy) -> list[Figure]:
    most = max(one.sent.values(), default=0) / max(1, sum(one.sent.values()))
    return [
        one.policy.name,
        f"{one.agreed_fraction:.1%}",
        f"{one.expected_miss_fraction:.2%}",
        _dollars(one.engine_usd_per_1000_requests),
        _dollars(one.elastic_usd_per_1000_requests),
        f"{one.turned_away:,}",
        f"{most:.0%}",
    ]


def _dollars(usd: float) -> str:
    """Format dollars with three significant digits, at least three decimals and at most twelve."""
    decimals = 3 if usd <= 0 else min(12, max(3, 2 - floor(log10(usd))))
    return f"{usd:,.{decimals}f}"


def _heading(explained: Explained) -> Text:
    told = explained.receipt
    lengths = f"{told.input_tokens:,} tokens in, {told.expected_output_tokens:,} out expected"
    return Text(f"Decision {explained.number:,}: {lengths}", style="bold")


def _endpoints(explained: Explained) -> list[list[Figure]]:
    places = {index: f"{place}." for place, index in enumerate(explained.order, 1)}
    return [
        _endpoint(explained.addresses[line.endpoint], places.get(line.endpoint, ""), line)
        for line in explained.receipt.lines
    ]


def _endpoint(address: str, place: str, line: ReceiptLine) -> list[Figure]:
    if line.ruled_out is not None:
        return [f"{address} {line.ruled_out}", place, *("-" for _ in range(5)), f"{line.cached_tokens:,}"]
    return [
        address,
        place,
        format_s(line.ttft_s),
        format_s(line.tpot_s),
        f"{line.miss_fraction:.2%}",
        f"{line.harm:.2g}",
        f"{line.engine_usd:.2g}",
        f"{line.cached_tokens:,}",
    ]
