"""Writes a request for proposals.

The request has questions to vendors and, for internal use only, the values that would change the choice.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final, Literal

import yaml

from penstock.catalog.accelerator import Accelerator
from penstock.economics.finance import MONTHS_PER_YEAR
from penstock.planning.acceptance_file import write_acceptance
from penstock.planning.acceptance_tests import Acceptance, AcceptanceCase, Margin, margins_of
from penstock.planning.optimizer.build_problem import peak_requests_per_s
from penstock.planning.optimizer.cash_flow import day_of
from penstock.planning.optimizer.node_costs import accelerator_plan
from penstock.planning.optimizer.problem import Mix
from penstock.planning.plan_result import Answer, PlanResult
from penstock.planning.spec.plan_types import AcceleratorPlan, Plan, WorkloadPlan
from penstock.planning.spec.sourced_inputs import Input
from penstock.planning.tender_lots import LotSizes, nodes_to_request, shared_fraction
from penstock.planning.uncertainty.sensitivity import Flip
from penstock.planning.verification.simulated_capacity import LoadJudge
from penstock.report.plan.flips import cheaper_then
from penstock.report.plan.plan_amounts import amount, rate, spread
from penstock.report.plan.sentences import label_name, product_name, product_names
from penstock.units import count_text

_WORKLOAD_VERSION: Final = 1
_INTERNAL: Final = "internal.md"


Topic = Literal["price", "term", "lead time", "delivery", "support", "power"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorQuestion:
    """One question that a vendor has to answer in writing."""

    topic: Topic
    question: str
    assumed: str
    """Value that the plan assumes until the vendor answers."""
    changes_choice: str = ""
    """Text that states at which value of the vendor's answer the choice of fleet changes.

    The text is empty if no such value is known.
    """
    used: bool = True
    """Whether the fleet acquires nodes in the way to which the question refers (bought, rented, on contract)."""


@dataclass(frozen=True, kw_only=True)
class VendorSheet:
    """All questions about one accelerator."""

    accelerator: Accelerator
    role: str
    nodes: LotSizes
    questions: tuple[VendorQuestion, ...]


def vendor_sheets(result: PlanResult, answer: Answer) -> tuple[VendorSheet, ...]:
    """List the questions per accelerator.

    The accelerators of the chosen fleet come first, then the accelerators of other vendors' fleets.
    """
    return tuple(_sheet(result, answer, ident, nodes) for ident, nodes in nodes_to_request(result, answer).items())


def _ways(mix: Mix, ident: str) -> set[str]:
    """Return the ways in which a fleet acquires its nodes with one accelerator, such as `buy` or `contract 0`."""
    pools = [pool for pool in mix.pools if pool.offer.accelerator == ident]
    return {
        *("buy" for pool in pools if pool.owned_nodes),
        *("rent" for pool in pools if pool.rented_nodes),
        *(f"contract {number}" for pool in pools for number, nodes in enumerate(pool.contract_nodes) if nodes),
    }


def _sheet(result: PlanResult, answer: Answer, ident: str, nodes: LotSizes) -> VendorSheet:
    fleets = (answer.winner.mix, *(bill.mix for bill in answer.by_label.values()))
    ways = next((_ways(mix, ident) for mix in fleets if ident in mix.support), set[str]())
    part, accelerator = accelerator_plan(result.plan, ident), result.resolved.accelerators[ident]
    flips, names = [flip for flip in answer.flips if flip.subject == ident], product_names(result)
    return VendorSheet(
        accelerator=accelerator,
        role="chosen" if ident in answer.winner.mix.support else "to compare",
        nodes=nodes,
        questions=(
            *_prices(part, flips, names, ways, _terms(result.plan, part, ways)),
            *_delivery(part, flips, names),
            _support(result, accelerator),
            _power(result, ident),
        ),
    )


def _terms(plan: Plan, part: AcceleratorPlan, ways: set[str]) -> Mapping[int, int | None]:
    """Map the contract terms in vendor questions, in months, to the indices of the plan's contracts with these terms.

    The terms are the plan's horizon, and the terms of contracts that end within the horizon or that the fleet signs.
    The index is None for the horizon if the plan has no contract of that length.
    """
    if "contract" not in plan.acquire or part.owned_only:
        return {}
    own = ceil(MONTHS_PER_YEAR * plan.horizon_years)
    known = {
        contract.months: number
        for number, contract in enumerate(part.contracts)
        if contract.months <= own or f"contract {number}" in ways
    }
    return dict(sorted({own: None, **known}.items()))


def _prices(
    part: AcceleratorPlan,
    flips: Sequence[Flip],
    names: Mapping[str, str],
    ways: set[str],
    terms: Mapping[int, int | None],
) -> Iterator[VendorQuestion]:
    if part.buy is not None and not part.owned_only:
        what = "a whole server" if part.with_host else "a device, and of the server around it"
        yield VendorQuestion(
            topic="price",
            question=f"What is the price of {what}, until when is it valid, and what is the volume discount?",
            assumed=_price_text(part.buy),
            changes_choice=_changes_choice(flips, names, "price", part.buy),
            used="buy" in ways,
        )
    if part.rent is not None:
        yield VendorQuestion(
            topic="price",
            question="What is the price of a device-hour without a term, with host, power, network and storage?",
            assumed=_price_text(part.rent),
            changes_choice=_changes_choice(flips, names, "rent", part.rent),
            used="rent" in ways,
        )
    for months, number in terms.items():
        rent = None if number is None else part.contracts[number].rent
        term = f"for {count_text(months, 'month')}"
        yield VendorQuestion(
            topic="term",
            question=f"What is the price of a device-hour {term}, when is it paid, and what does leaving early cost?",
            assumed="no price for this term" if rent is None else _price_text(rent),
            changes_choice="" if rent is None else _changes_choice(flips, names, "rent", rent, months),
            used=f"contract {number}" in ways,
        )


def _price_text(price: Input) -> str:
    return amount(price.value, price.unit) + (
        f"; range: {spread(price.low, price.high, price.unit)}" if price.uncertain else ""
    )


def _changes_choice(
    flips: Sequence[Flip], names: Mapping[str, str], kind: str, price: Input, months: int | None = None
) -> str:
    """State the price at which another fleet becomes cheaper. If a term is given, state the price for this term."""
    found = [flip for flip in flips if (flip.kind, flip.current, flip.months) == (kind, price.value, months)]
    return "; ".join(f"{flip.side} {amount(flip.at, flip.unit)} {cheaper_then(flip, names)}" for flip in found)


def _delivery(part: AcceleratorPlan, flips: Sequence[Flip], names: Mapping[str, str]) -> Iterator[VendorQuestion]:
    late = next((flip for flip in flips if flip.kind == "delivery" and flip.side == "above"), None)
    late_by = (
        ""
        if late is None
        else f"later than {count_text(round(late.at), 'month')} from the start {cheaper_then(late, names)}"
    )
    weeks = "not stated in the plan" if part.lead_weeks is None else count_text(part.lead_weeks, "week")
    yield VendorQuestion(
        topic="lead time",
        question="How many weeks pass from the order until a node serves?",
        assumed=weeks,
        changes_choice=late_by,
    )
    day = "at the start of the plan" if part.available is None else f"from {part.available}"
    asked = "How many nodes are delivered on which dates, and what is the penalty per day of delay?"
    yield VendorQuestion(topic="delivery", question=asked, assumed=day)


def _support(result: PlanResult, accelerator: Accelerator) -> VendorQuestion:
    stack = result.resolved.stack_of(accelerator.vendor)
    support, failures = stack.support_usd_per_device_year, result.plan.node.annual_failures
    asked = (
        "What do support, licences and warranty cost for the whole term, and how fast do you replace a failed device?"
    )
    count_text = f"support {amount(support.value, support.unit)}; {amount(failures.value, failures.unit)} fail"
    return VendorQuestion(topic="support", question=asked, assumed=count_text)


def _power(result: PlanResult, ident: str) -> VendorQuestion:
    power = result.resolved.power[ident]
    asked = "What power does one node draw at its maximum and in the acceptance benchmark, and how is the node cooled?"
    count_text = f"{power.node_watts / 1000:.1f} kW at most, {power.serving_watts / 1000:.1f} kW while serving"
    return VendorQuestion(topic="power", question=asked, assumed=count_text)


def rfp_pack(result: PlanResult, answer: Answer, sustained: LoadJudge | None = None) -> Mapping[str, str]:
    """Return the text of each file of the pack, keyed by file name.

    The pack has a letter and a benchmark per vendor, the workload, and internal notes.
    """
    sheets = vendor_sheets(result, answer)
    asked = {sheet.accelerator.id for sheet in sheets}
    margins = [margin for margin in margins_of(result, answer, sustained) if margin.case.accelerator in asked]
    files = {"workload.yaml": _workload_yaml(result)}
    for vendor in dict.fromkeys(sheet.accelerator.vendor for sheet in sheets):
        own = [sheet for sheet in sheets if sheet.accelerator.vendor == vendor]
        cases = tuple(margin.case for margin in margins if margin.case.vendor == vendor)
        share = shared_fraction(result, answer)
        files[f"request-{vendor}.md"] = "\n".join(_request(result, vendor, own, cases, share)) + "\n"
        acceptance = Acceptance(plan=" ".join(result.plan.name.split()), cases=cases)
        files[f"acceptance-{vendor}.yaml"] = write_acceptance(acceptance)
    files[_INTERNAL] = "\n".join(_internal(sheets, margins)) + "\n"
    return files


def _request(
    result: PlanResult,
    vendor: str,
    sheets: Sequence[VendorSheet],
    cases: Sequence[AcceptanceCase],
    share: float | None,
) -> Iterator[str]:
    plan = result.plan
    yield f"# Request for a proposal: {_line(plan.name)}\n"
    service = f"Service begins on {plan.start} and runs for {count_text(plan.horizon_years, 'year')}."
    yield f"To {label_name(vendor)} or its partners. {service}\n"
    yield "## Workload\n"
    for workload in plan.workloads:
        yield from _workload_lines(result, workload)
    yield "\n## Offer\n"
    yield from _lots(share)
    yield "\n## Questions\n"
    yield "Please answer each question in writing, with the date until which the answer is valid.\n"
    for sheet in sheets:
        yield f"### {product_name(sheet.accelerator)}: {_span(sheet, share)}\n"
        yield "| # | Topic | Question | Your answer |\n|---|---|---|---|"
        for number, entry in enumerate(sheet.questions, start=1):
            yield f"| {number} | {entry.topic} | {entry.question} | |"
        yield ""
    yield "## Acceptance\n"
    yield (
        f"Nodes are accepted when they pass `acceptance-{vendor}.yaml`: requests arrive at random (Poisson) at the "
        "rates below; the share within the limits is counted over all requests, including failed ones.\n"
    )
    yield "| Case | Nodes | Rate | Requests | Within limits, at least |\n|---|---|---|---|---|"
    for case in cases:
        for load in case.loads:
            yield (
                f"| {case.name}, {load.name} load | {case.nodes} with {_replicas(case)} | "
                f"{load.requests_per_s:g}/s | {load.requests:,} | {load.at_least_fraction:.1%} |"
            )
    yield (
        "\nAnother engine, release, split or weight format may be proposed if its answers equal those of the named "
        "checkpoint. Name it, and run the same loads."
    )


def _replicas(case: AcceptanceCase) -> str:
    if case.prefill is None:
        return f"{case.replicas} replicas"
    return f"{case.prefill.replicas} prefill replicas and {case.replicas} decode replicas"


def _lots(share: float | None) -> Iterator[str]:
    """Write the lots that vendors are asked to offer. The text is the same for all vendors."""
    every = (
        "Every vendor gets the same request. Node counts are our estimate: offer as many nodes as the limits require."
    )
    if share is None:
        yield f"Offer nodes that serve the whole workload at its peak rates. {every}"
        return
    yield f"{every}\n"
    yield "- Lot 1: nodes that serve the whole workload at its peak rates."
    yield f"- Lot 2: nodes that serve {share:.0%} of every rate above, within the same limits."


def _span(sheet: VendorSheet, share: float | None) -> str:
    if share is None:
        return _about(sheet.nodes.whole_nodes, sheet)
    return f"lot 1 {_about(sheet.nodes.whole_nodes, sheet)}, lot 2 {_about(sheet.nodes.shared_nodes, sheet)}"


def _about(nodes: int | None, sheet: VendorSheet) -> str:
    each = count_text(sheet.nodes.devices or sheet.accelerator.node.devices, "device")
    unit = "node" if sheet.nodes.devices is None else "instance"
    return f"as many {unit}s of {each} as needed" if nodes is None else f"about {count_text(nodes, unit)} of {each}"


def _workload_lines(result: PlanResult, workload: WorkloadPlan) -> Iterator[str]:
    yield f"- **{_line(workload.name)}**: {workload.model}, limits {workload.slo}."
    for period in result.terms.periods:
        peak = rate(peak_requests_per_s(workload, period))
        yield f"  - from {day_of(result.terms, period[0])}: up to {peak} requests per second"
    for share in workload.shares:
        lengths = f"{share.bucket.input_tokens:,} tokens in, {share.bucket.output_tokens:,} out"
        yield f"  - {share.fraction:.0%} of requests: about {lengths}"


def _workload_yaml(result: PlanResult) -> str:
    document = {
        "version": _WORKLOAD_VERSION,
        "plan": _line(result.plan.name),
        "workloads": [
            {
                "name": _line(workload.name),
                "model": workload.model,
                "weights": list(workload.weights),
                "kv": workload.kv,
                "slo": str(workload.slo),
                "lengths": [
                    {
                        "input_tokens": share.bucket.input_tokens,
                        "output_tokens": share.bucket.output_tokens,
                        "share_fraction": float(f"{share.fraction:.9g}"),
                    }
                    for share in workload.shares
                ],
                "peaks": [
                    {
                        "from": day_of(result.terms, period[0]).isoformat(),
                        "requests_per_s": float(f"{peak_requests_per_s(workload, period):.6g}"),
                    }
                    for period in result.terms.periods
                ],
            }
            for workload in result.plan.workloads
        ],
    }
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110)
    return text


def _internal(sheets: Sequence[VendorSheet], margins: Sequence[Margin]) -> Iterator[str]:
    yield "# Internal: do not send\n"
    yield "This file lists the plan's assumptions and the values at which the choice changes."
    yield "Do not show it to vendors: it reveals your limits.\n"
    for sheet in sheets:
        yield f"## {product_name(sheet.accelerator)} ({sheet.role})\n"
        yield "| Topic | The plan assumes | The choice changes |\n|---|---|---|"
        for entry in sheet.questions:
            yield f"| {entry.topic} | {entry.assumed} | {entry.changes_choice or 'no such value found'} |"
        yield ""
    yield "## Margins of the acceptance benchmark\n"
    yield (
        "The second column is the peak rate that the plan sends to these nodes. The test asks for that rate, or for "
        "the estimated capacity of these nodes alone, if that capacity is lower. Nodes alone carry slightly less "
        "than in the fleet, where all replicas of a pool share a burst. If these nodes carry less than the "
        "rate in the last column, another fleet is cheaper.\n"
    )
    yield "| Case | Rate in the fleet | Rate in the test | Estimate alone (P10-P90) | Margin | Choice changes below |"
    yield "|---|---|---|---|---|---|"
    for margin in margins:
        spread = f"{margin.low_requests_per_s:.3g} to {margin.high_requests_per_s:.3g}"
        flip = margin.turns_below_requests_per_s
        yield (
            f"| {margin.case.name} | {margin.sent_requests_per_s:.3g}/s | "
            f"{margin.case.loads[-1].requests_per_s:.3g}/s | "
            f"{margin.estimate_requests_per_s:.3g}/s ({spread}) | {margin.margin_fraction:+.0%} | "
            f"{'-' if flip is None else f'{flip:.3g}/s'} |"
        )


def _line(text: str) -> str:
    return " ".join(text.split())
