"""Renders a plan as one self-contained HTML page for budget owners and operators, for screen, phone and print."""

from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files
from string import Template

from penstock import __version__
from penstock.planning.plan_result import NoFleet, PlanResult
from penstock.planning.pool_launches import PoolLaunch
from penstock.report.plan.buyer_summary import plain_demand, summary
from penstock.report.plan.html_tables import assumptions_tables, claim_section, left_out_table, listed
from penstock.report.plan.operation import operation
from penstock.report.plan.page_knobs import knobs_section, script_hash
from penstock.report.plan.plan_charts import unique_ids
from penstock.report.plan.sentences import NO_FLEET

_TEMPLATES = files("penstock.report") / "templates"

METHOD = (
    """Every accelerator of the plan is tried with every split that fits a node and every requested weight format;
    deployments that do not fit in memory are dropped. Capacity is the highest rate that is sustained within the SLO;
    the first caveat says how it was found.""",
    """An integer program (HiGHS) chooses whole nodes, whole replicas, and the share of each length bucket per pool.
    It minimises the present value of the whole bill under the plan's rules: spare nodes, power caps, vendors, delivery
    dates. The same program is solved for each vendor alone, for a mix, and for each accelerator alone.""",
    """Dollars are discounted to the start. Hardware is bought when needed and kept to the end of the plan; then it
    is worth its salvage value, plus the share of the remaining book value that the plan counts as resale. Power
    follows mean load between idle power and the power of a serving node; cooling is power times (PUE - 1). Rent
    includes host, power and cooling; a contract is paid to the end of its term.""",
    """Input tokens pay for the share of busy device time that prompts take, output tokens for the rest; idle time,
    spares and people are distributed like busy time. Token prices are levelised: discounted dollars over discounted
    tokens.""",
    """Confidence: each draw varies every input that has a range (people, demand, prices, rates, and each accelerator's
    throughput from P10 to P90) and resizes every competing fleet. Resizing keeps each accelerator's share of every
    length and fills its nodes with one or two kinds of replica per workload; a mix keeps its size if its replicas can
    carry the load with other shares. A resized fleet can cost too much, never too little. Flips are found the same way,
    to half a percent.""",
)
CAVEATS = (
    "Throughput depends on the software release: measurements on the same chip moved by 15 to 30% in a year.",
    "A length bucket stands for all requests of about its length; the loads of buckets are added up linearly.",
    "List prices and rents were published on a given day; only a contract fixes a price.",
    "Errors of one vendor's accelerators are drawn as partly correlated, all others as independent.",
)


def plan_html(result: PlanResult, launches: Sequence[PoolLaunch] = ()) -> str:
    """Write the whole report."""
    plan = result.plan
    page = Template((_TEMPLATES / "plan.html").read_text(encoding="utf-8")).substitute(
        title=escape(plan.name),
        css=(_TEMPLATES / "plan.css").read_text(encoding="utf-8"),
        question=escape(plain_demand(result)),
        note=f"<p>{escape(plan.note)}</p>" if plan.note else "",
        script=f"script-src 'sha256-{script_hash()}'",
        nav=_nav(result),
        body="\n".join(_body(result, launches)),
        version=escape(__version__),
        start=plan.start.isoformat(),
        rate=f"{plan.money.discount_rate.value:.1%}",
    )
    return unique_ids(page)


_ANSWERED = (("pays", "For budget owners"), ("knobs", "Try other numbers"), ("runs", "For operators"))


def _nav(result: PlanResult) -> str:
    answered = () if isinstance(result.answer, NoFleet) else _ANSWERED
    parts = (*answered, ("assumed", "Assumptions"))
    return "\n".join(f'<a href="#{ident}">{name}</a>' for ident, name in parts)


def _body(result: PlanResult, launches: Sequence[PoolLaunch]) -> Iterator[str]:
    if isinstance(result.answer, NoFleet):
        yield '<section class="verdict unmet"><p class="answer">' + NO_FLEET + "</p>"
        yield listed(result.answer.reasons) + "</section>"
    else:
        yield '<section id="pays">'
        yield from summary(result, result.answer)
        yield "</section>"
        yield from knobs_section(result, result.answer)
        yield '<section id="runs"><h1 class="part">For operators</h1>'
        yield from operation(result, result.answer, launches)
        yield "</section>"
    yield '<section id="assumed"><h1 class="part">Assumptions</h1>'
    yield from _assumed(result)
    yield "</section>"


def _assumed(result: PlanResult) -> Iterator[str]:
    if result.claims:
        yield _section("A published claim", "Recomputed from its own stated inputs, in every reasonable reading.")
        yield from (claim_section(check) for check in result.claims)
    yield _section("To be confirmed", "Every input with its range and source, by the department that can confirm it.")
    yield from assumptions_tables(result.assumptions)
    if result.left_out:
        yield _section("Left out", "Accelerators and deployments that were not compared, and why.")
        yield left_out_table(result.left_out)
    yield _section("Method", "")
    yield listed(METHOD)
    yield _section("Caveats", "")
    yield listed((result.capacity_note, *CAVEATS))


def _section(title: str, lead: str) -> str:
    return f"<h2>{escape(title)}</h2>" + (f'<p class="lead">{escape(lead)}</p>' if lead else "")
