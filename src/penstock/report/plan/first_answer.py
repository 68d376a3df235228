"""Writes the first answer of a plan, which is shown while the uncertainty of the answer is computed."""

from penstock.planning.optimizer.competing_fleets import Family
from penstock.planning.optimizer.problem import Mix
from penstock.report.plan.plan_amounts import usd
from penstock.report.plan.sentences import capital, label_name, nodes_by_acquisition, unit_name

_OTHERS_SHOWN = 3


def first_answer(family: Family) -> str:
    """State the cheapest fleet, its cost and how much more the best fleets of other kinds cost."""
    winner, (own, *others) = family.winner, family.by_label.items()
    more = [f"{label_name(label)} {usd(mix.cost_usd - winner.cost_usd)} more" for label, mix in others[:_OTHERS_SHOWN]]
    rivals = f" ({', '.join(more)})" if more else ""
    return (
        f"Cheapest so far: {capital(label_name(own[0]))} at {usd(winner.cost_usd)} all in, {_fleet(winner)}{rivals}. "
        "Still computing: how sure this is, and what would change it."
    )


def _fleet(mix: Mix) -> str:
    """List the units of the first period, by accelerator and way of acquisition."""
    first = min(pool.period for pool in mix.pools)
    pools = sorted((pool for pool in mix.pools if pool.period == first), key=lambda pool: pool.offer.key)
    ways = [(pool, how, count) for pool in pools for how, count in nodes_by_acquisition(pool) if count]
    start = " at the start" if any(pool.period != first for pool in mix.pools) else ""
    return ", ".join(f"{count:,} x {unit_name(pool.offer)} {how}" for pool, how, count in ways) + start
