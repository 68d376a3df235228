"""What should vendors be asked? About the parts that matter, what the plan counts on and where it turns."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from penstock.catalog.accelerator import Accelerator
from penstock.planning.asked.inputs import Input
from penstock.planning.asked.plan import PartPlan
from penstock.planning.doubt.sensitivity import Flip
from penstock.planning.make import Answer, Bill, PlanResult
from penstock.planning.optimum.billing import part_of
from penstock.report.plan.words import amount, plain_label, spread

Topic = Literal["price", "term", "lead time", "delivery", "support", "power"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorQuestion:
    """One thing to have in writing."""

    topic: Topic
    question: str
    counted_on: str
    """What the plan assumes until it is answered."""
    turns: str = ""
    """Where the answer changes the choice; empty where none is known."""
    used: bool = True
    """Whether the fleet has nodes in the way that is asked about."""


@dataclass(frozen=True, kw_only=True)
class VendorSheet:
    """Everything to ask about one part."""

    accelerator: Accelerator
    role: str
    nodes: int
    """How many are asked about."""
    questions: tuple[VendorQuestion, ...]


def part_name(accelerator: Accelerator) -> str:
    """Name a part as its vendor does, without what tells variants apart."""
    words = accelerator.name.partition(" (")[0].split()
    return " ".join(word for word in words if not (word.endswith("GB") and word[0].isdigit()))


def part_names(result: PlanResult) -> dict[str, str]:
    """Name every part of the plan."""
    return {ident: part_name(accelerator) for ident, accelerator in result.resolved.accelerators.items()}


def vendor_sheets(result: PlanResult, answer: Answer) -> tuple[VendorSheet, ...]:
    """List whom to ask: the parts of the chosen fleet, then those of the best fleet of every other kind."""
    sheets: dict[str, VendorSheet] = {}
    rivals = [bill for label, bill in answer.by_label.items() if label != answer.verdict.winner]
    for role, bills in (("chosen", [answer.winner]), ("to compare", rivals)):
        for bill in bills:
            wanted = {ident: _nodes(bill, ident) for ident in sorted(bill.mix.support - sheets.keys())}
            sheets |= {ident: _sheet(result, answer, bill, ident, role) for ident, nodes in wanted.items() if nodes}
    return tuple(sheets.values())


def _nodes(bill: Bill, ident: str) -> int:
    """The most nodes that are had at once beside those owned already: nobody is asked about what is only kept."""
    had: dict[int, int] = {}
    for pool in bill.mix.pools:
        if pool.offer.accelerator == ident:
            had[pool.period] = had.get(pool.period, 0) + pool.nodes - pool.kept_nodes
    return max(had.values())


def _ways(bill: Bill, ident: str) -> set[str]:
    """How the fleet has its nodes of a part."""
    pools = [pool for pool in bill.mix.pools if pool.offer.accelerator == ident]
    return {
        *("buy" for pool in pools if pool.owned_nodes),
        *("rent" for pool in pools if pool.rented_nodes),
        *(f"contract {number}" for pool in pools for number, nodes in enumerate(pool.contract_nodes) if nodes),
    }


def _sheet(result: PlanResult, answer: Answer, bill: Bill, ident: str, role: str) -> VendorSheet:
    part, accelerator = part_of(result.plan, ident), result.resolved.accelerators[ident]
    flips, names = [flip for flip in answer.flips if flip.subject == ident], part_names(result)
    return VendorSheet(
        accelerator=accelerator,
        role=role,
        nodes=_nodes(bill, ident),
        questions=(
            *_prices(part, flips, names, _ways(bill, ident)),
            *_delivery(part, flips, names),
            _support(result, accelerator),
            _power(result, ident),
        ),
    )


def _prices(
    part: PartPlan, flips: Sequence[Flip], names: Mapping[str, str], ways: set[str]
) -> Iterator[VendorQuestion]:
    if part.buy is not None and not part.owned_only:
        what = "a whole server" if part.with_host else "a device, and of the server around it"
        yield VendorQuestion(
            topic="price",
            question=f"What is the price of {what}, until when does it hold, and what does volume take off?",
            counted_on=_counted(part.buy),
            turns=_turns(flips, names, "price", part.buy),
            used="buy" in ways,
        )
    if part.rent is not None:
        yield VendorQuestion(
            topic="price",
            question="What is the price of a device-hour without a term, with host, power, network and storage?",
            counted_on=_counted(part.rent),
            turns=_turns(flips, names, "rent", part.rent),
            used="rent" in ways,
        )
    for number, contract in enumerate(part.contracts):
        term = f"for {contract.months} months"
        yield VendorQuestion(
            topic="term",
            question=f"What is the price of a device-hour {term}, paid when, and left early at what cost?",
            counted_on=_counted(contract.rent),
            turns=_turns(flips, names, "rent", contract.rent, term),
            used=f"contract {number}" in ways,
        )


def _counted(price: Input) -> str:
    return amount(price.value, price.unit) + (
        f"; seen: {spread(price.low, price.high, price.unit)}" if price.uncertain else ""
    )


def _turns(flips: Sequence[Flip], names: Mapping[str, str], kind: str, price: Input, named: str = "") -> str:
    """Say at which price another fleet is cheaper; flips of a term carry it in their name."""
    found = [
        flip
        for flip in flips
        if flip.kind == kind
        and flip.current == price.value
        and (named in flip.name if named else "months" not in flip.name)
    ]
    return "; ".join(
        f"{flip.side} {amount(flip.at, flip.unit)} {plain_label(flip.instead, names)} is cheaper" for flip in found
    )


def _delivery(part: PartPlan, flips: Sequence[Flip], names: Mapping[str, str]) -> Iterator[VendorQuestion]:
    late = next((flip for flip in flips if flip.kind == "delivery" and flip.side == "above"), None)
    turns = (
        ""
        if late is None
        else f"later than {late.at:.0f} months from the start {plain_label(late.instead, names)} is cheaper"
    )
    weeks = "not said in the plan" if part.lead_weeks is None else f"{part.lead_weeks:g} weeks"
    yield VendorQuestion(
        topic="lead time", question="How many weeks from order to a node that serves?", counted_on=weeks, turns=turns
    )
    day = "at the start of the plan" if part.available is None else f"from {part.available}"
    asked = "On which dates are how many nodes delivered, and what is paid for a day of delay?"
    yield VendorQuestion(topic="delivery", question=asked, counted_on=day)


def _support(result: PlanResult, accelerator: Accelerator) -> VendorQuestion:
    stack = result.resolved.stack_of(accelerator.vendor)
    support, failures = stack.support_usd_per_device_year, result.plan.node.annual_failures
    asked = "What do support, licences and warranty cost for the whole term, and how fast is a failed device replaced?"
    counted = f"support {amount(support.value, support.unit)}; {amount(failures.value, failures.unit)} fail"
    return VendorQuestion(topic="support", question=asked, counted_on=counted)


def _power(result: PlanResult, ident: str) -> VendorQuestion:
    power = result.resolved.power[ident]
    asked = "What does one node draw at its maximum and under the acceptance benchmark, and how is it cooled?"
    counted = f"{power.node_watts / 1000:.1f} kW at most, {power.serving_watts / 1000:.1f} kW while it serves"
    return VendorQuestion(topic="power", question=asked, counted_on=counted)
