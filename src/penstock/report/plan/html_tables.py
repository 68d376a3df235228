"""Builds the tables of the HTML report. Numbers are right-aligned."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.planning.candidates.replica_capacity import Capacity
from penstock.planning.optimizer.cash_flow import Cash, day_of
from penstock.planning.optimizer.fleet_bill import FleetCost
from penstock.planning.optimizer.problem import Mix
from penstock.planning.plan_result import Answer, Bill, PlanResult
from penstock.planning.saving_claim import ClaimCheck
from penstock.planning.spec.resolve_plan import Assumption, Confirmer, LeftOut
from penstock.report.plan.cash_sentences import with_site
from penstock.report.plan.plan_amounts import amount, per_mtok, spread, usd
from penstock.report.plan.scenario_sentences import rule_usd
from penstock.report.plan.sentences import (
    check_text,
    nodes_by_acquisition,
    runs,
    served_requests,
    unit_name,
    unit_word,
)

Cell = str | tuple[str, str]
"""Text of a cell, or a pair of text and CSS class."""


@dataclass(frozen=True, slots=True)
class StyledText:
    """The text of a cell and its CSS class."""

    text: str
    style: str


class HtmlTable:
    """Table of the HTML report: column headings, rows, and CSS classes of rows."""

    def __init__(self, heads: Sequence[Cell], rows: Sequence[Sequence[Cell]], *, classes: Sequence[str] = ()) -> None:
        self.heads = [_style(head) for head in heads]
        self.rows = [[_style(cell) for cell in row] for row in rows]
        self._classes = classes

    def row_style(self, number: int) -> str:
        """Return the CSS class of a row. The text is empty if the row has no CSS class."""
        return self._classes[number] if number < len(self._classes) else ""


def _style(cell: Cell) -> StyledText:
    return StyledText(*cell) if isinstance(cell, tuple) else StyledText(cell, "")


def fleet_table(mix: Mix, result: PlanResult) -> HtmlTable:
    """List the nodes, the replicas and the served load of a fleet in each period."""
    several = len({pool.period for pool in mix.pools}) > 1
    rows = []
    for pool in sorted(mix.pools, key=lambda entry: (entry.period, entry.offer.key)):
        start, end = result.terms.periods[pool.period]
        when = f"{day_of(result.terms, start)} to {day_of(result.terms, end)}" if several else "throughout"
        rows.append(
            [
                with_site(unit_name(pool.offer), pool.offer.site, result.plan),
                when,
                ", ".join(f"{count} {how}" for how, count in nodes_by_acquisition(pool) if count),
                f"{pool.spare_nodes}",
                f"{pool.nodes * pool.offer.devices:,}",
                runs(pool, result.candidates),
                served_requests(pool, result.plan.workloads),
            ]
        )
    heads: list[Cell] = [
        "accelerator",
        "when",
        f"{unit_word(mix)}s",
        ("spares", "n"),
        ("devices", "n"),
    ]
    return HtmlTable([*heads, "runs", "serves"], rows)


def verification_table(answer: Answer) -> HtmlTable | None:
    """List the simulation results of the verified fleets. Return None if no fleet was simulated."""
    if not answer.verified:
        return None
    rows = []
    for verified in answer.verified:
        rows.append(
            [
                " + ".join(sorted(verified.planned.support)),
                "; ".join(f"{check_text(check)} (required {check.required_fraction:.0%})" for check in verified.checks),
                "met" if verified.met else "missed",
                usd(verified.added_usd) if verified.added_usd else "nothing",
                usd(verified.mix.cost_usd),
            ]
        )
    return HtmlTable(["fleet", "requests in time", "SLO", ("nodes added", "n"), ("total cost", "n")], rows)


def token_table(rows: Sequence[tuple[str, Bill]]) -> HtmlTable:
    """List the price per million tokens for each fleet and workload."""
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
    return HtmlTable([*heads, ("idle", "n")], lines)


def capacity_table(result: PlanResult, answer: Answer) -> HtmlTable:
    """List the deployments of the compared fleets with their capacity per length bucket.

    The deployments of the chosen fleet come first.
    """
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
                "\n".join(_rate_text(capacity) for capacity in entry.capacities),
                grounds.tier,
                (grounds.grounds, "small"),
            ]
        )
    heads: list[Cell] = ["deployment", "workload", ("in/out", "n"), ("requests/s", "n"), "tier", "from"]
    return HtmlTable(heads, rows)


def _rate_text(capacity: Capacity) -> str:
    rate = capacity.requests_per_s
    return f"{rate.value:,.3g} ({rate.low:,.3g} to {rate.high:,.3g})" if capacity.meets_slo else "none"


def _running(bills: Sequence[Bill]) -> set[str]:
    return {name for bill in bills for pool in bill.mix.pools for name in pool.replicas}


def bill_table(cost: FleetCost) -> HtmlTable:
    """List every line of the bill with its formula and inputs."""
    rows: list[list[Cell]] = []
    for line in cost.lines:
        if line.usd:
            inputs = ", ".join(f"{name} {value:,.6g}" for name, value in line.inputs.items())
            rows.append([str(line.item.value), line.label, usd(line.usd), (f"{line.formula}; {inputs}", "small")])
    rows.append(["all in", "", usd(cost.total_usd), ("", "small")])
    classes = [""] * (len(rows) - 1) + ["total"]
    return HtmlTable(["item", "for", ("amount", "n"), "formula and inputs"], rows, classes=classes)


def payments_table(cash: Cash) -> HtmlTable:
    """List payments by quarter and year."""
    heads: list[Cell] = ["from", *((name, "n") for name in ("capex", "rent", "running", "people", "sales", "to pay"))]
    rows: list[list[Cell]] = []
    for paid in (*cash.quarters, *cash.years):
        parts = (paid.capex_usd, paid.rent_usd, paid.running_usd, paid.people_usd, paid.sales_usd, paid.total_usd)
        rows.append([f"{paid.start} to {paid.end}", *(usd(part) for part in parts)])
    classes = [""] * len(cash.quarters) + ["total"] * len(cash.years)
    return HtmlTable(heads, rows, classes=classes)


def rules_table(answer: Answer) -> HtmlTable | None:
    """List the cost of each rule. Return None if the plan has no rules."""
    heads: list[Cell] = ["rule", ("cost", "n"), ("total without it", "n"), "fleet without it"]
    rows = [[rule.rule, rule_usd(rule), usd(rule.without_usd), rule.without] for rule in answer.rules]
    return HtmlTable(heads, rows) if rows else None


_CONFIRMERS: Final[Mapping[Confirmer, str]] = {
    "procurement": "Procurement: quotes and contracts",
    "facilities": "Facilities: power and space",
    "engineering": "Engineering: demand, people and operation",
    "finance": "Finance: rates and accounting",
}


def assumptions_tables(entries: Sequence[Assumption]) -> Iterator[tuple[str, int, HtmlTable]]:
    """List the inputs in one table per department that can confirm them.

    In each table, defaults come before values that the user gave. Within each of these two groups, uncertain inputs
    come before fixed ones.
    """
    for whose, title in _CONFIRMERS.items():
        own = sorted(
            (e for e in entries if e.confirmed_by == whose), key=lambda e: (e.input.given, not e.input.uncertain)
        )
        if not own:
            continue
        open_count = sum(not entry.input.given for entry in own)
        rows: list[list[Cell]] = []
        for entry in own:
            given = entry.input
            span = spread(given.low, given.high, given.unit) if given.uncertain else "fixed"
            rows.append([entry.name, amount(given.value, given.unit), span, (given.source, "small")])
        classes = ["" if entry.input.given else "default" for entry in own]
        yield title, open_count, HtmlTable(["input", ("value", "n"), "range", "source"], rows, classes=classes)


def left_out_table(entries: Sequence[LeftOut]) -> HtmlTable:
    """List the options that were left out, with the reason."""
    return HtmlTable(["what", "why"], [[entry.what, (entry.why, "small")] for entry in entries])


def claim_table(check: ClaimCheck) -> HtmlTable:
    """List every interpretation of a saving claim with its recomputed savings.

    The table's headings state the claimed savings.
    """
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
    return HtmlTable(heads, rows)
