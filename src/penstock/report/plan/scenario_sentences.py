"""Writes sentences about what-if cases: rules, demand and small loads.

A sentence states a cost as a bound if a cheaper fleet was not ruled out.
"""

from collections.abc import Iterator
from math import ceil
from typing import Final

from penstock.planning.optimizer.problem import NODE
from penstock.planning.plan_result import Answer, PlanResult
from penstock.planning.uncertainty.api_break_even import ApiBreakEven
from penstock.planning.uncertainty.scenarios import DemandScenario, RulePrice
from penstock.report.plan.plan_amounts import usd
from penstock.report.plan.sentences import label_name

_SMALL_DEVICES: Final = 16
_ROUNDING: Final = 1e-6


def scenario_sentence(scenario: DemandScenario) -> str:
    """State the fleet and its cost for one demand scenario."""
    fleet = " + ".join(f"{devices} {part}" for part, devices in scenario.accelerators.items())
    return f"{scenario.name}: {scenario_usd(scenario)}" + (f" ({fleet})" if fleet else "")


def scenario_usd(scenario: DemandScenario) -> str:
    """Return the cost of a scenario in dollars. The cost is an upper bound if a cheaper fleet was not ruled out."""
    if scenario.usd is None:
        return "no fleet meets every rule"
    return usd(scenario.usd) if scenario.proven else f"at most {usd(scenario.usd)}"


def rule_usd(rule: RulePrice) -> str:
    """Return the cost of a rule in dollars.

    The cost is a lower bound if a cheaper fleet without the rule was not ruled out.
    """
    return usd(rule.usd) if rule.proven else f"at least {usd(rule.usd)}"


def missing_sentences(answer: Answer) -> Iterator[str]:
    """Say why a vendor has no fleet of its own: the rules in the way, and by how much."""
    for vendor, reasons in answer.missing.items():
        yield f"No {label_name(vendor)} fleet keeps every rule: {'; '.join(reasons)}."


def saving_sentence(answer: Answer) -> str:
    """State the smallest decrease of demand that saves nodes; empty if a quarter less demand saves none."""
    saving = answer.saving
    return (
        ""
        if saving is None
        else f"About {saving.less_fraction:.0%} less demand saves {usd(saving.usd)} on these accelerators."
    )


def api_sentences(result: PlanResult, answer: Answer) -> Iterator[str]:
    """Compare the cost of each workload with an API, at the plan's or the catalog's price."""
    for workload, cost in zip(result.plan.workloads, answer.winner.cost.workloads, strict=True):
        api = workload.api
        if api is None:
            yield f"{workload.name}: no API price of {workload.model} is recorded; state `api:` to compare."
            continue
        tokens = api.tokens_usd(cost.input_tokens, cost.output_tokens)
        priced = f"${api.input_usd_per_mtok:,g} in and ${api.output_usd_per_mtok:,g} out per million tokens"
        source = f" ({api.source})" if api.source else ""
        even = f"; {_even_text(answer.api_break_even)}" if answer.api_break_even is not None else ""
        yield (
            f"{workload.name}: its tokens cost {usd(tokens)} in today's money on an API at {priced}{source}, and "
            f"{usd(cost.usd)} on this fleet{even}."
        )


def _even_text(even: ApiBreakEven) -> str:
    """State the load up to which the API costs less, with a fleet that is resized to each load."""
    if even.load_factor == 0:
        return "a fleet costs less at every load compared, the smallest of them 1% of this load"
    if even.load_factor == even.compared_factor:
        return f"the API costs less up to {_times(even.compared_factor)} times this load, the largest compared"
    return f"the API costs less up to {_times(even.load_factor)} times this load, and a resized fleet costs less above"


def _times(factor: float) -> str:
    """Format a factor with two digits."""
    return f"{factor:,.0f}" if factor >= 10 else f"{factor:.2g}"


def small_fleet(result: PlanResult, answer: Answer) -> str:
    """Return a warning if a fleet has up to 16 devices and at most half of them are busy.

    Otherwise return an empty text.
    """
    mix, problem = answer.winner.mix, result.problem
    devices = {entry.id: entry.devices for entry in problem.replicas}
    most, needed = 0, 0
    for period in range(problem.periods):
        pools = [pool for pool in mix.pools if pool.period == period]
        held = sum(pool.nodes * pool.offer.devices for pool in pools)
        busy = sum(
            ceil(problem.busy_share(pool, name) * count - _ROUNDING) * devices[name]
            for pool in pools
            for name, count in pool.replicas.items()
        )
        most, needed = max((most, needed), (held, busy))
    if not most or most > _SMALL_DEVICES or needed > most / 2:
        return ""
    idle = f"The load needs {needed} of these {most} devices; the others are spares or unused devices."
    smaller = any(offer.unit != NODE and offer.kept is None for offer in problem.offers)
    return idle if smaller else f"{idle} Ask also for instances with fewer devices; state them under `instances:`."


def idle_models(result: PlanResult, answer: Answer) -> str:
    """Return what several models that leave their devices idle cost on shared devices. Otherwise return no text."""
    found = result.sharing
    if found is None:
        return ""
    said = f"{len(result.plan.workloads)} models leave these devices idle for {found.idle_fraction:.0%} of the time. "
    if found.accelerator is None or found.rented_devices is None or found.rent_usd is None:
        return f"{said}`penstock plan FILE --share` places the models on shared devices."
    devices = f"{found.rented_devices} shared {found.accelerator} (spares included)"
    amounts = f"{usd(found.rent_usd)} of rent instead of {usd(answer.winner.mix.cost_usd)}"
    return f"{said}On {devices} they would cost {amounts}; `penstock plan FILE --share` compares accelerators."
