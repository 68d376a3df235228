"""What is handed to vendors? To each what is asked, the workload and the benchmark; and notes that stay here."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import yaml

from penstock.benchmark.acceptance_file import write_acceptance
from penstock.planning.acceptance import Acceptance, AcceptanceCase, Margin, margins_of
from penstock.planning.asked.plan import WorkloadPlan
from penstock.planning.make import Answer, PlanResult
from penstock.planning.optimum.build import peak_requests_per_s
from penstock.planning.optimum.cash import day_of
from penstock.report.plan.asking import VendorSheet, part_name, vendor_sheets
from penstock.report.plan.words import label_name, rate

_WORKLOAD_VERSION: Final = 1
_INTERNAL: Final = "internal.md"


def rfp_pack(result: PlanResult, answer: Answer) -> Mapping[str, str]:
    """Write every file of the pack by name: a letter and a benchmark for each vendor, the workload, internal notes."""
    sheets = vendor_sheets(result, answer)
    asked = {sheet.accelerator.id for sheet in sheets}
    margins = [margin for margin in margins_of(result, answer) if margin.case.accelerator in asked]
    files = {"workload.yaml": _workload_yaml(result)}
    for vendor in dict.fromkeys(sheet.accelerator.vendor for sheet in sheets):
        own = [sheet for sheet in sheets if sheet.accelerator.vendor == vendor]
        cases = tuple(margin.case for margin in margins if margin.case.vendor == vendor)
        files[f"request-{vendor}.md"] = "\n".join(_request(result, vendor, own, cases)) + "\n"
        acceptance = Acceptance(plan=" ".join(result.plan.name.split()), cases=cases)
        files[f"acceptance-{vendor}.yaml"] = write_acceptance(acceptance)
    files[_INTERNAL] = "\n".join(_internal(sheets, margins)) + "\n"
    return files


def _request(
    result: PlanResult, vendor: str, sheets: Sequence[VendorSheet], cases: Sequence[AcceptanceCase]
) -> Iterator[str]:
    plan = result.plan
    yield f"# Request for a proposal: {_line(plan.name)}\n"
    service = f"Service begins on {plan.start} and runs for {plan.horizon_years:g} years."
    yield f"To {label_name(vendor)} or its partners. {service}\n"
    yield "## What it must serve\n"
    for workload in plan.workloads:
        yield from _served(result, workload)
    yield "\n## What we ask\n"
    yield "Please answer each line in writing, with the date until which it holds.\n"
    for sheet in sheets:
        yield f"### {part_name(sheet.accelerator)}: {_span(sheet)}\n"
        yield "| # | About | Question | Your answer |\n|---|---|---|---|"
        for number, entry in enumerate(sheet.questions, start=1):
            yield f"| {number} | {entry.topic} | {entry.question} | |"
        yield ""
    yield "## Acceptance\n"
    yield (
        f"Nodes are accepted when they pass `acceptance-{vendor}.yaml`: requests arrive at random (Poisson) at the "
        "rates below, and the share within the limits is counted over all of them, failed ones included.\n"
    )
    yield "| Case | Nodes | Rate | Requests | Within limits, at least |\n|---|---|---|---|---|"
    for case in cases:
        for load in case.loads:
            yield (
                f"| {case.name}, {load.name} load | {case.nodes} with {case.replicas} replicas | "
                f"{load.requests_per_s:g}/s | {load.requests:,} | {load.at_least_fraction:.1%} |"
            )
    yield (
        "\nAnother engine, release, split or weight format may be proposed where answers stay equal to those of the "
        "checkpoint named; say which, and run the same loads."
    )


def _span(sheet: VendorSheet) -> str:
    node = "node" if sheet.nodes == 1 else "nodes"
    return f"about {sheet.nodes} {node} of {sheet.accelerator.node.devices}"


def _served(result: PlanResult, workload: WorkloadPlan) -> Iterator[str]:
    yield f"- **{_line(workload.name)}**: {workload.model}, limits {workload.slo}."
    for period in result.terms.periods:
        peak = rate(peak_requests_per_s(workload, period))
        yield f"  - from {day_of(result.terms, period[0])}: up to {peak} requests a second"
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
    yield "What the plan counts on, and where an answer changes the choice: a vendor who reads it knows your limits.\n"
    for sheet in sheets:
        yield f"## {part_name(sheet.accelerator)} ({sheet.role})\n"
        yield "| About | The plan counts on | The choice turns |\n|---|---|---|"
        for entry in sheet.questions:
            yield f"| {entry.topic} | {entry.counted_on} | {entry.turns or 'no such value found'} |"
        yield ""
    yield "## Margins of the acceptance benchmark\n"
    yield (
        "The rate to show is what the plan sends to these nodes at the peak, less would make the fleet too small. "
        "A node that carries less than the last column is one with which another fleet is cheaper.\n"
    )
    yield "| Case | To show | Estimate (P10 to P90) | Margin | Turns below |\n|---|---|---|---|---|"
    for margin in margins:
        spread = f"{margin.low_requests_per_s:.3g} to {margin.high_requests_per_s:.3g}"
        turns = margin.turns_below_requests_per_s
        yield (
            f"| {margin.case.name} | {margin.case.loads[-1].requests_per_s:.3g}/s | "
            f"{margin.estimate_requests_per_s:.3g}/s ({spread}) | {margin.margin_fraction:+.0%} | "
            f"{'-' if turns is None else f'{turns:.3g}/s'} |"
        )


def _line(text: str) -> str:
    return " ".join(text.split())
