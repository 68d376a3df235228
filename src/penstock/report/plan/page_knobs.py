"""Builds the interactive inputs of the HTML report.

Bills are formulas, which the browser evaluates when an input changes.
"""

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from math import floor
from typing import Final

from penstock.economics.bill_line import Item, Line
from penstock.planning.optimizer.problem import Mix
from penstock.planning.plan_result import Answer, Bill, PlanResult
from penstock.planning.uncertainty.rebill import LOADS, Rebilled, Unit, rebill_fleets
from penstock.report.drawing.html_template import as_html, template_text
from penstock.report.drawing.label_colours import LABEL_COLOURS
from penstock.report.plan.plan_charts import ACCELERATOR_COLOURS
from penstock.report.plan.sentences import label_name, product_names
from penstock.units import count_text

SCRIPT: Final = template_text("plan.js")
"""The only script of the page. The content security policy allows no other script."""
_DIGITS: Final = 12
_WIDEST: Final = 2.0
_ENGINEERS: Final = 6.0
_BY_SIZE: Final = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PageKnob:
    """One adjustable input of the page."""

    id: str
    group: str
    name: str
    value: float
    minimum: float
    maximum: float
    step: float
    unit: str
    before: str = ""
    one: str = ""
    """Singular form of the unit. The text is empty if the singular is equal to the plural."""
    stops: tuple[float, ...] = ()
    """Allowed values of the input. The list is empty if the input is continuous."""

    @property
    def position(self) -> float:
        """Return the position of the slider.

        The position is the index of the value in `stops`, or the value itself if there are no stops.
        """
        return self.stops.index(self.value) if self.stops else self.value


def script_hash() -> str:
    """Return the SHA-256 hash of the script in Base64, for the content security policy."""
    return b64encode(sha256(SCRIPT.encode()).digest()).decode()


def fleets_of(answer: Answer) -> list[Bill]:
    """Return all fleets that the report shows, without duplicates. The winner comes first."""
    found: dict[tuple[object, ...], Bill] = {}
    for bill in (answer.winner, *answer.by_label.values(), *answer.runners_up):
        found.setdefault(bill.mix.identity, bill)
    return list(found.values())


def knobs_section(result: PlanResult, answer: Answer) -> dict[str, object]:
    """Collect the inputs of the page, and the data from which the page's script computes every bill."""
    bills = fleets_of(answer)
    bill = rebill_fleets([entry.mix for entry in bills], result.resolved, result.problem)
    knobs = page_knobs(result, bill)
    groups = {knob.group: [entry for entry in knobs if entry.group == knob.group] for knob in knobs}
    document = _document(result, answer, bills, bill, knobs)
    # `</script>` inside a name would end the data, so `<` is written as \u003c. JSON parses it to the same text.
    data = json.dumps(document, separators=(",", ":")).replace("<", "\\u003c")
    return {"groups": list(groups.items()), "data": as_html(data), "script": as_html(SCRIPT)}


def page_knobs(result: PlanResult, bill: Rebilled) -> list[PageKnob]:
    """List the adjustable inputs: people, prices, power, load and term. Inputs that no fleet pays for are left out."""
    return [*_people(result, bill), *_prices(result, bill), *_power(result, bill), *_stops(result, bill)]


def _people(result: PlanResult, bill: Rebilled) -> Iterator[PageKnob]:
    for vendor in dict.fromkeys(unit.vendor for unit in bill.bills if unit.way == "people"):
        extra = result.resolved.stack_of(vendor).engineers
        most = max(_ENGINEERS, extra.high, _WIDEST * extra.value)
        by_size = result.resolved.stack_of(vendor).engineers_per_1000_devices
        if by_size.value or by_size.uncertain:
            yield PageKnob(
                id=f"engineers_by_size.{vendor}",
                group="People",
                name=f"extra {label_name(vendor)} engineers per 1,000 devices",
                value=by_size.value,
                minimum=0.0,
                maximum=max(by_size.high, _BY_SIZE, _WIDEST * by_size.value),
                step=0.5,
                unit="engineers",
            )
        yield PageKnob(
            id=f"engineers.{vendor}",
            group="People",
            name=f"extra {label_name(vendor)} engineers",
            value=extra.value,
            minimum=0.0,
            maximum=most,
            step=0.05,
            unit="engineers",
        )
    pay = result.plan.money.engineer_usd_per_year.value
    yield _dollars("engineer_usd", "People", "an engineer", pay, "a year")


def _dollars(ident: str, group: str, name: str, value: float, unit: str) -> PageKnob:
    """Create an adjustable input for dollars, from about half to twice the planned amount.

    The slider can be set exactly to the planned value.
    """
    step = float(f"{value / 200 or 0.01:.1g}")
    return PageKnob(
        id=ident,
        group=group,
        name=name,
        value=value,
        minimum=value - floor(value / _WIDEST / step) * step,
        maximum=value * _WIDEST or 1.0,
        step=step,
        unit=unit,
        before="$",
    )


def _prices(result: PlanResult, bill: Rebilled) -> Iterator[PageKnob]:
    names = product_names(result)
    ways = dict.fromkeys((unit.accelerator, unit.way, unit.number) for unit in bill.bills if unit.way != "people")
    for part in result.plan.accelerators:
        name = names[part.id]
        held = {way for ident, way, _ in ways if ident == part.id}
        if part.buy is not None and held & {"bought", "kept"}:
            yield _dollars(f"price.{part.id}", "Prices", f"{name}, to buy", part.buy.value, "a device")
        if part.rent is not None and "hour" in held:
            yield _dollars(f"rent.{part.id}", "Prices", f"{name}, by the hour", part.rent.value, "a device-hour")
        for number, contract in enumerate(part.contracts):
            if (part.id, "contract", number) in ways:
                called = f"{name}, for {count_text(contract.months, 'month')}"
                ident = f"contract.{part.id}.{number}"
                yield _dollars(ident, "Prices", called, contract.rent.value, "a device-hour")


def _power(result: PlanResult, bill: Rebilled) -> Iterator[PageKnob]:
    ours = {unit.site for unit in bill.bills if unit.way in {"bought", "kept"}}
    for site in result.plan.sites:
        if site.name in ours:
            at = f" at {site.name}" if len(result.plan.sites) > 1 else ""
            yield _dollars(f"kwh.{site.name}", "Power", f"electricity{at}", site.usd_per_kwh.value, "a kWh")
            hosting = site.hosting_usd_per_kw_month.value
            yield _dollars(f"hosting.{site.name}", "Power", f"space and power{at}", hosting, "per kW and month")
            yield PageKnob(
                id=f"pue.{site.name}",
                group="Power",
                name=f"facility power over the power of the nodes{at}",
                value=site.pue.value,
                minimum=1.0,
                maximum=_WIDEST,
                step=0.01,
                unit="",
            )


def _stops(result: PlanResult, bill: Rebilled) -> Iterator[PageKnob]:
    years = tuple(next(iter(bill.bills.values())))
    yield _discrete_knob("load", "Load", "requests", 1.0, LOADS, "x planned")
    if len(years) > 1:
        yield _discrete_knob("term", "Term", "years", result.plan.horizon_years, years, "years", one="year")


def _discrete_knob(
    ident: str, group: str, name: str, value: float, stops: tuple[float, ...], unit: str, *, one: str = ""
) -> PageKnob:
    """Create an adjustable input with a few discrete values.

    The bill for each of these values is computed in advance.
    """
    last = len(stops) - 1.0
    return PageKnob(
        id=ident,
        group=group,
        name=name,
        value=value,
        minimum=0.0,
        maximum=last,
        step=1.0,
        unit=unit,
        one=one,
        stops=stops,
    )


def _document(
    result: PlanResult, answer: Answer, bills: list[Bill], bill: Rebilled, knobs: list[PageKnob]
) -> dict[str, object]:
    formulas: dict[str, int] = {}
    units = list(bill.bills)
    place = {unit: number for number, unit in enumerate(units)}
    known = {knob.id for knob in knobs}
    names = product_names(result)
    colours = _colours(answer, [entry.mix for entry in bills])
    return {
        "knobs": [
            {"id": k.id, "value": k.value, "stops": list(k.stops), "unit": k.unit, "one": k.one, "before": k.before}
            for k in knobs
        ],
        "fleets": [
            {
                "name": " + ".join(names[part] for part in sorted(entry.mix.support)),
                "colour": colours[number],
                "planned": entry.cost.total_usd,
                "counts": [
                    None if counts is None else [[place[unit], count] for unit, count in counts.items()]
                    for counts in bill.fleets[number]
                ],
            }
            for number, entry in enumerate(bills)
        ],
        "units": [_unit(unit, bill.bills[unit], formulas, known) for unit in units],
        "formulas": list(formulas),
    }


def _colours(answer: Answer, mixes: list[Mix]) -> list[str]:
    """Choose a distinct colour for each fleet. The first fleet of a vendor gets the colour of the vendor."""
    spare = iter(ACCELERATOR_COLOURS * len(mixes))
    taken: set[str] = set()
    found = []
    for mix in mixes:
        colour = LABEL_COLOURS.get(answer.family.label(mix), "")
        while not colour or colour in taken:
            colour = next(spare)
        taken.add(colour)
        found.append(colour)
    return found


def _unit(
    unit: Unit, by_years: Mapping[float, tuple[Line, ...]], formulas: dict[str, int], known: set[str]
) -> list[list[object]]:
    """Return the bill of one unit, for each horizon.

    A unit is a node acquired in one way, or the engineers of a vendor. Each line of a bill has a formula, the inputs of
    the formula, and the page's adjustable inputs (knobs) that set them.
    """
    return [
        [_line(unit, line, formulas, known) for line in lines if line.usd or _follows(unit, line)]
        for lines in by_years.values()
    ]


def _line(unit: Unit, line: Line, formulas: dict[str, int], known: set[str]) -> list[object]:
    number = formulas.setdefault(line.formula, len(formulas))
    inputs = {name: float(f"{value:.{_DIGITS}g}") for name, value in line.inputs.items()}
    follows = {name: knob for name, knob in _follows(unit, line).items() if knob in known}
    return [number, inputs, follows]


def _follows(unit: Unit, line: Line) -> dict[str, str]:
    """Map the inputs of a bill line to the page's adjustable inputs (knobs) that set them."""
    if line.item in {Item.POWER, Item.COOLING}:
        return {"usd_per_kwh": f"kwh.{unit.site}", "pue": f"pue.{unit.site}"}
    if line.item is Item.HOSTING:
        return {"usd_per_kw_month": f"hosting.{unit.site}"}
    if line.item in {Item.SILICON, Item.FAILURES}:
        return {"device_usd": f"price.{unit.accelerator}"}
    if line.item is Item.SOFTWARE:
        by_size = f"engineers_by_size.{unit.vendor}"
        every = {"engineers": f"engineers.{unit.vendor}", "engineers_per_1000": by_size, "usd_per_year": "engineer_usd"}
        return {name: knob for name, knob in every.items() if name in line.inputs}
    if line.item is Item.RENT:
        named = f"rent.{unit.accelerator}" if unit.way == "hour" else f"contract.{unit.accelerator}.{unit.number}"
        return {"usd_per_device_hour": named}
    return {}
