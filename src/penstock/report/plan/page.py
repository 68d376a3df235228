"""How is a plan read by those who pay and those who run it? One self-contained page, for a screen, a phone or paper."""

from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files
from string import Template

from penstock import __version__
from penstock.planning.make import Answer, Bill, NoFleet, PlanResult
from penstock.report.plan.charts import (
    compared,
    cost_bars,
    figure,
    span_bars,
    tornado_bars,
    unique_ids,
    waterfall_bars,
)
from penstock.report.plan.tables import (
    assumptions_table,
    bill_table,
    capacity_table,
    cash_table,
    claim_section,
    fleet_table,
    left_out_table,
    rules_table,
    token_table,
    verification_section,
)
from penstock.report.plan.words import (
    fleet_name,
    flip_sentence,
    headline,
    label_name,
    per_mtok,
    question,
    swing_name,
    unpriced_sentence,
    usd,
)

_TEMPLATES = files("penstock.report") / "templates"
_WATCHED = 10

METHOD = (
    """Every accelerator of the plan is tried with every split that fits a node and every weight format asked for; what
    the memory model says does not fit is not considered. Capacity is the rate of requests one replica sustains within
    the SLO, per length bucket.""",
    """An integer program (HiGHS) chooses whole nodes, whole replicas and the share of each length bucket every pool
    serves, at the least present value of everything on the bill, under the plan's rules: spare nodes, power caps,
    vendors, delivery dates. The same program answers each vendor alone, a mix, and each accelerator alone.""",
    """Dollars are discounted to the start. Hardware is bought when it is needed, kept to the end of the plan and
    credited at its book value then. Power follows mean load between idle and the node's maximum; cooling is power times
    PUE less one. Rent includes host, power and cooling.""",
    """Input tokens pay for the share of busy device time that prompts take, output tokens for the rest; idle time,
    spares and people are spread like busy time. Token prices are levelised: discounted dollars over discounted
    tokens.""",
    """Confidence draws each accelerator's throughput from its P10 to P90 and each price from its range, independently,
    and resizes every competing fleet in every draw. Resizing keeps a fleet's assignment of lengths to pools, so its
    cost can only be overestimated; flip points are found the same way and located to half a percent.""",
)
CAVEATS = (
    "Throughput depends on the software of the day: measurements on the same chip moved by 15 to 30% in a year.",
    "Buckets stand for all requests of about their length; what a replica serves is added up linearly over buckets.",
    "List prices and rents are what somebody published on a day; a contract is what you sign.",
    "Errors of different accelerators are drawn as independent; shared errors would make the comparison surer.",
)


def plan_html(result: PlanResult) -> str:
    """Write the whole report."""
    plan = result.plan
    body = "\n".join(_body(result))
    page = Template((_TEMPLATES / "plan.html").read_text(encoding="utf-8")).substitute(
        title=escape(plan.name),
        css=(_TEMPLATES / "plan.css").read_text(encoding="utf-8"),
        question=escape(question(result)),
        note=f"<p>{escape(plan.note)}</p>" if plan.note else "",
        body=body,
        version=escape(__version__),
        start=plan.start.isoformat(),
        rate=f"{plan.money.discount_rate.value:.1%}",
    )
    return unique_ids(page)


def _body(result: PlanResult) -> Iterator[str]:
    if isinstance(result.answer, NoFleet):
        yield '<section class="verdict close"><p>No fleet keeps every rule.</p>'
        yield _list(result.answer.reasons) + "</section>"
    else:
        yield from _answer(result, result.answer)
    if result.claims:
        yield _section("A published claim, recomputed", "From its own stated inputs, in every reasonable reading.")
        yield from (claim_section(check) for check in result.claims)
    yield _section("What was assumed", "Every input with its range and source. A default is ours until you replace it.")
    yield assumptions_table(result.assumptions)
    if result.left_out:
        yield _section("What was left out", "Parts and placements that are not in the choice, and why.")
        yield left_out_table(result.left_out)
    yield _section("Method", "")
    yield _list(METHOD)
    yield _section("Caveats", "")
    yield _list((result.capacity_note, *CAVEATS))


def _answer(result: PlanResult, answer: Answer) -> Iterator[str]:
    yield _verdict(result, answer)
    yield _tiles(answer)
    yield _section("The fleet", "What to buy or rent, what runs on it and which requests it takes.")
    yield fleet_table(answer.winner.mix, result)
    yield from verification_section(answer)
    yield from _costs(answer)
    yield from _doubt(answer)
    yield _section(
        "What a replica carries",
        "For those who run it: deployments of these fleets, requests per second within the SLO.",
    )
    yield capacity_table(result, answer)
    yield from rules_table(answer)
    yield _section("Money as it is paid", "Plain dollars when they are due; the bill below is in today's dollars.")
    yield from cash_table(answer.winner.cash)
    yield _section("The bill, line by line", "Each amount is its formula evaluated on its inputs.")
    yield bill_table(answer.winner.cost)


def _verdict(result: PlanResult, answer: Answer) -> str:
    close = answer.verdict.outcome == "too close to call"
    measures = _list([f"To settle it: {what}." for what in answer.verdict.measure]) if close else ""
    unpriced = f'<p class="small">{escape(unpriced_sentence(result))}</p>' if result.resolved.unpriced else ""
    kind = "verdict close" if close else "verdict"
    return f'<section class="{kind}"><p>{escape(headline(answer))}</p>{unpriced}{measures}</section>'


def _tiles(answer: Answer) -> str:
    cost, mix = answer.winner.cost, answer.winner.mix
    last = max(pool.period for pool in mix.pools)
    devices = sum(pool.nodes * pool.offer.devices for pool in mix.pools if pool.period == last)
    kilowatts = sum(pool.nodes * pool.offer.node_watts for pool in mix.pools if pool.period == last) / 1000
    entries = [
        (usd(cost.total_usd), "all in, present value"),
        (usd(cost.waterfall.silicon_usd), "silicon or rent only"),
        (f"{devices:,}", "accelerators at the end"),
        (f"{kilowatts:,.0f} kW", "nodes at their maximum"),
        (f"{1 - cost.busy_fraction:.0%}", f"of it idle: {usd(cost.idle_usd)}"),
    ]
    if len(cost.workloads) == 1:
        price = cost.workloads[0].price
        entries.append(
            (
                f"{per_mtok(price.input_usd_per_mtok)} / {per_mtok(price.output_usd_per_mtok)}",
                "a million tokens in / out",
            )
        )
    return (
        '<div class="tiles">'
        + "".join(f"<div><b>{escape(b)}</b><span>{escape(s)}</span></div>" for b, s in entries)
        + "</div>"
    )


def _costs(answer: Answer) -> Iterator[str]:
    rows = compared(answer)
    yield _section("What it costs", "Present value over the whole plan; the last piece of a bar is the software tax.")
    totals = "; ".join(f"{name} {usd(bill.cost.total_usd)}" for name, bill in rows)
    yield figure("Fleets compared.", f"{totals}.", cost_bars(rows))
    for name, bill in _pair(answer):
        fall = bill.cost.waterfall
        bare, whole, people = usd(fall.silicon_usd), usd(fall.all_in_usd), usd(fall.software_usd)
        note = f"{bare} of silicon or rent become {whole}; engineers are {people}."
        yield figure(f"From silicon to all in: {name}.", note, waterfall_bars(bill))
    yield token_table(rows)


def _pair(answer: Answer) -> list[tuple[str, Bill]]:
    """The winner, and the best fleet of the other vendor: the two bills a reader wants side by side."""
    other = next((bill for label, bill in answer.by_label.items() if label not in {answer.verdict.winner, "mix"}), None)
    pair = [(fleet_name(answer.winner.mix), answer.winner)]
    return pair if other is None else [*pair, (fleet_name(other.mix), other)]


def _doubt(answer: Answer) -> Iterator[str]:
    if not answer.verdict.others_usd:
        return
    confidence = answer.confidence
    yield _section("How sure is it", f"{confidence.draws:,} draws, seed {confidence.seed}.")
    chances = "; ".join(
        f"{label_name(label)} cheapest in {chance:.0%}"
        for label, chance in sorted(confidence.probability.items(), key=lambda entry: -entry[1])
        if chance > 0
    )
    yield figure("Cost of the best fleet of each kind, P10 to P90.", f"{chances}.", span_bars(answer))
    yield _section("What would change the answer", "The list to watch: each value alone, all others as planned.")
    if answer.flips:
        items = [
            f'<li class="{"near" if flip.within_range else ""}">{escape(flip_sentence(flip))}</li>'
            for flip in answer.flips[:_WATCHED]
        ]
        yield f'<ul class="watch">{"".join(items)}</ul>'
    else:
        yield "<p>No single input changes it, from a tenth to ten times its value.</p>"
    if answer.swings:
        widest = answer.swings[0]
        note = (
            f"The widest is {swing_name(widest)}: {usd(widest.width_usd)} from end to end. "
            "Grey bars reach below zero, where the winner loses."
        )
        yield figure("Each input through its range.", note, tornado_bars(answer.swings, answer.verdict.winner))


def _section(title: str, lead: str) -> str:
    return f"<h2>{escape(title)}</h2>" + (f'<p class="lead">{escape(lead)}</p>' if lead else "")


def _list(entries: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(' '.join(entry.split()))}</li>" for entry in entries) + "</ul>"
