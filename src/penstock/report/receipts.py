"""Renders replayed gateway decisions, with one row per policy.

A single explained decision is rendered with one row per endpoint.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor, isfinite, log10
from typing import Annotated, Final, Literal

from rich.console import Group, RenderableType
from rich.text import Text
from typing_extensions import TypedDict

from penstock.report.drawing.comparison_table import Column, Figure, sheet
from penstock.report.drawing.json_document import FieldSource, at, build
from penstock.routing.baselines.all_policies import RoutingPolicy
from penstock.routing.records import SHED_FRACTION
from penstock.routing.replay import Receipt, ReceiptLine
from penstock.units import format_s

_POLICIES: Final = (
    Column("policy", figures=False),
    Column("same\nendpoint"),
    Column("expected SLO misses,\nwith refused"),
    Column("engine time, $ per\n1,000 requests"),
    Column("in elastic\npools, $"),
    Column("refused"),
    Column("max share of\none endpoint"),
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
    """Expected share of all requests that miss their SLO, computed from the state that was known at the decision.

    Refused requests count as misses.
    """
    sent_miss_fraction: float
    """Expected share of the sent requests that miss their SLO."""
    engine_usd_per_1000_requests: float
    """Price in dollars of the time that 1,000 requests add to engine steps.

    A bill would also include idle time.
    """
    elastic_usd_per_1000_requests: float
    """Dollars of `engine_usd_per_1000_requests` that are spent in elastic pools.

    Pools that are not elastic cost the same under every policy.
    """
    sent: Mapping[str, int]
    """Number of requests sent to each endpoint address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """One explained decision."""

    number: int
    addresses: tuple[str, ...]
    order: tuple[int, ...]
    """Indices of the endpoints in the order in which the gateway tries them."""
    receipt: Receipt


class ReplayedPolicyDocument(TypedDict):
    """The result of replaying decisions with a policy."""

    policy: Annotated[str, at("policy.name")]
    source: Annotated[str, at("policy.source")]
    agreed_fraction: float
    turned_away: int
    expected_miss_fraction: float
    sent_miss_fraction: float
    engine_usd_per_1000_requests: float
    elastic_usd_per_1000_requests: float
    sent: dict[str, int]


def _figure(name: str) -> FieldSource:
    return at(lambda line: getattr(line, name) if line.ruled_out is None else None)


class ReceiptLineDocument(TypedDict):
    """One endpoint of a decision; figures are null if the endpoint was ruled out."""

    address: str
    ruled_out: str | None
    cached_tokens: int
    ttft_s: Annotated[float | None, _figure("ttft_s")]
    tpot_s: Annotated[float | None, _figure("tpot_s")]
    miss_fraction: Annotated[float | None, _figure("miss_fraction")]
    harm: Annotated[float | None, _figure("harm")]
    price: Annotated[float | None, _figure("price")]
    engine_usd: Annotated[float | None, _figure("engine_usd")]
    elastic_usd: Annotated[float | None, _figure("elastic_usd")]


def _lines(explained: Explained) -> list[ReceiptLineDocument]:
    addresses = explained.addresses
    return [build(ReceiptLineDocument, line, address=addresses[line.endpoint]) for line in explained.receipt.lines]


class ExplainedDocument(TypedDict):
    """One explained decision."""

    number: int
    input_tokens: Annotated[int, at("receipt.input_tokens")]
    expected_output_tokens: Annotated[int, at("receipt.expected_output_tokens")]
    order: Annotated[list[str], at(lambda explained: [explained.addresses[index] for index in explained.order])]
    endpoints: Annotated[list[ReceiptLineDocument], at(_lines)]


class ReceiptsDocument(TypedDict):
    """Replayed decisions of a gateway."""

    schema: Literal["penstock.receipts/3"]
    decisions: int
    cut_files: list[str]
    policies: Annotated[list[ReplayedPolicyDocument], at("replays")]
    explained: ExplainedDocument | None


def render_receipts(
    decisions: int,
    replays: Sequence[ReplayedPolicy],
    explained: Explained | None,
    cut_files: Sequence[str],
    width: int,
) -> RenderableType:
    """Draw the whole answer."""
    pieces: list[RenderableType] = [Text(f"{decisions:,} decisions replayed", style="bold"), Text()]
    if cut_files:
        pieces.insert(1, Text(f"Left out: the truncated last line of {', '.join(cut_files)}", style="yellow"))
    pieces += [sheet(_POLICIES, [_policy(one) for one in replays], width), Text()]
    if explained is not None:
        pieces += [_heading(explained), sheet(_ENDPOINTS, _endpoints(explained), width), Text()]
    pieces.append(
        Text(
            "A refused request counts as an SLO miss. Each decision is replayed alone, with the fleet in the state "
            "that the recorded policy left; `penstock simulate --fleet` shows a fleet under another policy. "
            "Engine time is the time that requests add to engine steps, at the endpoints' prices. A pool with fixed "
            "capacity costs the same under every policy. Only `elastic` pools can turn saved engine time into a "
            "lower bill.",
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
    """Format dollars with three significant digits. The number has at least three and at most twelve decimals."""
    decimals = 3 if usd <= 0 else min(12, max(3, 2 - floor(log10(usd))))
    return f"{usd:,.{decimals}f}"


def _heading(explained: Explained) -> Text:
    receipt = explained.receipt
    lengths = f"{receipt.input_tokens:,} tokens in, {receipt.expected_output_tokens:,} out expected"
    text = f"Decision {explained.number:,}: {lengths}"
    if receipt.waited_s > 0:
        text += f", held for {format_s(receipt.waited_s)}"
    if receipt.line is None and receipt.able and isfinite(receipt.admission_misses):
        text += f". Not admitted: {_why_not_admitted(receipt)}."
    text += _why_not_least(explained)
    return Text(text, style="bold")


def _why_not_admitted(receipt: Receipt) -> str:
    in_time = [line for line in receipt.able if line.miss_fraction <= receipt.shed_fraction]
    if in_time:
        price = min(line.price for line in in_time)
        return f"serving it does as much harm as {price:.2g} misses of its own (limit {receipt.admission_misses:g})"
    least = min(line.miss_fraction for line in receipt.able)
    why = "; its tenant is beyond its fair share" if receipt.shed_fraction < SHED_FRACTION else ""
    return (
        f"it misses its SLO with at least {least:.0%} probability everywhere (limit {receipt.shed_fraction:.0%}{why})"
    )


def _why_not_least(explained: Explained) -> str:
    """Return a sentence if another endpoint than the one of least harm was chosen, or an empty text."""
    receipt = explained.receipt
    least = min(receipt.able, key=lambda line: line.harm, default=None)
    if receipt.line is None or least is None or not least.harm < receipt.line.harm:
        return ""
    reason = "all pickers give up the same endpoint in overload"
    if isfinite(receipt.admission_misses):
        reason = "it does not admit the request"
    return f". {explained.addresses[least.endpoint]} has less harm, but {reason}."


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
