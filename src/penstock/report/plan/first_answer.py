"""Writes the first answer of a plan, which is shown while it is computed what would change the answer."""

from penstock.planning.optimizer.problem import Mix
from penstock.planning.uncertainty.quantify_uncertainty import FirstAnswer
from penstock.report.plan.confidence_sentences import share_enough
from penstock.report.plan.plan_amounts import range_text, usd
from penstock.report.plan.sentences import capital, label_name, nodes_by_acquisition, unit_name

_OTHERS_SHOWN = 3


def first_answer_text(first: FirstAnswer) -> str:
    """State the cheapest fleet, its cost, how sure it is, and how much more the best fleets of other kinds cost."""
    winner, (own, *others) = first.family.winner, first.family.by_label.items()
    head = f"Cheapest so far: {capital(label_name(own[0]))} at {usd(winner.cost_usd)} all in"
    more = [f"{label_name(label)} {usd(mix.cost_usd - winner.cost_usd)} more" for label, mix in others[:_OTHERS_SHOWN]]
    enough = f"enough in {share_enough(winner, first.confidence)} of cases (planned for {first.planned_confidence:.0%})"
    sure = enough if first.keeps_slo else "but it misses its SLO in simulation"
    parts = (f"{head}{range_text(first.confidence.fleet_usd)}: {_fleet(winner)}", sure, ", ".join(more))
    return "; ".join(filter(None, parts)) + ". Still computing: what would change this."


def _fleet(mix: Mix) -> str:
    """List the units of the first period, by accelerator and way of acquisition."""
    first = min(pool.period for pool in mix.pools)
    pools = sorted((pool for pool in mix.pools if pool.period == first), key=lambda pool: pool.offer.key)
    ways = [(pool, how, count) for pool in pools for how, count in nodes_by_acquisition(pool) if count]
    start = " at the start" if any(pool.period != first for pool in mix.pools) else ""
    return ", ".join(f"{count:,} x {unit_name(pool.offer)} {how}" for pool, how, count in ways) + start
