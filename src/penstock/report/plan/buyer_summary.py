"""Builds the first page of the plan report, for budget owners.

The page has the answer, the cost, the options, the confidence, and questions to vendors.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from penstock.planning.optimizer.problem import DEVICE, NODE, Mix, Offer, PoolPeriod
from penstock.planning.optimizer.vendor_load import vendors_above_minimum_share
from penstock.planning.plan_result import Answer, Bill, PlanResult
from penstock.planning.spec.resolve_plan import Resolved
from penstock.planning.uncertainty.monte_carlo import Blame
from penstock.planning.uncertainty.scenarios import DemandScenario
from penstock.planning.uncertainty.uncertain_inputs import PRICE_CHANGE
from penstock.report.plan.confidence_sentences import enough_sentence, levels_table, share_enough
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
from penstock.units import count_text

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
    rules = [f"{capital_first(rule.rule)}: {rule_usd(rule)}." for rule in answer.rules if rule.usd > 0]
    return {
        "level": level,
        "tag": _TAGS[level],
        "enough": "" if level == "unmet" else f"enough in {share_enough(answer)} of cases",
        "levels": levels_table(answer),
        "answer": f"{acquisition_plan(answer.winner.mix, result.resolved)}: {_money(result, answer)}",
        "how_sure": _how_sure(result, answer),
        "changes": [text for text, _ in flips[:_CHANGES_SHOWN]],
        "saving": saving_sentence(answer),
        "notes": [note for note in notes if note],
        "warnings": [text for text in (people_sentence(answer), *launch_sentences(answer)) if text],
        "to_settle": [_to_settle(entry, names) for entry in blame[:_MEASURES_SHOWN]],
        "tiles": _tiles(answer),
        "payments": figure("Payments over time.", cash_note(answer), cash_bars(answer.winner.cash)),
        **_options(result, answer),
        "owned": [f"{capital_first(sentence)}." for sentence in owned],
        "rules": rules if answer.rules else None,
        "cost_ranges": None if verdict.outcome == "only choice" else _cost_ranges(answer, names),
        "has_rivals": bool(verdict.others_usd),
        "flips": flips,
        "scenarios": [_scenario(entry, names) for entry in answer.scenarios],
        "questions": _vendor_questions(result, answer),
    }


def acquisition_plan(mix: Mix, resolved: Resolved) -> str:
    """List the nodes to keep, buy, rent and sell, per accelerator."""
    phrases = list(_unused_owned(mix, resolved))
    for ident in sorted(mix.support):
        pools = [pool for pool in mix.pools if pool.offer.accelerator == ident]
        for unit in dict.fromkeys(pool.offer.unit for pool in pools):
            of_unit = [pool for pool in pools if pool.offer.unit == unit]
            name = product_name(resolved.accelerators[ident])
            phrases += [
                f"{verb} {_counted_units(nodes, of_unit[0].offer, rented=verb == 'rent')} {name}{how}"
                for verb, nodes, how in _ways(mix, of_unit)
                if nodes
            ]
    text = ", and ".join(phrases) if len(phrases) < 3 else ", ".join(phrases)  # "and" joins two
    return text[:1].upper() + text[1:]


def _ways(mix: Mix, pools: Sequence[PoolPeriod]) -> Iterator[tuple[str, int, str]]:
    """Yield the verb, the number and the term of each way in which the units of some pools are acquired."""
    offers = {pool.offer.key: pool.offer for pool in pools}
    terms: dict[int, int] = {}
    for (accelerator, site, unit, number, _), nodes in mix.contracts.items():
        offer = offers.get((accelerator, site, unit))
        if offer is not None:
            months = offer.contracts[number].months
            terms[months] = terms.get(months, 0) + nodes
    yield "keep", _most((pool.period, pool.kept_nodes) for pool in pools), ""
    yield "buy", sum(nodes for key, nodes in mix.purchases.items() if key[:3] in offers), ""
    for months, nodes in sorted(terms.items()):
        yield "rent", nodes, f" for {count_text(months, 'month')}"
    yield "rent", _most((pool.period, pool.rented_nodes) for pool in pools), " by the hour"


def _counted_units(count: int, offer: Offer, *, rented: bool) -> str:
    """Return a number of nodes or instances with their devices, or of single devices."""
    if offer.unit == DEVICE:
        return f"{count:,} x"
    unit = "instance" if rented or offer.unit != NODE else "node"
    if offer.devices == 1:
        return f"{count_text(count, f'single-device {unit}')} of"
    return f"{count_text(count, unit)} of {offer.devices}"


def _most(nodes: Iterable[tuple[int, int]]) -> int:
    """Return the maximum number of nodes in any period, where the nodes of a period are summed over sites."""
    had: dict[int, int] = {}
    for period, count in nodes:
        had[period] = had.get(period, 0) + count
    return max(had.values())


def _unused_owned(mix: Mix, resolved: Resolved) -> Iterator[str]:
    """List owned nodes that the fleet never uses."""
    for entry in resolved.plan.owned:
        where = (entry.id, entry.site)
        pools = [pool for pool in mix.pools if (pool.offer.accelerator, pool.offer.site) == where and pool.offer.kept]
        kept = max((pool.kept_nodes for pool in pools), default=0)
        if (entry.nodes or 0) > kept:
            what = "nodes" if entry.unit_devices is None else "devices"
            yield f"sell {(entry.nodes or 0) - kept:,} of your {product_name(resolved.accelerators[entry.id])} {what}"


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


def _money(result: PlanResult, answer: Answer) -> str:
    cash, years = answer.winner.cash, count_text(result.plan.horizon_years, "year")
    order = f"{usd(cash.capex_usd)} of purchases, " if cash.capex_usd else "no purchase, "
    return f"{order}{usd(paid_usd(answer.winner))} paid in total over {years}."


def paid_usd(bill: Bill) -> float:
    """Return the undiscounted dollars paid during the plan's horizon, minus the proceeds of sales."""
    return sum(paid.total_usd for paid in bill.cash.years)


def _how_sure(result: PlanResult, answer: Answer) -> str:
    level = sureness(answer)
    if level == "unmet":
        return "In simulation this fleet misses its response times. Do not order it; change the plan and run it again."
    if level == "alone":
        return f"{_only_kind(result, answer)} {_in_draws(answer)}".rstrip()
    unproven = "" if answer.verified else " This fleet was not simulated; its capacity is an estimate."
    small = small_share_sentence(result, answer)
    parts = (_gap(result, answer), small and f"{small}.", near_sentence(answer), _chances(result, answer))
    text = " ".join(filter(None, (*parts, _in_draws(answer))))
    if likelier(answer) is not None:
        return f"{text} The likelier choice is among the options below; keep both open."
    return f"{text} That is too close to call; keep both open." if level == "open" else f"{text}{unproven}"


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
    """State P10, median and P90 of the cost over the Monte Carlo draws, and whether the number of nodes is enough."""
    span = answer.verdict.cost_usd
    low, median, high = usd(span.low), usd(span.median), usd(span.high)
    if low == high:
        return ""
    served = served_cases(answer)
    over = f", in {served}" if served else ""
    sentences = [f"This fleet costs {low} to {high} in today's money (P10-P90), median {median}{over}."]
    if none := unserved_fraction(answer):
        sentences.insert(0, f"In {none:.0%} of cases no compared fleet meets every rule of the plan.")
    if answer.winner.cost.total_usd < span.low:
        sentences.append("The planned cost is below this range, so the plan is optimistic.")
    if enough := enough_sentence(answer, unit=unit_word(answer.winner.mix)):
        sentences.append(f"{capital_first(enough)}.")
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
    bill = answer.winner
    cash, mix = bill.cash, bill.mix
    last = max(pool.period for pool in mix.pools)
    devices = sum(pool.nodes * pool.offer.devices for pool in mix.pools if pool.period == last)
    kilowatts = max(
        sum(pool.nodes * pool.offer.node_watts for pool in mix.pools if pool.period == period) / 1000
        for period in {pool.period for pool in mix.pools}
    )
    signed = sum(order.usd for order in cash.orders if order.months is not None)
    entries = [
        (usd(cash.first_order_usd), "on the first purchase order"),
        (usd(cash.capex_usd), "for all purchases (capex)"),
        (usd(paid_usd(bill)), "paid in total, less sales"),
        (usd(bill.cost.total_usd), "total cost in today's money, which the plan minimises"),
        (f"{devices:,}", "accelerators at the end"),
        (f"{kilowatts:,.0f} kW", "maximum power of the nodes"),
    ]
    span = answer.verdict.cost_usd
    if usd(span.low) != usd(span.high):
        cases = served_cases(answer) or "all cases"
        note = f"P10-P90 of the total in today's money over {cases}, median {usd(span.median)}"
        entries.insert(4, (f"{usd(span.low)} to {usd(span.high)}", note))
    if signed:
        entries[1:1] = [(usd(signed), "committed in rental contracts")]
    return entries


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
        rivals = answer.verdict.outcome != "only choice"
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
        "Bars: P10-P90 of the cases that each fleet, enlarged if needed, can serve. White mark: median.",
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
