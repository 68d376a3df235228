"""The operations part of the plan report: fleet over time, placement, launch commands, and the itemised bill."""

from collections.abc import Iterator, Sequence
from html import escape

from penstock.planning.optimizer.cash_flow import day_of
from penstock.planning.optimizer.problem import Mix
from penstock.planning.plan_result import Answer, Bill, PlanResult
from penstock.planning.pool_launches import PoolLaunch
from penstock.report.plan.flips import flip_sentence, flips_by_input, within_range
from penstock.report.plan.html_tables import (
    bill_table,
    capacity_table,
    cash_table,
    disaggregated_sentences,
    fleet_table,
    rules_table,
    token_table,
    verification_section,
)
from penstock.report.plan.plan_charts import compared, figure, fleet_bars, tornado_bars, waterfall_bars
from penstock.report.plan.sentences import fleet_name, headline, part_name, question, swing_name, usd

_WATCHED = 10


def operation(result: PlanResult, answer: Answer, launches: Sequence[PoolLaunch]) -> Iterator[str]:
    """Write the part for engineers."""
    yield f'<p class="lead">{escape(question(result))}</p><p>{escape(headline(answer))}</p>'
    yield _section("The fleet over time", "Nodes by period, what runs on them, and the requests they serve.")
    yield from _over_time(answer.winner.mix, result)
    yield fleet_table(answer.winner.mix, result)
    apart = disaggregated_sentences(answer.winner.mix, result.candidates)
    yield from (f'<p class="small">Disaggregated prefill: {escape(sentence)}.</p>' for sentence in apart)
    yield from verification_section(answer)
    yield _section("Capacity of a replica", "Requests per second within the SLO, for each deployment of these fleets.")
    yield capacity_table(result, answer)
    yield from _launches(launches)
    yield from _costs(answer)
    yield from _sensitivity(answer)
    yield from rules_table(answer)
    yield _section("Payments", "Undiscounted dollars when they are due; the bill below is in today's dollars.")
    yield from cash_table(answer.winner.cash, result.plan)
    yield _section("The bill, line by line", "Each amount is its formula evaluated on its inputs.")
    yield bill_table(answer.winner.cost)


def _over_time(mix: Mix, result: PlanResult) -> Iterator[str]:
    """Draw servers by period; nothing if there is only one period."""
    periods = result.terms.periods
    if len(periods) == 1:
        return
    nodes = []
    for ident in sorted(mix.support):
        name = part_name(result.resolved.accelerators[ident])
        nodes += [
            (f"{day_of(result.terms, start):%Y-%m}", name, mix.nodes_of(ident, at))
            for at, (start, _) in enumerate(periods)
        ]
    last = len(periods) - 1
    counts = "; ".join(
        f"{mix.nodes_of(accelerator, 0)} {accelerator} at first, {mix.nodes_of(accelerator, last)} at the end"
        for accelerator in sorted(mix.support)
    )
    yield figure("Servers over time.", f"{counts}.", fleet_bars(nodes))


def _launches(launches: Sequence[PoolLaunch]) -> Iterator[str]:
    if not launches:
        return
    yield _section(
        "Launch commands", "One per replica, as `penstock preflight` proposes it; check it there before use."
    )
    for entry in launches:
        count = (
            f"{entry.replicas} replicas of {entry.devices} devices"
            if entry.devices > 1
            else f"{entry.replicas} replicas"
        )
        yield f'<h3>{escape(entry.pool)}</h3><p class="small">{escape(count)}; {escape(entry.note)}.</p>'
        if entry.command is not None:
            yield f"<pre>{escape(entry.command)}</pre>"


def _costs(answer: Answer) -> Iterator[str]:
    yield _section("Cost", "From silicon alone to all in, with the engineers that each software stack needs.")
    for name, bill in _pair(answer):
        fall = bill.cost.waterfall
        bare, whole, people = usd(fall.silicon_usd), usd(fall.all_in_usd), usd(fall.software_usd)
        note = f"{bare} for silicon or rent, {whole} all in, of which engineers {people}."
        yield figure(f"From silicon to all in: {name}.", note, waterfall_bars(bill))
    yield token_table(compared(answer))


def _pair(answer: Answer) -> list[tuple[str, Bill]]:
    """Return the winner's bill, and the bill of the best fleet of another vendor if there is one."""
    other = next((bill for label, bill in answer.by_label.items() if label not in {answer.verdict.winner, "mix"}), None)
    pair = [(fleet_name(answer.winner.mix), answer.winner)]
    return pair if other is None else [*pair, (fleet_name(other.mix), other)]


def _sensitivity(answer: Answer) -> Iterator[str]:
    alone = answer.verdict.outcome == "only choice"
    if alone and not answer.flips:
        return
    confidence = answer.confidence
    yield _section(
        "What would change the answer",
        f"Each input alone; confidence from {confidence.draws:,} draws, seed {confidence.seed}.",
    )
    items = [
        f'<li class="{"near" if within_range(ends) else ""}">{escape(flip_sentence(*ends))}</li>'
        for ends in flips_by_input(answer.flips)[:_WATCHED]
    ]
    yield (
        f'<ul class="watch">{"".join(items)}</ul>'
        if items
        else "<p>No single input, varied from 0.1 to 10 times its value.</p>"
    )
    if answer.swings and not alone:
        widest = answer.swings[0]
        note = (
            f"The widest range is that of {swing_name(widest)}: {usd(widest.width_usd)}. "
            "Grey bars reach below zero, where another fleet is cheaper."
        )
        yield figure("Saving over the range of each input.", note, tornado_bars(answer.swings, answer.verdict.winner))


def _section(title: str, lead: str) -> str:
    return f'<h2>{escape(title)}</h2><p class="lead">{escape(lead)}</p>'
