"""Writes the sentences and amounts that both the terminal report and the HTML report of a plan show."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, Literal

from penstock.catalog.accelerator import Accelerator
from penstock.planning.candidates.candidate_search import Candidate
from penstock.planning.optimizer.problem import DEVICE, NODE, Mix, Offer, PoolPeriod
from penstock.planning.optimizer.vendor_load import vendor_shares
from penstock.planning.plan_result import Answer, PlanResult
from penstock.planning.spec.plan_types import WorkloadPlan
from penstock.planning.uncertainty.scenarios import Owned
from penstock.planning.uncertainty.sensitivity import Swing
from penstock.planning.verification.serving_fleet import Check
from penstock.report.drawing.attainment import format_attainment
from penstock.report.plan.plan_amounts import engineers, range_text, usd
from penstock.units import count_text

_NAMES = {"amd": "AMD", "nvidia": "NVIDIA", "intel": "Intel", "google": "Google", "mix": "a mix"}
_HALF: Final = 0.5
_ALL = 0.995
"""Minimum share that is shown as 100%."""


def label_name(label: str) -> str:
    """Return the display name of a vendor or of a mix."""
    return _NAMES.get(label, label)


def product_name(accelerator: Accelerator) -> str:
    """Return the vendor's product name without the memory size and the variant."""
    words = accelerator.name.partition(" (")[0].split()
    return " ".join(word for word in words if not (word.endswith("GB") and word[0].isdigit()))


def product_names(result: PlanResult) -> dict[str, str]:
    """Map every accelerator of the plan to its product name."""
    return {ident: product_name(accelerator) for ident, accelerator in result.resolved.accelerators.items()}


def swing_name(swing: Swing) -> str:
    """Return the name of an input that the sensitivity analysis varies.

    Vendors are written with their display names.
    """
    if swing.kind == "engineers":
        return f"extra {label_name(swing.subject)} engineers"
    if swing.kind == "engineers_by_size":
        return f"extra {label_name(swing.subject)} engineers per 1,000 devices"
    return swing.name


def fleet_name(mix: Mix) -> str:
    """Name a fleet by its vendor and accelerators."""
    return f"{label_name(mix.label)}: {' + '.join(sorted(mix.support))}"


def capital(text: str) -> str:
    """Capitalise the display name of a vendor. Accelerator ids are not changed."""
    return text[:1].upper() + text[1:] if text in _NAMES.values() else text


def capital_first(text: str) -> str:
    """Capitalise the first letter."""
    return text[:1].upper() + text[1:]


def headline(answer: Answer) -> str:
    """State the winner, its margin and its probability, and whether the number of engineers decides the comparison."""
    return " ".join(filter(None, (api_verdict(answer), _verdict(answer), people_sentence(answer))))


def api_verdict(answer: Answer) -> str:
    """Say that APIs cost less than the fleet; otherwise return no text."""
    verdict = answer.verdict
    if verdict.outcome != "an API is cheaper" or verdict.api_usd is None:
        return ""
    fleet_usd = answer.winner.cost.total_usd
    times = f"{fleet_usd / verdict.api_usd:,.1f} times as much" if verdict.api_usd else "more"
    return f"An API is cheaper: these tokens cost {usd(verdict.api_usd)} there, and {times} on a fleet. Among fleets:"


def people_sentence(answer: Answer) -> str:
    """State the number of extra engineers below which a vendor's fleet is cheaper.

    The text is empty if the number of engineers does not decide the comparison.
    """
    people = answer.people
    if people is None:
        return ""
    name, vendor = label_name(people.label), label_name(people.vendor)
    few, assumed = engineers(people.break_even_engineers), engineers(people.assumed_engineers)
    assumed = f"{'you assumed' if people.given else 'default'} {assumed}"
    saved = f"Hardware and power: {name} {usd(people.saved_usd)} less"
    return f"{saved}; people: break-even at {few} extra {vendor} engineers ({assumed})."


def _verdict(answer: Answer) -> str:
    """State the winner. If another kind of fleet is cheapest in more draws, the text names that kind first."""
    verdict = answer.verdict
    winner = label_name(verdict.winner)
    cost = f"{usd(answer.winner.cost.total_usd)} all in{drawn_cost(answer)}"
    if verdict.of_fleets == "only choice":
        unserved = _unserved_in(answer)
        return f"{capital(winner)} is the only choice: {cost}" + (f"; {unserved}." if unserved else ".")
    more = [f"{label_name(label)} {usd(more)} more" for label, more in list(verdict.others_usd.items())[:3]]
    others = ", ".join(more) or "no other fleet meets demand"
    if likelier(answer) is not None:
        word = "Probably" if verdict.likeliest_probability > _HALF else "Likelier"
        first = f"{word} {label_name(verdict.likeliest)}: {_cheapest_in(answer)}"
        return f"{first}. With every input at its estimate {winner} is cheapest: {cost}; {others}."
    if verdict.of_fleets == "too close to call":
        return f"Too close to call: {winner} at {cost}, {others}; {winner} is {_cheapest_in(answer)}."
    return f"{capital(winner)} wins: {cost}; {others}; {_cheapest_in(answer)}."


def likelier(answer: Answer) -> str | None:
    """Return the kind of fleet that is cheapest in more draws than the winner, or None if there is no such kind.

    The winner is the cheapest kind with every input at its estimate.
    """
    verdict = answer.verdict
    return verdict.likeliest if verdict.likeliest != verdict.winner else None


def drawn_cost(answer: Answer) -> str:
    """Format the P10-P90 and the median of the cost over the draws."""
    return range_text(answer.verdict.cost_usd, served_cases(answer))


def served_cases(answer: Answer) -> str:
    """Name the cases that the winning fleet serves, if there are others: then its cost has no P90 over all cases."""
    served = answer.confidence.served_fraction
    return "" if served > _ALL else f"the {served:.0%} of cases that this fleet, enlarged if needed, can serve"


def _cheapest_in(answer: Answer) -> str:
    """State the share of Monte Carlo draws in which the likeliest kind of fleet is cheapest.

    If the verdict is too close to call, add the shares of the other kinds of fleet.
    """
    verdict, confidence = answer.verdict, answer.confidence
    first = f"cheapest in {verdict.likeliest_probability:.0%} of {confidence.draws:,} draws"
    unserved = _unserved_in(answer)
    if verdict.of_fleets != "too close to call":
        return ", ".join([first, *([unserved] if unserved else [])])
    rest = sorted(confidence.probability.items(), key=lambda entry: -entry[1])
    said = [
        f"{label_name(label)} in {share:.0%}"
        for label, share in rest
        if label == verdict.winner != verdict.likeliest or (label != verdict.likeliest and share >= 1 - _ALL)
    ]
    said += [unserved] if unserved else []
    return ", ".join([first, *said[:3]])


def _unserved_in(answer: Answer) -> str:
    """State the share of draws in which no compared fleet keeps every rule.

    The text is empty if the share is below 0.5%.
    """
    nothing = unserved_fraction(answer)
    return f"no compared fleet meets demand in {nothing:.0%} of draws" if nothing else ""


def unserved_fraction(answer: Answer) -> float:
    """Return the share of draws in which no compared fleet keeps every rule. Shares below 0.5% are returned as 0."""
    nothing = 1 - sum(answer.confidence.probability.values())
    return nothing if nothing >= 1 - _ALL else 0.0


Sureness = Literal["sure", "likely", "alone", "open", "unmet"]
NO_FLEET: Final = "No fleet meets every rule of the plan."
_SURE: Final = 0.9
"""Minimum probability at which the cheapest fleet is called sure.

A winner with a lower probability is called likely.
"""


def sureness(answer: Answer) -> Sureness:
    """Grade the confidence in the answer.

    The grade is `sure` only if the fleet was simulated and is cheapest in at least 90% of draws.
    """
    verdict = answer.verdict
    if answer.verified and not answer.verified[0].met:
        return "unmet"
    sizes_decide = answer.single_devices is not None and answer.single_devices.winner != verdict.winner
    if verdict.of_fleets == "too close to call" or sizes_decide or (answer.regret_usd or 0.0) > 1:
        return "open"
    if verdict.of_fleets == "only choice":
        return "alone"
    return "sure" if answer.verified and verdict.probability >= _SURE else "likely"


def unit_word(mix: Mix) -> str:
    """Return the word for what a fleet has: nodes if any are owned, otherwise instances; devices if all are single."""
    owned = any(pool.owned_nodes or pool.kept_nodes for pool in mix.pools)
    if owned and all(pool.offer.devices == 1 for pool in mix.pools):
        return "device"
    return "node" if owned else "instance"


def in_time_share(check: Check) -> str:
    """Format the share of requests within the SLO.

    The share is truncated to one decimal, which is left out if it is zero.
    """
    return format_attainment(check.attainment_fraction).replace(".0%", "%")


def check_text(check: Check) -> str:
    """State the share of a workload's requests within the SLO, and the simulated load relative to its peak."""
    load = "" if check.peak_factor is None else f" at {check.peak_factor:.2f} x the peak rate"
    return f"{in_time_share(check)} of {check.workload} requests in time{load}"


def load_note(result: PlanResult) -> str:
    """Say why a fleet is simulated above its peak rate."""
    used, sure = result.problem.utilisation_fraction, result.plan.constraints.confidence
    return f"Simulated above the peak: at most {used:.0%} of capacity is used, and {sure:.0%} of cases are covered."


def cheaper_fleet_sentence(answer: Answer) -> str:
    """State whether a cheaper fleet also passed the simulation.

    The text is empty if no fleet passed or no fleets were compared.
    """
    if answer.regret_usd is None:
        return ""
    cheaper = f"a fleet that costs {usd(answer.regret_usd)} less also passed"
    return "no cheaper fleet passed" if usd(answer.regret_usd) == "$0" else cheaper


def mix_sentence(result: PlanResult, answer: Answer) -> str:
    """Return a sentence that defines a mixed fleet by the minimum share of the load per vendor.

    If a vendor of the shown mix is below this share in some period, return a warning instead.
    """
    return _small_shares(result, answer.by_label["mix"].mix) or (
        f"A mix has two or more vendors, each with at least {result.problem.min_vendor_share:.0%} of the load"
        + (" in every period" if result.problem.periods > 1 else "")
    )


def small_share_sentence(result: PlanResult, answer: Answer) -> str:
    """Say when a vendor of the winning mix carries less than the minimum share of the load; otherwise empty."""
    return _small_shares(result, answer.winner.mix) if len(answer.winner.mix.vendors) > 1 else ""


def _small_shares(result: PlanResult, mix: Mix) -> str:
    """Name the periods in which a vendor of a mix carries less than the minimum share of the load, or nothing."""
    least, found = result.problem.min_vendor_share, list[str]()
    clearly = least - (1 - _ALL) * least
    shares = vendor_shares(result.problem, mix)

    def when(periods: Sequence[int]) -> str:
        return f" in {steps_text(periods)}" if result.problem.periods > 1 else ""

    for vendor in sorted(mix.vendors):
        few = [at for at in range(result.problem.periods) if shares.get((vendor, at), 0.0) < clearly]
        none = [at for at in few if not shares.get((vendor, at), 0.0)]
        rest = [at for at in few if at not in none]
        if none:
            found.append(f"{label_name(vendor)} carries nothing{when(none)}")
        if rest:
            found.append(f"{label_name(vendor)} carries less than {least:.0%} of the load{when(rest)}")
    return f"In the mix shown, {'; '.join(found)}" if found else ""


def steps_text(periods: Sequence[int]) -> str:
    """Name periods by the numbers of the steps of the fleet."""
    if len(periods) > 1 and list(periods) == list(range(periods[0], periods[-1] + 1)):
        return f"steps {periods[0] + 1} to {periods[-1] + 1}"
    return f"step{'s' if len(periods) > 1 else ''} {', '.join(str(period + 1) for period in periods)}"


def near_sentence(answer: Answer) -> str:
    """Return a warning if 1% of an input, or of the cost, changes the choice. Otherwise return an empty text."""
    fleets = [label_name(name) for name in answer.verdict.near if name in answer.by_label]
    inputs = [name for name in answer.verdict.near if name not in answer.by_label]
    reasons = []
    if inputs:
        reasons.append(f"a change of 1% or less makes another fleet cheapest ({', '.join(inputs)})")
    if fleets:
        reasons.append(f"{' and '.join(fleets)} {'costs' if len(fleets) == 1 else 'cost'} at most 1% more")
    return f"Nearly a tie: {'; '.join(reasons)}." if reasons else ""


def plain_label(named: Sequence[str], names: Mapping[str, str]) -> str:
    """Return the name of a kind of fleet: a vendor, a mix or accelerators.

    `names` maps accelerators to product names.
    """
    return " + ".join(names.get(word, label_name(word)) for word in named)


def not_compared_sentence(result: PlanResult) -> str:
    """Name the current accelerators that were not compared, with the reason.

    The text is empty if all current accelerators were compared.
    """
    found = []
    if names := ", ".join(result.resolved.unmeasured):
        found.append(f"Left out, too few measurements: {names}. List one under `accelerators:` to include it.")
    if names := ", ".join(result.resolved.unpriced):
        found.append(f"Left out, no published price: {names}. Add a quote under `accelerators:` to include one.")
    return " ".join(found)


def unit_name(offer: Offer) -> str:
    """Name an offer by its accelerator; an offer of smaller instances or single devices also states its unit."""
    if offer.unit == NODE:
        return offer.accelerator
    return f"{offer.accelerator} devices" if offer.unit == DEVICE else f"{offer.accelerator} {offer.unit}"


def nodes_by_acquisition(pool: PoolPeriod) -> tuple[tuple[str, int], ...]:
    """Return the number of nodes for each way of acquisition: kept, bought, on contract, by the hour."""
    contracts = zip(pool.offer.contracts, pool.contract_nodes, strict=False)
    terms = ((f"for {count_text(contract.months, 'month')}", nodes) for contract, nodes in contracts)
    return (("kept", pool.kept_nodes), ("bought", pool.owned_nodes), *terms, ("by the hour", pool.rented_nodes))


def owned_sentences(owned: Owned, names: Mapping[str, str] | None = None) -> Iterator[str]:
    """Describe which owned nodes the fleet keeps, and the cost of the plan without owned nodes.

    `names` maps ids of accelerators to product names.
    """
    called = names or {}
    for entry in owned.nodes:
        changes = " then ".join(str(count) for count, _ in groupby(entry.kept))
        kept = "all" if min(entry.kept) == entry.nodes else changes
        kept = kept if any(entry.kept) else "none"
        new = f", a new one {usd(entry.new_usd)}" if entry.new_usd is not None else ""
        name = called.get(entry.accelerator, entry.accelerator)
        cost = f"running one to the end, instead of selling it, costs {usd(entry.keeping_usd)}"
        yield f"{kept} of {entry.nodes} {name} {entry.unit}s kept: {cost}{new}"
    if owned.without_usd is not None and owned.saved_usd is not None:
        instead = f"{usd(owned.without_usd)} ({plain_label(owned.without_accelerators, called)})"
        more = f"{usd(owned.saved_usd)} more, with the price for which they sell"
        yield f"if you owned no nodes to use or sell, the plan would cost {instead}: {more}"


def runs(pool: PoolPeriod, candidates: Sequence[Candidate]) -> str:
    """Describe the replicas that run on the nodes of a pool."""
    by_id = {entry.id: entry for entry in candidates}
    several = len({by_id[name].workload for name in pool.replicas}) > 1
    parts = []
    for name, count in pool.replicas.items():
        entry = by_id[name]
        model = f"{entry.workload} " if several else ""
        times = "x" if entry.disaggregated is None else ("unit of" if count == 1 else "units of")
        parts.append(f"{count} {times} {model}{entry.way} {entry.weights} {entry.measured_engine}")
    return ", ".join(parts) or "nothing"


def disaggregated_sentences(mix: Mix, candidates: Sequence[Candidate]) -> Iterator[str]:
    """Describe each disaggregated unit by its prefill and decode replicas, KV transfer bandwidth and evidence."""
    used = {name for pool in mix.pools for name in pool.replicas}
    for entry in candidates:
        unit = entry.disaggregated
        if unit is None or entry.id not in used:
            continue
        ahead, after = unit.prefill.parallelism, unit.decode.parallelism
        tier = next(capacity.tier for capacity in entry.capacities if capacity.meets_slo)
        known = "measured in this combination" if tier == "calibrated" else "not measured in this combination"
        yield (
            f"each unit prefills on {unit.prefill_replicas} x {ahead} and decodes on {unit.decode_replicas} x {after} "
            f"({unit.devices} devices, {known}); each prefill replica sends KV cache at "
            f"{unit.sending_bytes_per_s / 1e9:g} GB/s"
        )


def served_requests(pool: PoolPeriod, workloads: Sequence[WorkloadPlan]) -> str:
    """Describe the requests that a pool serves."""
    shares: dict[tuple[str, int], float] = {}
    for (_, demand), share in pool.load.items():
        shares[demand] = shares.get(demand, 0.0) + share
    parts = []
    for workload in workloads:
        own = {bucket: share for (name, bucket), share in shares.items() if name == workload.name}
        if len(own) == len(workload.shares) and all(share > _ALL for share in own.values()):
            parts.append(f"all of {workload.name}")
            continue
        lengths = [
            f"{workload.shares[bucket].bucket}" + ("" if share > _ALL else f" {share:.0%}")
            for bucket, share in sorted(own.items())
            if share > 1 - _ALL
        ]
        parts += [f"{workload.name} {', '.join(lengths)}"] if lengths else []
    return "; ".join(parts) or "spare"
