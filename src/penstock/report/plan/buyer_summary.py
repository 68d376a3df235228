"""Builds the first page of the plan report, for budget owners.

The page has the answer, the cost, the options, the confidence, and questions to vendors.
"""

from collections.abc import Mapping
from typing import Final

from penstock.planning.optimizer.problem import Mix
from penstock.planning.optimizer.vendor_load import vendors_above_minimum_share
from penstock.planning.plan_result import Answer, PlanResult
from penstock.planning.spec.resolve_plan import Resolved
from penstock.planning.uncertainty.monte_carlo import Blame
from penstock.planning.uncertainty.scenarios import DemandScenario
from penstock.planning.uncertainty.uncertain_inputs import PRICE_CHANGE
from penstock.report.plan.acquisition_plan import committed_usd, order_sentences, paid_usd, sold_usd
from penstock.report.plan.confidence_sentences import enough_sentence, levels_table, share_enough
from penstock.report.plan.default_sentences import size_sentence
from penstock.report.plan.demand_sentences import user_sentences
from penstock.report.plan.engine_sentences import engine_sentences, launch_sentences
from penstock.report.plan.flips import flips_by_input, plain_flip, within_range
from penstock.report.plan.html_tables import Cell, HtmlTable
from penstock.report.plan.plan_amounts import usd
from penstock.report.plan.plan_charts import Figure, cash_bars, compared_fleets, cost_bars, figure, span_bars
from penstock.report.plan.price_sentences import price_sentences
from penstock.report.plan.rfp import VendorSheet, vendor_sheets
from penstock.report.plan.scenario_sentences import (
    api_sentences,
    missing_sentences,
    rule_usd,
    saving_sentence,
    scenario_usd,
    small_fleet,
)
from penstock.report.plan.sentences import (
    Sureness,
    api_verdict,
    capital_first,
    label_name,
    likelier,
    near_sentence,
    not_compared_sentence,
    owned_sentences,
    people_sentence,
    plain_label,
    product_name,
    product_names,
    served_cases,
    small_share_sentence,
    sureness,
    unit_word,
    unserved_fraction,
)

_TAGS: Final[Mapping[Sureness, str]] = {
    "sure": "vendor: confident",
    "likely": "vendor: likely",
    "alone": "only one kind of fleet",
    "open": "vendor: undecided",
    "unmet": "misses its SLO",
}
_FLIPS_SHOWN, _CHANGES_SHOWN = 6, 3
"""Inputs that would change the choice: listed in their section, and in the first screen."""
_MEASURES_SHOWN: Final = 3


def summary(result: PlanResult, answer: Answer) -> dict[str, object]:
    """Collect the values for the first page of the report."""
    level, names, verdict = sureness(answer), product_names(result), answer.verdict
    notes = (
        *user_sentences(result),
        *missing_sentences(answer),
        *engine_sentences(result, answer),
        small_fleet(result, answer),
        *price_sentences(result, answer),
        not_compared_sentence(result),
        *api_sentences(result, answer),
    )
    found = flips_by_input(answer.flips)[:_FLIPS_SHOWN]
    flips = [(plain_flip(ends, names), within_range(ends)) for ends in found]
    blame = answer.confidence.blame if level == "open" else ()
    owned = () if answer.owned is None else owned_sentences(answer.owned, names)
    rules = [
        f"{capital_first(rule.rule)}{' (a default)' if rule.usual else ''}: {rule_usd(rule)}."
        for rule in answer.rules
        if rule.usd > 0
    ]
    return {
        "level": level,
        "tag": _TAGS[level],
        "enough": ""
        if level == "unmet"
        else f"enough in {share_enough(answer.winner.mix, answer.confidence)} of cases",
        "levels": levels_table(answer),
        "answer": [text for text in (api_verdict(answer), *order_sentences(result, answer)) if text],
        "how_sure": _how_sure(result, answer),
        "changes": [text for text, _ in flips[:_CHANGES_SHOWN]],
        "saving": saving_sentence(answer),
        "notes": [note for note in notes if note],
        "warnings": [
            text for text in (size_sentence(answer), people_sentence(answer), *launch_sentences(answer)) if text
        ],
        "to_settle": [_to_settle(entry, names) for entry in blame[:_MEASURES_SHOWN]],
        "tiles": _tiles(answer),
        "payments": figure("Payments over time.", cash_note(answer), cash_bars(answer.winner.cash)),
        **_options(result, answer),
        "owned": [f"{capital_first(sentence)}." for sentence in owned],
        "rules": rules if answer.rules else None,
        "cost_ranges": None if verdict.of_fleets == "only choice" else _cost_ranges(answer, names),
        "has_rivals": bool(verdict.others_usd),
        "flips": flips,
        "scenarios": [_scenario(entry, names) for entry in answer.scenarios],
        "questions": _vendor_questions(result, answer),
    }


def _to_settle(blame: Blame, names: Mapping[str, str]) -> str:
    subject = names.get(blame.subject, label_name(blame.subject))
    what = {
        "throughput": f"benchmark {subject} with your own requests",
        "price": f"get a written price for {subject}",
        "rent": f"get a written rent for {subject}",
        "engineers": f"decide how many extra engineers {subject} needs",
        "engineers_by_size": f"decide how many extra engineers {subject} needs",
        "delivery": f"get a written delivery date for {subject}",
        "demand": f"forecast the {subject}",
        "mean_load": f"forecast the {subject}",
    }.get(blame.kind, f"give your own figure for the {subject} in the plan file")
    if blame.id == PRICE_CHANGE:
        what = "agree on prices for the whole plan, because later prices are uncertain"
    return f"To settle it: {what}."


def _how_sure(result: PlanResult, answer: Answer) -> list[tuple[str, str]]:
    """Say how sure the fleet, its cost and the choice of the vendor are, each with a heading."""
    level = sureness(answer)
    if level == "unmet":
        missed = (
            "In simulation this fleet misses its response times. Do not order it; change the plan and run it again."
        )
        return [("Fleet", missed)]
    enough = enough_sentence(answer, unit=unit_word(answer.winner.mix), other="a fleet for ")
    unproven = "" if answer.verified else "This fleet was not simulated; its capacity is an estimate."
    fleet = " ".join(filter(None, (f"{capital_first(enough)}." if enough else "", unproven)))
    lines = (("Fleet", fleet), ("Cost", _in_draws(answer)), ("Choice", _choice(result, answer, level)))
    return [(head, text) for head, text in lines if text]


def _choice(result: PlanResult, answer: Answer, level: Sureness) -> str:
    """Say how much dearer the other kinds of fleet are, and in how many draws the winner is cheapest."""
    if level == "alone":
        return _only_kind(result, answer)
    small = small_share_sentence(result, answer)
    parts = (_gap(result, answer), small and f"{small}.", near_sentence(answer), _chances(result, answer))
    text = " ".join(filter(None, parts))
    if likelier(answer) is not None:
        return f"{text} The likelier choice is among the options below; keep both open."
    return f"{text} That is too close to call; keep both open." if level == "open" else text


def _gap(result: PlanResult, answer: Answer) -> str:
    """State how much more the second cheapest kind of fleet costs, with every input at its estimate."""
    for label, more in answer.verdict.others_usd.items():
        return f"The {_best_of(label, result, answer)} costs {usd(more)} more in today's money."
    return "No other fleet can serve this demand."


def _chances(result: PlanResult, answer: Answer) -> str:
    """State in how many Monte Carlo draws the winner is cheapest.

    If another kind of fleet is cheapest in more draws, the sentence names that kind first.
    """
    verdict, names, named = answer.verdict, product_names(result), answer.family.named_by
    varied, winner = "With every uncertain input varied together", plain_label(named[verdict.winner], names)
    other = likelier(answer)
    if other is None:
        return f"{varied}, {winner} stays the cheapest in {verdict.probability:.0%} of cases."
    likely = f"{plain_label(named[other], names)} is the cheapest in {verdict.likeliest_probability:.0%} of cases"
    return f"{varied}, {likely} and {winner} in {verdict.probability:.0%}."


def _in_draws(answer: Answer) -> str:
    """State P10, median and P90 of the cost over the Monte Carlo draws."""
    span = answer.verdict.cost_usd
    low, median, high = usd(span.low), usd(span.median), usd(span.high)
    if low == high:
        return ""
    served = served_cases(answer)
    over = f", in {served}" if served else ""
    planned = usd(answer.winner.cost.total_usd)
    without = " without the sales" if sold_usd(answer.winner) else ""
    sentences = [f"{planned} in today's money as planned{without}; {low} to {high} (P10-P90), median {median}{over}."]
    if none := unserved_fraction(answer):
        sentences.insert(0, f"In {none:.0%} of cases no compared fleet meets every rule of the plan.")
    if answer.winner.cost.total_usd < span.low:
        sentences.append("The planned cost is below this range, so the plan is optimistic.")
    return " ".join(sentences)


def _only_kind(result: PlanResult, answer: Answer) -> str:
    """Describe the alternatives if all compared fleets are of one kind."""
    if not answer.runners_up:
        return "No other fleet can do the work under these rules, so there is no saving to compare."
    second = min(answer.runners_up, key=lambda bill: bill.cost.total_usd)
    more = second.cost.total_usd - answer.winner.cost.total_usd
    rules = "The rules leave one kind of fleet, so vendors are not compared"
    return f"{rules}; the next fleet of that kind, {plain_fleet(second.mix, result.resolved)}, costs {usd(more)} more."


def _best_of(label: str, result: PlanResult, answer: Answer) -> str:
    """Name a kind of fleet and the accelerators of its best fleet.

    If the kind is itself a set of accelerators, name these accelerators only once.
    """
    parts = plain_fleet(answer.by_label[label].mix, result.resolved)
    if not answer.family.by_vendor:
        return f"best fleet of {parts}"
    if label != "mix":
        return f"best {label_name(label)} fleet ({parts})"
    always = (
        vendors_above_minimum_share(result.problem, answer.by_label[label].mix) == answer.by_label[label].mix.vendors
    )
    share = f"{result.problem.min_vendor_share:.0%}"
    each = f"at least {share} of the load with each vendor" if always else f"at times less than {share} with a vendor"
    return f"best mix ({parts}, {each})"


def _tiles(answer: Answer) -> list[tuple[str, str]]:
    bill, span = answer.winner, answer.verdict.cost_usd
    cash, mix = bill.cash, bill.mix
    last = max(pool.period for pool in mix.pools)
    devices = sum(pool.nodes * pool.offer.devices for pool in mix.pools if pool.period == last)
    kilowatts = max(
        sum((pool.owned_nodes + pool.kept_nodes) * pool.offer.node_watts for pool in mix.pools if pool.period == at)
        for at in {pool.period for pool in mix.pools}
    )
    now, later = committed_usd(cash)
    varies, cases = usd(span.low) != usd(span.high), served_cases(answer) or "all cases"
    entries = (
        (cash.capex_usd, usd(cash.first_order_usd), "on the first purchase order"),
        (cash.capex_usd, usd(cash.capex_usd), "for all purchases (capex)"),
        (now, usd(now), "committed in rental contracts to sign now"),
        (usd(later) != "$0", usd(later), "committed in rental contracts to sign later"),
        (True, usd(paid_usd(bill)), "paid in total, less sales"),
        (True, usd(bill.cost.total_usd), "total cost in today's money, which the plan minimises"),
        (
            varies,
            f"{usd(span.low)} to {usd(span.high)}",
            f"P10-P90 of the total in today's money over {cases}, median {usd(span.median)}",
        ),
        (True, f"{devices:,}", "accelerators at the end"),
        (kilowatts, f"{kilowatts / 1000:,.0f} kW", "maximum power of owned nodes"),
    )
    return [(value, label) for shown, value, label in entries if shown]


def cash_note(answer: Answer) -> str:
    """List the payments in each year."""
    years = answer.winner.cash.years
    payments = ", ".join(f"{usd(paid.total_usd)} in the year from {paid.start:%B %Y}" for paid in years)
    return f"{payments}. Dollars are shown as paid, without discounting."


def _options(result: PlanResult, answer: Answer) -> dict[str, object]:
    rows = [(plain_fleet(bill.mix, result.resolved), bill) for _, bill in compared_fleets(answer)]
    best = answer.winner.cost.total_usd
    amounts = ("purchases", "paid in total", "in today's money", "extra cost", "cheapest in")
    heads: list[Cell] = ["option", *((name, "n") for name in amounts)]
    lines: list[list[Cell]] = []
    for name, bill in rows:
        more = bill.cost.total_usd - best
        label = answer.family.label(bill.mix)
        rivals = answer.verdict.of_fleets != "only choice"
        best_of_kind = rivals and (bill is answer.by_label.get(label) or bill is answer.winner)
        chance = f"{answer.confidence.probability.get(label, 0.0):.0%}" if best_of_kind else "-"
        lines.append(
            [
                name,
                usd(bill.cash.capex_usd),
                usd(paid_usd(bill)),
                usd(bill.cost.total_usd),
                f"+{usd(more)} ({more / best:.0%})" if more > 0 else "cheapest",
                chance,
            ]
        )
    totals = "; ".join(f"{name} {usd(bill.cost.total_usd)}" for name, bill in rows)
    bars = cost_bars([(chart_name(name), bill) for name, bill in rows])
    return {
        "options": HtmlTable(heads, lines, classes=["total"]),
        "cost_by_item": figure("Cost by item.", f"In today's money: {totals}.", bars),
    }


def chart_name(fleet: str) -> str:
    """Shorten a fleet's name to fit next to a bar, by removing vendor prefixes."""
    return fleet.replace("AMD Instinct ", "").replace("NVIDIA ", "")


def plain_fleet(mix: Mix, resolved: Resolved) -> str:
    """Name a fleet by the product names of its accelerators."""
    return " + ".join(product_name(resolved.accelerators[part]) for part in sorted(mix.support))


def _cost_ranges(answer: Answer, names: Mapping[str, str]) -> Figure:
    return figure(
        "Cost range of the best fleet of each kind.",
        "Bars: P10-P90 of cost; white mark: median. Each fleet is enlarged where a case needs it. "
        "Cases that it cannot serve are left out.",
        span_bars(answer, {ident: chart_name(name) for ident, name in names.items()}),
    )


def _scenario(scenario: DemandScenario, names: Mapping[str, str]) -> str:
    fleet = " and ".join(f"{devices:,} {names.get(part, part)}" for part, devices in scenario.accelerators.items())
    where = {"low": "At the low end of its range", "base": "As planned", "high": "At the high end of its range"}
    return f"{where[scenario.name]}: {scenario_usd(scenario)}" + (f" for {fleet}." if fleet else ".")


def _vendor_questions(result: PlanResult, answer: Answer) -> HtmlTable:
    sheets = vendor_sheets(result, answer)
    rows: list[list[Cell]] = []
    for sheet in sheets:
        for entry in sheet.questions:
            decides = sheet.role == "chosen" or entry.changes_choice
            if entry.topic in {"price", "term", "lead time"} and entry.used and decides:
                changes = (entry.changes_choice or "-", "small")
                rows.append([_whom(sheet), entry.question, (entry.assumed, "small"), changes])
    return HtmlTable(["accelerator", "question", "the plan assumes", "the choice changes"], rows)


def _whom(sheet: VendorSheet) -> str:
    return f"{product_name(sheet.accelerator)} ({sheet.role})"
