"""Builds the part of the plan report for operators.

This part has the fleet over time, the placement, launch commands and the itemised bill.
"""

from collections.abc import Sequence
from math import ceil

from penstock.planning.optimizer.cash_flow import day_of
from penstock.planning.optimizer.problem import Mix
from penstock.planning.plan_result import Answer, Bill, PlanResult
from penstock.planning.pool_launches import PoolLaunch
from penstock.report.plan.cash_sentences import money_with_site
from penstock.report.plan.demand_sentences import question
from penstock.report.plan.flips import flip_sentence, flips_by_input, within_range
from penstock.report.plan.html_tables import (
    bill_table,
    capacity_table,
    fleet_table,
    payments_table,
    rules_table,
    token_table,
    verification_table,
)
from penstock.report.plan.plan_amounts import usd
from penstock.report.plan.plan_charts import Figure, compared_fleets, figure, fleet_bars, tornado_bars, waterfall_bars
from penstock.report.plan.sentences import (
    capital_first,
    cheaper_fleet_sentence,
    disaggregated_sentences,
    fleet_name,
    headline,
    owned_sentences,
    product_name,
    swing_name,
    unit_word,
)

_FLIPS_SHOWN = 10


def operation(result: PlanResult, answer: Answer, launches: Sequence[PoolLaunch]) -> dict[str, object]:
    """Collect the values for the part of the report that operators read."""
    bill, confidence = answer.winner, answer.confidence
    alone = answer.verdict.of_fleets == "only choice"
    flips = [(flip_sentence(*ends), within_range(ends)) for ends in flips_by_input(answer.flips)[:_FLIPS_SHOWN]]
    return {
        "question": question(result),
        "headline": headline(answer),
        "nodes_over_time": _over_time(bill.mix, result),
        "fleet": fleet_table(bill.mix, result),
        "units": list(disaggregated_sentences(bill.mix, result.candidates)),
        "verification": verification_table(answer),
        "cheaper_fleet": capital_first(cheaper_fleet_sentence(answer)),
        "capacities": capacity_table(result, answer),
        "launches": launches,
        "waterfalls": [_waterfall(name, entry) for name, entry in _pair(answer)],
        "token_prices": token_table(compared_fleets(answer)),
        "flips": None if alone and not flips else flips,
        "draws": "Each input is varied alone. The confidence comes from "
        f"{confidence.draws:,} Monte Carlo draws with seed {confidence.seed}.",
        "tornado": None if alone or not answer.swings else _tornado(answer),
        "rules": rules_table(answer),
        "owned": None if answer.owned is None else list(owned_sentences(answer.owned)),
        "cash_sentences": list(money_with_site(bill.cash, result.plan)),
        "payments": payments_table(bill.cash),
        "bill": bill_table(bill.cost),
    }


def _over_time(mix: Mix, result: PlanResult) -> Figure | None:
    """Draw the number of nodes in each period. Return None if there is only one period."""
    periods = result.terms.periods
    if len(periods) == 1:
        return None
    nodes = []
    for ident in sorted(mix.support):
        name = product_name(result.resolved.accelerators[ident])
        nodes += [
            (f"{day_of(result.terms, start):%Y-%m}", name, ceil(mix.nodes_of(ident, at)))
            for at, (start, _) in enumerate(periods)
        ]
    last = len(periods) - 1
    counts = "; ".join(
        f"{mix.nodes_of(accelerator, 0):g} {accelerator} at first, {mix.nodes_of(accelerator, last):g} at the end"
        for accelerator in sorted(mix.support)
    )
    return figure(f"{capital_first(unit_word(mix))}s over time.", f"{counts}.", fleet_bars(nodes))


def _waterfall(name: str, bill: Bill) -> Figure:
    fall = bill.cost.waterfall
    bare, whole, people = usd(fall.silicon_usd), usd(fall.all_in_usd), usd(fall.software_usd)
    note = f"{bare} for silicon or rent, {whole} in total, including {people} for engineers."
    return figure(f"From silicon to all in: {name}.", note, waterfall_bars(bill))


def _pair(answer: Answer) -> list[tuple[str, Bill]]:
    """Return the winner's bill and the bill of the best fleet of another vendor, if such a fleet exists."""
    other = next((bill for label, bill in answer.by_label.items() if label not in {answer.verdict.winner, "mix"}), None)
    pair = [(fleet_name(answer.winner.mix), answer.winner)]
    return pair if other is None else [*pair, (fleet_name(other.mix), other)]


def _tornado(answer: Answer) -> Figure:
    widest = answer.swings[0]
    note = (
        f"The input with the largest effect is {swing_name(widest)}: over its range, the saving changes by "
        f"{usd(widest.width_usd)}. A grey bar extends below zero where another fleet is cheaper."
    )
    return figure("Saving over the range of each input.", note, tornado_bars(answer.swings, answer.verdict.winner))
