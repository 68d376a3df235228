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
    """Every accelerator of the plan is tried with every split that fits a node and every weight format asked for; what
    the memory model says does not fit is not considered. Capacity is what is sustained within the SLO, as the first
    caveat says.""",
    """An integer program (HiGHS) chooses whole nodes, whole replicas and the share of each length bucket every pool
    serves, at the least present value of everything on the bill, under the plan's rules: spare nodes, power caps,
    vendors, delivery dates. The same program answers each vendor alone, a mix, and each accelerator alone.""",
    """Dollars are discounted to the start. Hardware is bought when it is needed, kept to the end of the plan and worth
    its salvage then, and the share of its book value above that which the plan counts on as resale. Power follows mean
    load between idle and what a serving node draws; cooling is power times PUE less one. Rent includes host, power and
    cooling; a contract is paid to the end of its term.""",
    """Input tokens pay for the share of busy device time that prompts take, output tokens for the rest; idle time,
    spares and people are spread like busy time. Token prices are levelised: discounted dollars over discounted
    tokens.""",
    """Confidence draws every input that has a range: people, demand, prices, rates, and each accelerator's throughput
    from its P10 to P90, and resizes every competing fleet in every draw. Resizing keeps each part's share of every
    length and fills its nodes anew with one or two kinds of replica per workload; a mix stays as it is where its
    replicas carry everything in another sharing. Its cost can only be overestimated; flip points are found the same
    way and located to half a percent.""",
)
CAVEATS = (
    "Throughput depends on the software of the day: measurements on the same chip moved by 15 to 30% in a year.",
    "Buckets stand for all requests of about their length; what a replica serves is added up linearly over buckets.",
    "List prices and rents are what somebody published on a day; a contract is what you sign.",
    "Errors of one vendor's accelerators are drawn as partly shared, all others as independent.",
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


_ANSWERED = (("pays", "For who pays"), ("knobs", "Try other numbers"), ("runs", "For who runs it"))


def _nav(result: PlanResult) -> str:
    answered = () if isinstance(result.answer, NoFleet) else _ANSWERED
    parts = (*answered, ("assumed", "What was assumed"))
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
        yield '<section id="runs"><h1 class="part">For who runs it</h1>'
        yield from operation(result, result.answer, launches)
        yield "</section>"
    yield '<section id="assumed"><h1 class="part">What was assumed</h1>'
    yield from _assumed(result)
    yield "</section>"


def _assumed(result: PlanResult) -> Iterator[str]:
    if result.claims:
        yield _section("A published claim, recomputed", "From its own stated inputs, in every reasonable reading.")
        yield from (claim_section(check) for check in result.claims)
    yield _section("To be confirmed", "Every input with its range and source, under whose word makes it a fact.")
    yield from assumptions_tables(result.assumptions)
    if result.left_out:
        yield _section("What was left out", "Parts and placements that are not in the choice, and why.")
        yield left_out_table(result.left_out)
    yield _section("Method", "")
    yield listed(METHOD)
    yield _section("Caveats", "")
    yield listed((result.capacity_note, *CAVEATS))


def _section(title: str, lead: str) -> str:
    return f"<h2>{escape(title)}</h2>" + (f'<p class="lead">{escape(lead)}</p>' if lead else "")
