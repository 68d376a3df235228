"""Renders a plan for the terminal: verdict, fleet, alternatives, and the inputs that would change the answer."""

from collections.abc import Callable, Iterator
from functools import partial

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from penstock.economics.bill_line import Item
from penstock.planning.optimizer.problem import DEVICE, Mix, PoolPeriod
from penstock.planning.plan_result import Answer, Bill, NoFleet, PlanResult
from penstock.planning.saving_claim import ClaimCheck
from penstock.report.drawing.bars import Use, legend, stacked_bar
from penstock.report.plan.acquisition_plan import order_sentences
from penstock.report.plan.cash_sentences import money_with_site, with_site
from penstock.report.plan.confidence_sentences import enough_sentence
from penstock.report.plan.default_sentences import default_sentence, size_sentence
from penstock.report.plan.demand_sentences import question, user_sentences
from penstock.report.plan.engine_sentences import engine_sentences, launch_sentences
from penstock.report.plan.flips import flip_sentence, flips_by_input, within_range
from penstock.report.plan.plan_amounts import per_mtok, spread, usd
from penstock.report.plan.price_sentences import price_sentences
from penstock.report.plan.scenario_sentences import (
    api_sentences,
    idle_models,
    missing_sentences,
    rule_usd,
    saving_sentence,
    scenario_sentence,
    small_fleet,
)
from penstock.report.plan.sentences import (
    NO_FLEET,
    cheaper_fleet_sentence,
    check_text,
    disaggregated_sentences,
    fleet_name,
    headline,
    label_name,
    likelier,
    load_note,
    mix_sentence,
    near_sentence,
    nodes_by_acquisition,
    not_compared_sentence,
    owned_sentences,
    runs,
    served_requests,
    small_share_sentence,
    steps_text,
    sureness,
    swing_name,
    unit_name,
    unit_word,
)

USES = {
    Item.SILICON: Use("silicon", "█", "cyan"),
    Item.RENT: Use("rent", "█", "cyan"),
    Item.HOST: Use("host", "▓", "blue"),
    Item.NETWORK: Use("network", "▓", "blue"),
    Item.POWER: Use("power, cooling, hosting", "▒", "yellow"),
    Item.COOLING: Use("power, cooling, hosting", "▒", "yellow"),
    Item.HOSTING: Use("power, cooling, hosting", "▒", "yellow"),
    Item.KEPT: Use("resale given up", "▁", "magenta"),
    Item.LICENCES: Use("support, failures", "░", "green"),
    Item.SUPPORT: Use("support, failures", "░", "green"),
    Item.FAILURES: Use("support, failures", "░", "green"),
    Item.SPARES: Use("spares", "·", "bright_black"),
    Item.SOFTWARE: Use("software engineers", "▚", "red"),
}
_STYLES = {"sure": "bold green", "likely": "bold", "alone": "bold", "open": "bold yellow", "unmet": "bold red"}
"""Text style for each level of confidence. Only "sure" is green."""
_FLIPS_SHOWN = 5
_OTHERS_SHOWN = 3
_LEFT_OUT_SHOWN = 3


def render_plan(result: PlanResult, width: int) -> RenderableType:
    """Draw the whole answer."""
    pieces: list[RenderableType] = [Text(result.plan.name, style="bold"), Text(question(result), style="dim"), Text()]
    if isinstance(result.answer, NoFleet):
        pieces.append(Text(NO_FLEET, style="bold red"))
        pieces += [_indent(reason) for reason in result.answer.reasons]
    else:
        pieces += _answer(result, result.answer, width)
    pieces += [_claim(check) for check in result.claims]
    pieces.append(_grounds(result))
    return Group(*pieces)


def _answer(result: PlanResult, answer: Answer, width: int) -> Iterator[RenderableType]:
    yield Text(" ".join(order_sentences(result, answer)), style="bold")
    yield Text(headline(answer), style=_STYLES[sureness(answer)])
    yield from (_indent(f"API: {sentence}") for sentence in api_sentences(result, answer))
    if size := size_sentence(answer):
        yield _indent(size, "yellow")
    if answer.verdict.of_fleets == "too close to call":
        yield from (_indent(f"To settle it: {what}") for what in answer.verdict.measure[:2])
    if near := near_sentence(answer):
        yield _indent(near, "yellow")
    if small := small_share_sentence(result, answer):
        yield _indent(f"{small}.", "yellow")
    yield from (_indent(sentence, "yellow") for sentence in launch_sentences(answer))
    if unpriced := not_compared_sentence(result):
        yield _indent(unpriced, "yellow")
    yield from (_indent(sentence, "yellow") for sentence in missing_sentences(answer))
    yield from (_indent(sentence, "dim") for sentence in price_sentences(result, answer))
    yield from (_indent(sentence, "dim") for sentence in engine_sentences(result, answer))
    yield _indent(f"Defaults, to be stated if they are wrong: {default_sentence(result.resolved)}.", "dim")
    yield Text()
    yield _fleet(answer.winner.mix, result)
    yield from (
        Text(f"units  {sentence}") for sentence in disaggregated_sentences(answer.winner.mix, result.candidates)
    )
    yield from _likelier(result, answer)
    yield from (Text(f"users  {sentence}") for sentence in user_sentences(result))
    if enough := enough_sentence(answer, unit=unit_word(answer.winner.mix)):
        yield Text(f"enough {enough}")
    yield from (Text(f"{head:<6} {sentence}") for head, sentence in money_with_site(answer.winner.cash, result.plan))
    for hint in filter(None, (small_fleet(result, answer), idle_models(result, answer))):
        yield Text(f"note   {hint}", style="yellow")
    if saving := saving_sentence(answer):
        yield Text(f"less   {saving}")
    if answer.owned is not None:
        yield from (Text(f"owned  {sentence}") for sentence in owned_sentences(answer.owned))
    yield Text()
    yield _comparison(answer, width)
    yield legend(_uses(answer))
    yield Text()
    yield _changes(answer)
    yield from _rules(answer)
    yield from _verification(answer, result)


def _likelier(result: PlanResult, answer: Answer) -> Iterator[RenderableType]:
    """Draw the fleet that is cheapest in more draws than the winner, if there is one.

    The winner is the fleet that is cheapest with every input at its estimate.
    """
    label = likelier(answer)
    bill = None if label is None else answer.by_label.get(label)
    if label is not None and bill is not None:
        yield Text(f"More likely to be cheapest: {label_name(label)} at {usd(bill.cost.total_usd)}", style="yellow")
        yield _fleet(bill.mix, result)
        yield Text(f"Cheapest with every input at its estimate: {label_name(answer.verdict.winner)}", style="yellow")


def _fleet(mix: Mix, result: PlanResult) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    single = unit_word(mix) == DEVICE
    table.add_column("accelerator", no_wrap=True)
    for name in (f"{unit_word(mix)}s", *(() if single else ("devices",))):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("runs")
    table.add_column("serves")
    rows: dict[tuple[str, ...], list[int]] = {}
    for pool in sorted(mix.pools, key=lambda entry: (entry.period, entry.offer.key)):
        what = (
            _nodes(pool),
            *(() if single else (str(pool.nodes * pool.offer.devices),)),
            runs(pool, result.candidates),
            served_requests(pool, result.plan.workloads),
        )
        where = with_site(unit_name(pool.offer), pool.offer.site, result.plan)
        rows.setdefault((where, *what), []).append(pool.period)
    several = len({pool.period for pool in mix.pools}) > 1
    for (where, *what_runs), periods in rows.items():
        table.add_row(Text(f"{where} ({steps_text(periods)})" if several else where), *what_runs)
    return table


def _nodes(pool: PoolPeriod) -> str:
    return " + ".join(f"{count} {how}" for how, count in nodes_by_acquisition(pool) if count)


def _comparison(answer: Answer, width: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("\nfleet", no_wrap=True)
    rows = _rows(answer)
    prices = _token_prices(answer.winner)
    for name in ("\nall in", *(heading for heading, _ in prices), "\nidle"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("\ncost by item")
    most = max(bill.cost.total_usd for _, bill in rows)
    room = max(16, min(width, 132) - 74)
    for name, bill in rows:
        table.add_row(
            name,
            usd(bill.cost.total_usd),
            *(per_mtok(price_of(bill)) for _, price_of in prices),
            f"{1 - bill.cost.busy_fraction:.0%}",
            _bar(bill, most, room),
        )
    return table


def _token_prices(bill: Bill) -> list[tuple[str, Callable[[Bill], float | None]]]:
    """Return the columns with dollars per million tokens: input and output of one workload, or output of each."""

    def output_price(priced: Bill, number: int) -> float | None:
        return priced.cost.workloads[number].price.output_usd_per_mtok

    names = [entry.workload for entry in bill.cost.workloads]
    if len(names) == 1:
        prompts = ("$/Mtok\nin", lambda priced: priced.cost.workloads[0].price.input_usd_per_mtok)
        return [prompts, ("$/Mtok\nout", partial(output_price, number=0))]
    return [(f"$/Mtok out\n{name}", partial(output_price, number=number)) for number, name in enumerate(names)]


def _uses(answer: Answer) -> list[Use]:
    """Return the cost items that the cost bars show, each with its drawing style. Each label occurs once."""
    paid = {step.item for _, bill in _rows(answer) for step in bill.cost.waterfall.steps}
    named = {use.label: use for item, use in USES.items() if item in paid}
    both = {"silicon", "rent"} <= named.keys()
    return [use for label, use in named.items() if not (both and label == "rent")]


def _rows(answer: Answer) -> list[tuple[str, Bill]]:
    """Return the winner, the best fleets of other kinds, and the first runner-up, without duplicates."""
    rows = [(fleet_name(answer.winner.mix), answer.winner)]
    others = [bill for label, bill in answer.by_label.items() if label != answer.verdict.winner][:_OTHERS_SHOWN]
    for bill in sorted((*others, *answer.runners_up[:1]), key=lambda entry: entry.cost.total_usd):
        name = fleet_name(bill.mix)
        if name not in [seen for seen, _ in rows]:
            rows.append((name, bill))
    return rows


def _bar(bill: Bill, most: float, room: int) -> Text:
    shares: dict[Use, float] = {}
    for step in bill.cost.waterfall.steps:
        shares[USES[step.item]] = shares.get(USES[step.item], 0.0) + step.usd
    whole = bill.cost.total_usd
    return stacked_bar(list(shares.items()), full=whole, width=max(1, round(room * whole / most)))


def _changes(answer: Answer) -> RenderableType:
    found = flips_by_input(answer.flips)[:_FLIPS_SHOWN]
    lines: list[RenderableType] = [Text("What would change the answer", style="bold")]
    lines += [_indent(flip_sentence(*ends), "yellow" if within_range(ends) else "") for ends in found]
    if not found:
        alone = answer.verdict.of_fleets != "only choice" and not answer.verdict.others_usd
        nothing = "no other fleet meets demand, so no single input changes the answer"
        lines.append(_indent(nothing if alone else "no single input, varied from 0.1 to 10 times its value"))
    if answer.verdict.others_usd:
        lines.append(_indent(_widest(answer), "dim"))
    return Group(*lines)


def _indent(text: str, style: str = "") -> Padding:
    return Padding(Text(text, style=style), (0, 0, 0, 2))


def _rules(answer: Answer) -> Iterator[Text]:
    """State the cost of each rule, and the cost of the fleet at both ends of the demand range."""
    for whose, usual in (("your rules", False), ("the defaults", True)):
        prices = [f"{rule.rule} {rule_usd(rule)}" for rule in answer.rules if rule.usual is usual]
        if prices:
            yield Text(f"Cost of {whose}: {', '.join(prices)}")
    if answer.scenarios:
        yield Text("If demand is " + "; ".join(scenario_sentence(scenario) for scenario in answer.scenarios))


def _widest(answer: Answer) -> str:
    widest = [
        f"{usd(swing.width_usd)} from {swing_name(swing)} ({spread(swing.low, swing.high, swing.unit)})"
        for swing in answer.swings[:2]
    ]
    return f"Largest effects on the saving: {', '.join(widest)}" if widest else ""


def _verification(answer: Answer, result: PlanResult) -> Iterator[Text]:
    if not answer.verified:
        yield Text("Not checked by simulation: whether the fleet meets its SLO is an estimate.", style="dim")
        return
    first = answer.verified[0]
    verdict = "Checked by simulation" if first.met else "Misses its SLO in simulation"
    in_time = ", ".join(check_text(check) for check in first.checks)
    more = f", after adding {usd(first.added_usd)}" if first.added_usd > 0 else ""
    cheaper = cheaper_fleet_sentence(answer)
    text = f"{verdict}: {in_time}{more}" + (f"; {cheaper}." if cheaper else ".")
    yield Text(text, style="" if first.met else "bold red")
    yield Text(load_note(result), style="dim")


def _explains_mix(result: PlanResult, answer: Answer) -> bool:
    """Return whether the plan required a mix of vendors, or compared a mix with a winner of another kind."""
    return "mix" in answer.by_label and (answer.verdict.winner != "mix" or result.problem.min_vendors > 1)


def _claim(check: ClaimCheck) -> RenderableType:
    lines: list[RenderableType] = [Text(f"Claim checked: {check.claim.title}", style="bold")]
    lines += [_indent(sentence) for sentence in check.verdicts]
    return Group(*lines)


def _grounds(result: PlanResult) -> Text:
    text = Text(style="dim")
    text.append(f"{result.considered} deployments fit, the best {len(result.candidates)} were compared. ")
    text.append(f"{result.capacity_note}\n")
    named = isinstance(result.answer, Answer) and {*result.resolved.unmeasured, *result.resolved.unpriced}
    left_out = [entry for entry in result.left_out if not named or entry.what not in named]
    if left_out:
        shown = "; ".join(f"{entry.what}: {entry.why}" for entry in left_out[:_LEFT_OUT_SHOWN])
        more = len(left_out) - _LEFT_OUT_SHOWN
        text.append(f"Left out: {shown}" + (f"; and {more} more (--json)" if more > 0 else "") + "\n")
    if isinstance(result.answer, Answer) and _explains_mix(result, result.answer):
        text.append(f"{mix_sentence(result, result.answer)}.\n")
    ours = sum(not entry.input.given for entry in result.assumptions)
    text.append(
        f"{ours} of {len(result.assumptions)} inputs are defaults; --html and --json list each with its source."
    )
    return text
