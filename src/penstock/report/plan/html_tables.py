"""Tables of the HTML report: escaped text, numbers right-aligned, column labels repeated on phones."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Final

from penstock.audit.saving_claim import ClaimCheck
from penstock.planning.candidates.candidate_search import Candidate
from penstock.planning.candidates.replica_capacity import Capacity
from penstock.planning.optimizer.cash_flow import Cash, day_of
from penstock.planning.optimizer.fleet_bill import FleetCost
from penstock.planning.optimizer.problem import Mix
from penstock.planning.plan_result import Answer, Bill, PlanResult
from penstock.planning.spec.plan_types import Plan
from penstock.planning.spec.resolve_plan import Assumption, Confirmer, LeftOut
from penstock.report.plan.cash_sentences import placed, placed_money
from penstock.report.plan.scenario_sentences import rule_usd
from penstock.report.plan.sentences import (
    amount,
    capital_first,
    cheaper_fleet_sentence,
    in_time_share,
    nodes_by_acquisition,
    owned_sentences,
    per_mtok,
    runs,
    served,
    spread,
    usd,
)

Cell = str | tuple[str, str]
"""Cell text, or a pair of text and CSS class."""


def table(heads: Sequence[Cell], rows: Sequence[Sequence[Cell]], *, classes: Sequence[str] = ()) -> str:
    """Write a table that becomes a list of labelled lines on a phone."""
    named = [_split(head) for head in heads]
    head = "".join(f'<th class="{kind}">{escape(text)}</th>' for text, kind in named)
    lines = []
    for number, row in enumerate(rows):
        cells = []
        for (name, kind), cell in zip(named, row, strict=True):
            text, own = _split(cell)
            classed = f"{kind} {own}".strip()
            cells.append(f'<td class="{classed}" data-name="{escape(name, quote=True)}">{escape(text)}</td>')
        extra = f' class="{classes[number]}"' if number < len(classes) and classes[number] else ""
        lines.append(f"<tr{extra}>{''.join(cells)}</tr>")
    body = f"<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody>"
    return f'<div class="scroll"><table class="stack">{body}</table></div>'


def _split(cell: Cell) -> tuple[str, str]:
    return cell if isinstance(cell, tuple) else (cell, "")


def listed(entries: Sequence[str]) -> str:
    """Write a list, each entry's whitespace collapsed to one line."""
    return "<ul>" + "".join(f"<li>{escape(' '.join(entry.split()))}</li>" for entry in entries) + "</ul>"


def fleet_table(mix: Mix, result: PlanResult) -> str:
    """Write the fleet's nodes, replicas and load by period."""
    several = len({pool.period for pool in mix.pools}) > 1
    rows = []
    for pool in sorted(mix.pools, key=lambda entry: (entry.period, entry.offer.key)):
        start, end = result.terms.periods[pool.period]
        when = f"{day_of(result.terms, start)} to {day_of(result.terms, end)}" if several else "throughout"
        rows.append(
            [
                placed(pool.offer.accelerator, pool.offer.site, result.plan),
                when,
                ", ".join(f"{count} {how}" for how, count in nodes_by_acquisition(pool) if count),
                f"{pool.spare_nodes}",
                f"{pool.nodes * pool.offer.devices:,}",
                runs(pool, result.candidates),
                served(pool, result.plan.workloads),
            ]
        )
    heads: list[Cell] = [
        "accelerator",
        "when",
        "nodes",
        ("of them spare", "n"),
        ("devices", "n"),
    ]
    return table([*heads, "runs", "serves"], rows)


def verification_section(answer: Answer) -> Iterator[str]:
    """Write the results of the simulation, or that the fleet was not simulated."""
    yield "<h3>Checked by simulation</h3>"
    if not answer.verified:
        yield '<p><span class="tag warn">not simulated</span> Whether the fleet meets its SLO is an estimate.</p>'
        return
    rows = []
    for verified in answer.verified:
        rows.append(
            [
                " + ".join(sorted(verified.planned.support)),
                "; ".join(
                    f"{c.workload} {in_time_share(c)} (required {c.required_fraction:.0%})" for c in verified.checks
                ),
                "met" if verified.met else "missed",
                usd(verified.added_usd) if verified.added_usd else "nothing",
                usd(verified.mix.cost_usd),
            ]
        )
    yield table(["fleet", "requests in time", "SLO", ("nodes added", "n"), ("total cost", "n")], rows)
    if cheaper := cheaper_fleet_sentence(answer):
        yield f'<p class="small">{escape(capital_first(cheaper))}.</p>'


def token_table(rows: Sequence[tuple[str, Bill]]) -> str:
    """Write the price per million tokens, by fleet and workload."""
    lines = []
    for name, bill in rows:
        for entry in bill.cost.workloads:
            price = entry.price
            lines.append(
                [
                    name,
                    entry.workload,
                    usd(entry.usd),
                    per_mtok(price.input_usd_per_mtok),
                    per_mtok(price.output_usd_per_mtok),
                    per_mtok(price.blended_usd_per_mtok),
                    f"{1 - bill.cost.busy_fraction:.0%}",
                ]
            )
    heads: list[Cell] = [
        "fleet",
        "workload",
        ("cost", "n"),
        ("per Mtok in", "n"),
        ("per Mtok out", "n"),
        ("blended", "n"),
    ]
    return "<h3>Cost per million tokens</h3>" + table([*heads, ("idle", "n")], lines)


def disaggregated_sentences(mix: Mix, candidates: Sequence[Candidate]) -> Iterator[str]:
    """Describe each disaggregated unit: its prefill and decode replicas, KV transfer bandwidth, and evidence."""
    used = {name for pool in mix.pools for name in pool.replicas}
    for entry in candidates:
        unit = entry.disaggregated
        if unit is None or entry.id not in used:
            continue
        ahead, after = unit.prefill.parallelism, unit.decode.parallelism
        tier = next(capacity.tier for capacity in entry.capacities if capacity.meets_slo)
        known = "measured in this combination" if tier == "calibrated" else "not measured in this combination"
        yield (
            f"each unit prefills on {unit.prefill_replicas} x {ahead} and decodes on {unit.decode_replicas} x {after} "
            f"({unit.devices} devices, {known}); each prefill replica sends KV cache at "
            f"{unit.sending_bytes_per_s / 1e9:g} GB/s"
        )


def capacity_table(result: PlanResult, answer: Answer) -> str:
    """List the deployments of the compared fleets with their capacity per length bucket, chosen fleet first."""
    chosen = _running([answer.winner])
    shown = chosen | _running([*answer.by_label.values(), *answer.runners_up])
    rows: list[list[Cell]] = []
    running = [entry for entry in result.candidates if entry.id in shown]
    for entry in sorted(running, key=lambda candidate: (candidate.id not in chosen, candidate.id)):
        workload = next(plan for plan in result.plan.workloads if plan.name == entry.workload)
        name = f"{entry.accelerator.id} {entry.way} {entry.weights}"
        served_lengths = [index for index, capacity in enumerate(entry.capacities) if capacity.meets_slo]
        grounds = entry.capacities[served_lengths[0]]
        rows.append(
            [
                f"● {name}" if entry.id in chosen else name,
                entry.workload,
                "\n".join(str(share.bucket) for share in workload.shares),
                "\n".join(_carried(capacity) for capacity in entry.capacities),
                grounds.tier,
                (grounds.grounds, "small"),
            ]
        )
    heads: list[Cell] = ["deployment", "workload", ("in/out", "n"), ("requests/s", "n"), "tier", "from"]
    note = '<p class="small">● in the chosen fleet. Rates: median (P10-P90); "none": misses the SLO at any rate.</p>'
    return note + table(heads, rows)


def _carried(capacity: Capacity) -> str:
    rate = capacity.requests_per_s
    return f"{rate.value:,.3g} ({rate.low:,.3g} to {rate.high:,.3g})" if capacity.meets_slo else "none"


def _running(bills: Sequence[Bill]) -> set[str]:
    return {name for bill in bills for pool in bill.mix.pools for name in pool.replicas}


def bill_table(cost: FleetCost) -> str:
    """List every line of the bill with its formula and inputs."""
    rows: list[list[Cell]] = []
    for line in cost.lines:
        if line.usd:
            inputs = ", ".join(f"{name} {value:,.6g}" for name, value in line.inputs.items())
            rows.append([str(line.item.value), line.label, usd(line.usd), (f"{line.formula}; {inputs}", "small")])
    rows.append(["all in", "", usd(cost.total_usd), ("", "small")])
    classes = [""] * (len(rows) - 1) + ["total"]
    return table(["item", "for", ("amount", "n"), "formula and inputs"], rows, classes=classes)


def cash_table(cash: Cash, plan: Plan) -> Iterator[str]:
    """Write orders, payments by quarter and year, and residual values."""
    said = placed_money(cash, plan)
    yield "".join(f"<p><b>{escape(head)}</b> {escape(sentence)}</p>" for head, sentence in said)
    heads: list[Cell] = ["from", *((name, "n") for name in ("capex", "rent", "running", "people", "sales", "to pay"))]
    rows: list[list[Cell]] = []
    for paid in (*cash.quarters, *cash.years):
        parts = (paid.capex_usd, paid.rent_usd, paid.running_usd, paid.people_usd, paid.sales_usd, paid.total_usd)
        rows.append([f"{paid.start} to {paid.end}", *(usd(part) for part in parts)])
    classes = [""] * len(cash.quarters) + ["total"] * len(cash.years)
    yield table(heads, rows, classes=classes)


def rules_table(answer: Answer) -> Iterator[str]:
    """Write the cost of each rule, and the use of owned hardware."""
    if answer.rules:
        heads: list[Cell] = ["rule", ("cost", "n"), ("total without it", "n"), "fleet without it"]
        rows = [[rule.rule, rule_usd(rule), usd(rule.without_usd), rule.without] for rule in answer.rules]
        yield "<h3>What each rule costs</h3>" + table(heads, rows)
    if answer.owned is not None:
        yield "<h3>Hardware you own</h3>" + listed(list(owned_sentences(answer.owned)))


_CONFIRMERS: Final[Mapping[Confirmer, str]] = {
    "procurement": "Procurement: quotes and contracts",
    "facilities": "Facilities: power and space",
    "engineering": "Engineering: demand, people and operation",
    "finance": "Finance: rates and accounting",
}


def assumptions_tables(entries: Sequence[Assumption]) -> Iterator[str]:
    """List inputs by the department that can confirm them: defaults before given values, then by uncertainty."""
    for whose, title in _CONFIRMERS.items():
        own = sorted(
            (e for e in entries if e.confirmed_by == whose), key=lambda e: (e.input.given, not e.input.uncertain)
        )
        if not own:
            continue
        open_count = sum(not entry.input.given for entry in own)
        yield f"<h3>{escape(title)}</h3>"
        yield f'<p class="small">{open_count} of {len(own)} are defaults to be confirmed.</p>'
        rows: list[list[Cell]] = []
        for entry in own:
            given = entry.input
            span = spread(given.low, given.high, given.unit) if given.uncertain else "fixed"
            rows.append([entry.name, amount(given.value, given.unit), span, (given.source, "small")])
        classes = ["" if entry.input.given else "default" for entry in own]
        yield table(["input", ("value", "n"), "range", "source"], rows, classes=classes)


def left_out_table(entries: Sequence[LeftOut]) -> str:
    """List the options left out, with the reason."""
    return table(["what", "why"], [[entry.what, (entry.why, "small")] for entry in entries])


def claim_section(check: ClaimCheck) -> str:
    """Write every reading of a saving claim next to the claimed value."""
    claim = check.claim
    rows = [
        [
            reading.name,
            reading.throughput,
            f"{reading.saving_fraction:.1%}",
            f"{reading.varied_fractions[0]:.1%} to {reading.varied_fractions[1]:.1%}",
            f"{reading.with_engineers_fraction:.1%}",
        ]
        for reading in check.readings
    ]
    heads: list[Cell] = ["reading of the inputs", "throughput", (f"saving, claimed {claim.claimed_fraction:.0%}", "n")]
    heads += [
        ("with the hardware share ±20%", "n"),
        (f"with engineers, claimed {claim.claimed_with_engineers_fraction:.0%}", "n"),
    ]
    verdicts = "".join(f"<li>{escape(sentence)}</li>" for sentence in check.verdicts)
    return f"<h3>{escape(claim.title)}</h3><ul>{verdicts}</ul>" + table(heads, rows)
