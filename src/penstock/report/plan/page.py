"""Renders a plan as one self-contained HTML page for budget owners and operators.

The page can be read on a large display, on a phone and on paper.
"""

from collections.abc import Sequence

from penstock import __version__
from penstock.planning.plan_result import Answer, NoFleet, PlanResult
from penstock.planning.pool_launches import PoolLaunch
from penstock.report.drawing.html_template import as_html, render_template, template_text
from penstock.report.plan.buyer_summary import summary
from penstock.report.plan.default_sentences import default_sentence
from penstock.report.plan.demand_sentences import plain_demand
from penstock.report.plan.html_tables import assumptions_tables, claim_table, left_out_table
from penstock.report.plan.operation import operation
from penstock.report.plan.page_knobs import knobs_section, script_hash
from penstock.report.plan.plan_charts import unique_ids
from penstock.report.plan.sentences import NO_FLEET

METHOD = (
    """Every accelerator of the plan is tried with every split that fits a node and every requested weight format;
    deployments that do not fit in memory are dropped. Capacity is the highest rate that is sustained within the SLO;
    the first caveat says how this rate was found.""",
    """An integer program (HiGHS) chooses whole nodes, whole replicas, and the share of each length bucket per pool.
    The program minimises the present value of the whole bill under the plan's rules: spare nodes, power caps, vendors,
    delivery dates. The same program is solved for each vendor alone, for a mix, and for each accelerator alone.""",
    """Dollars are discounted to the start of the plan. Hardware is bought when needed and kept to the end of the plan;
    then it is worth its salvage value, plus the share of the remaining book value that the plan counts as resale.
    Power is interpolated by mean load, from idle power to the power of a serving node; cooling is power times (PUE -
    1). Rent includes host, power and cooling; a contract is paid to the end of its term.""",
    """Input tokens are charged for the share of busy device time that prompts take, and output tokens for the rest;
    the costs of idle time, spares and people are distributed in proportion to busy time. Token prices are levelised:
    discounted dollars over discounted tokens.""",
    """Confidence: each draw varies every input that has a range (people, demand, prices, rates, and each accelerator's
    throughput from P10 to P90) and resizes every competing fleet. Resizing a fleet changes its number of nodes. Each
    accelerator still serves the same share of each length bucket, with one or two kinds of replica per workload. A mix
    keeps its number of nodes if its replicas can carry the load after requests are redistributed between accelerators.
    The cost of a resized fleet may be overestimated, never underestimated. The values of an input at which another
    fleet becomes cheapest are found with the same resizing, to a precision of 0.5%.""",
)
CAVEATS = (
    "Throughput depends on the software release: measurements on the same chip changed by 15 to 30% within a year.",
    "A length bucket represents requests of similar length; the loads of a replica's buckets are added up linearly.",
    "List prices and rents are as of the day of their publication; only a contract fixes a price.",
    "Prediction errors of one vendor's accelerators are drawn as partly correlated, all other inputs as independent.",
)


def plan_html(result: PlanResult, launches: Sequence[PoolLaunch] = ()) -> str:
    """Write the whole report as HTML."""
    answer = result.answer
    page = render_template(
        "plan.html.j2",
        plan=result.plan,
        question=plain_demand(result),
        css=as_html(template_text("plan.css")),
        script_source=as_html(f"script-src 'sha256-{script_hash()}'"),
        version=__version__,
        **_assumptions(result),
        **(_no_fleet(answer) if isinstance(answer, NoFleet) else _fleet(result, answer, launches)),
    )
    return unique_ids(page)


def _no_fleet(answer: NoFleet) -> dict[str, object]:
    return {"summary": None, "no_fleet": NO_FLEET, "reasons": answer.reasons}


def _fleet(result: PlanResult, answer: Answer, launches: Sequence[PoolLaunch]) -> dict[str, object]:
    return {
        "summary": summary(result, answer),
        "knobs": knobs_section(result, answer),
        "operation": operation(result, answer, launches),
    }


def _assumptions(result: PlanResult) -> dict[str, object]:
    return {
        "claims": [(check.claim.title, check.verdicts, claim_table(check)) for check in result.claims],
        "assumptions": list(assumptions_tables(result.assumptions)),
        "defaults": f"{default_sentence(result.resolved)}.",
        "left_out": left_out_table(result.left_out) if result.left_out else None,
        "method": METHOD,
        "caveats": (result.capacity_note, *CAVEATS),
    }
