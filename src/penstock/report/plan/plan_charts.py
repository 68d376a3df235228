"""Draws the charts of a plan as static SVG without scripts or network access. Each chart has a version for phones."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import isfinite
from typing import Any, Final

from penstock.economics.bill_line import Item
from penstock.errors import MissingExtra
from penstock.planning.optimizer.cash_flow import Cash
from penstock.planning.plan_result import Answer, Bill
from penstock.planning.uncertainty.sensitivity import Swing
from penstock.report.drawing.html_template import as_html
from penstock.report.drawing.label_colours import LABEL_COLOURS
from penstock.report.plan.plan_amounts import axis_unit, spread, usd
from penstock.report.plan.sentences import fleet_name, label_name, plain_label, swing_name

try:
    import altair as alt
    import vl_convert
    from markupsafe import Markup
except ImportError:  # pragma: no cover - the extra is installed in CI
    raise MissingExtra("charts need the report extra: pip install 'penstock[report]'") from None

Drawing = alt.Chart | alt.LayerChart
Draw = Callable[[int], Drawing]
"""Function that draws a chart at the given width in pixels."""
WIDE, NARROW = 700, 330
_FONT: Final = "Helvetica Neue, Helvetica, Arial, sans-serif"
_INK, _FAINT, _RULE = "#1c2733", "#66727f", "#dfe4ea"
ITEM_COLOURS: Final = {
    Item.SILICON: "#17405f",
    Item.RENT: "#7b5ea7",
    Item.HOST: "#3f7cac",
    Item.NETWORK: "#8fb8d9",
    Item.POWER: "#d99a00",
    Item.COOLING: "#f0c75e",
    Item.HOSTING: "#a87900",
    Item.KEPT: "#5b6f80",
    Item.LICENCES: "#5d7350",
    Item.SUPPORT: "#7a8f6a",
    Item.FAILURES: "#a9b99c",
    Item.SPARES: "#b8bfc7",
    Item.SOFTWARE: "#c8401f",
}
ITEM_NAMES: Final = {
    Item.SILICON: "silicon",
    Item.RENT: "rent",
    Item.HOST: "hosts",
    Item.NETWORK: "network",
    Item.POWER: "power",
    Item.COOLING: "cooling",
    Item.HOSTING: "hosting",
    Item.KEPT: "resale given up",
    Item.LICENCES: "licences",
    Item.SUPPORT: "support",
    Item.FAILURES: "failures",
    Item.SPARES: "spares",
    Item.SOFTWARE: "software engineers",
}
ACCELERATOR_COLOURS: Final = ("#17405f", "#c8401f", "#4c8c2b", "#7b5ea7", "#d99a00", "#5b6f80")
_BARS_SHOWN = 8
_VISIBLE = 0.01
"""Minimum width of a drawn bar, as a fraction of the widest bar."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart at two widths, with one caption. The `note` of a chart describes the chart in words."""

    title: str
    note: str
    wide: Markup
    narrow: Markup


def figure(title: str, note: str, draw: Draw) -> Figure:
    """Render a chart at two widths, for a page and for a phone."""
    wide, narrow = (as_html(_svg(draw(width))) for width in (WIDE, NARROW))
    return Figure(title, note, wide, narrow)


def _svg(chart: Drawing) -> str:
    """Convert a chart to SVG with the report's style."""
    configured = (
        chart.configure(font=_FONT, background="transparent")
        .configure_view(stroke=None)
        .configure_axis(
            labelColor=_INK,
            titleColor=_FAINT,
            labelFontSize=12,
            titleFontSize=12,
            domain=False,
            ticks=False,
            grid=False,
        )
        .configure_legend(
            labelColor=_INK, labelFontSize=12, title=None, orient="bottom", columns=4, symbolType="square"
        )
    )
    text: str = vl_convert.vegalite_to_svg(configured.to_dict())
    return text


def _data(rows: Sequence[Mapping[str, object]]) -> alt.Data:
    return alt.Data(values=list(rows))  # type: ignore[no-untyped-call]


def _ticks(width: int) -> alt.Axis:
    return alt.Axis(tickCount=8 if width >= WIDE else 4)


def unique_ids(html: str) -> str:
    """Make the SVG ids unique within the page.

    The ids are numbered in order, so that equal plans give equal bytes.
    """
    numbers = count()
    pieces = html.split("<svg")
    for index in range(1, len(pieces)):
        number = next(numbers)
        picture, end, after = pieces[index].partition("</svg>")
        pieces[index] = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>s{number}-", picture) + end + after
    return "<svg".join(pieces)


def cost_bars(rows: Sequence[tuple[str, Bill]]) -> Draw:
    """Draw the cost of each fleet as a stacked bar. The cost items are in a fixed order, from silicon to engineers."""
    items = [item for item in Item if any(step.item is item for _, bill in rows for step in bill.cost.waterfall.steps)]
    unit, words = axis_unit(max(bill.cost.total_usd for _, bill in rows))
    data = [
        {"fleet": name, "item": ITEM_NAMES[step.item], "usd": step.usd / unit, "order": items.index(step.item)}
        for name, bill in rows
        for step in bill.cost.waterfall.steps
    ]
    totals: list[dict[str, Any]] = [
        {"fleet": name, "usd": bill.cost.total_usd / unit, "text": usd(bill.cost.total_usd)} for name, bill in rows
    ]
    order = [name for name, _ in rows]
    scale = alt.Scale(domain=[ITEM_NAMES[i] for i in items], range=[ITEM_COLOURS[i] for i in items])
    most = max(entry["usd"] for entry in totals) * 1.18

    def draw(width: int) -> Drawing:
        small = width < WIDE
        y = alt.Y("fleet:N", sort=order, title=None, axis=alt.Axis(labelLimit=width // 3, labelPadding=8))
        bars = (
            alt.Chart(_data(data))
            .mark_bar(height=18 if small else 24)
            .encode(
                y=y,
                x=alt.X(
                    "usd:Q",
                    title=f"{words} in today's money",
                    scale=alt.Scale(domain=[0, most]),
                    axis=_ticks(width),
                ),
                color=alt.Color("item:N", scale=scale, legend=alt.Legend(columns=2 if small else 4)),
                order="order:Q",
            )
        )
        text = (
            alt.Chart(_data(totals))
            .mark_text(align="left", dx=5, color=_INK, fontSize=12, fontWeight="bold")
            .encode(y=y, x="usd:Q", text="text:N")
        )
        chart: Drawing = (bars + text).properties(
            width=width - width // 3 - 20, height=(34 if small else 42) * len(rows)
        )
        return chart

    return draw


def waterfall_bars(bill: Bill) -> Draw:
    """Draw the bill as a waterfall.

    The waterfall starts with the cost of silicon alone and ends with the total cost.
    """
    steps = bill.cost.waterfall.steps
    unit, words = axis_unit(bill.cost.total_usd)
    data: list[dict[str, Any]] = []
    before = 0.0
    for step in steps:
        data.append(
            {
                "name": "silicon only" if step.item is Item.SILICON else ITEM_NAMES[step.item],
                "from": before / unit,
                "to": step.running_usd / unit,
                "text": ("+" if before else "") + usd(step.usd),
                "item": ITEM_NAMES[step.item],
            }
        )
        before = step.running_usd
    data.append({"name": "all in", "from": 0, "to": before / unit, "text": usd(before), "item": "all in"})
    names = [entry["name"] for entry in data]
    domain = [*(ITEM_NAMES[step.item] for step in steps), "all in"]
    colours = [*(ITEM_COLOURS[step.item] for step in steps), _INK]
    most = before / unit * 1.2

    def draw(width: int) -> Drawing:
        y = alt.Y("name:N", sort=names, title=None, axis=alt.Axis(labelPadding=8))
        base = alt.Chart(_data(data))
        bars = base.mark_bar(height=16).encode(
            y=y,
            x=alt.X(
                "from:Q",
                title=f"{words} in today's money",
                scale=alt.Scale(domain=[0, most]),
                axis=_ticks(width),
            ),
            x2="to:Q",
            color=alt.Color("item:N", scale=alt.Scale(domain=domain, range=colours), legend=None),
        )
        text = base.mark_text(align="left", dx=5, color=_INK, fontSize=12).encode(y=y, x="to:Q", text="text:N")
        chart: Drawing = (bars + text).properties(width=width - 150, height=25 * len(data))
        return chart

    return draw


_PAID: Final = (
    ("purchases", "capex_usd", ITEM_COLOURS[Item.SILICON], 1),
    ("rent", "rent_usd", ITEM_COLOURS[Item.RENT], 1),
    ("power, space, upkeep", "running_usd", ITEM_COLOURS[Item.POWER], 1),
    ("people", "people_usd", ITEM_COLOURS[Item.SOFTWARE], 1),
    ("sales", "sales_usd", ITEM_COLOURS[Item.SUPPORT], -1),
)
_MAX_QUARTERS: Final = 16


def cash_bars(cash: Cash) -> Draw:
    """Draw payments by quarter, or by year if there are too many quarters.

    Proceeds of sales are drawn as bars below zero.
    """
    uses = [use for use in _PAID if any(getattr(paid, use[1]) for paid in cash.years)]
    scale = alt.Scale(domain=[use[0] for use in uses], range=[use[2] for use in uses])

    def draw(width: int) -> Drawing:
        small = width < WIDE
        spans = cash.years if small or len(cash.quarters) > _MAX_QUARTERS else cash.quarters
        unit, words = axis_unit(max(paid.total_usd + paid.sales_usd for paid in spans))
        data: list[dict[str, Any]] = [
            {"from": f"{paid.start:%Y-%m}", "use": name, "order": order, "usd": sign * getattr(paid, key) / unit}
            for paid in spans
            for order, (name, key, _, sign) in enumerate(uses)
        ]
        each = "year" if spans is cash.years else "quarter"
        x = alt.X("from:O", title=f"{each} from", axis=alt.Axis(labelAngle=0 if len(spans) <= 4 else -45))
        y = alt.Y("usd:Q", title=f"{words} as paid", axis=alt.Axis(tickCount=4, grid=True, gridColor=_RULE))
        chart: Drawing = (
            alt.Chart(_data(data))
            .mark_bar()
            .encode(x=x, y=y, color=alt.Color("use:N", scale=scale, legend=_legend(small=small)), order="order:Q")
            .properties(width=width - 70, height=180)
        )
        return chart

    return draw


def _legend(*, small: bool) -> alt.Legend:
    return alt.Legend(columns=2 if small else 5, titleFontSize=0)


def fleet_bars(nodes: Sequence[tuple[str, str, int]]) -> Draw:
    """Draw the number of nodes per accelerator over time. `nodes` are tuples (from, accelerator, count)."""
    names = list(dict.fromkeys(name for _, name, _ in nodes))
    data = [{"from": start, "accelerator": name, "nodes": count} for start, name, count in nodes]
    colours = [ACCELERATOR_COLOURS[at % len(ACCELERATOR_COLOURS)] for at in range(len(names))]
    scale = alt.Scale(domain=names, range=colours)

    def draw(width: int) -> Drawing:
        steps = len({start for start, _, _ in nodes})
        x = alt.X("from:O", title="from", axis=alt.Axis(labelAngle=0 if steps <= 6 else -45))
        y = alt.Y("nodes:Q", title="nodes", axis=alt.Axis(tickCount=4, grid=True, gridColor=_RULE))
        colour = alt.Color("accelerator:N", scale=scale, legend=_legend(small=width < WIDE))
        chart: Drawing = (
            alt.Chart(_data(data)).mark_bar().encode(x=x, y=y, color=colour).properties(width=width - 70, height=160)
        )
        return chart

    return draw


def span_bars(answer: Answer, names: Mapping[str, str]) -> Draw:
    """Draw the P10-P90 of the cost of each kind of fleet, and how often each kind is cheapest.

    `names` maps accelerators to product names.
    """
    named = answer.family.named_by
    spans = [(label, span) for label, span in answer.confidence.cost_usd.items() if isfinite(span.high)]
    unit, words = axis_unit(max((span.high for _, span in spans), default=0.0))
    data: list[dict[str, Any]] = [
        {
            "label": plain_label(named[label], names),
            "low": span.low / unit,
            "median": span.median / unit,
            "high": span.high / unit,
            "colour": LABEL_COLOURS.get(label, "#17405f"),
            "text": f"cheapest in {answer.confidence.probability.get(label, 0.0):.0%}",
        }
        for label, span in sorted(spans, key=lambda entry: entry[1].median)[:_BARS_SHOWN]
    ]
    most = max((entry["high"] for entry in data), default=1.0) * 1.25

    def draw(width: int) -> Drawing:
        y = alt.Y(
            "label:N",
            sort=[entry["label"] for entry in data],
            title=None,
            axis=alt.Axis(labelPadding=8, labelLimit=130),
        )
        base = alt.Chart(_data(data))
        bars = base.mark_bar(height=14, opacity=0.85, cornerRadius=3).encode(
            y=y,
            x=alt.X("low:Q", title=f"{words} in today's money", scale=alt.Scale(domain=[0, most]), axis=_ticks(width)),
            x2="high:Q",
            color=alt.Color("colour:N", scale=None),
        )
        ticks = base.mark_tick(color="white", thickness=3, height=14).encode(y=y, x="median:Q")
        text = base.mark_text(align="left", dx=6, color=_INK, fontSize=12).encode(y=y, x="high:Q", text="text:N")
        chart: Drawing = (bars + ticks + text).properties(width=width - 150, height=34 * max(1, len(data)))
        return chart

    return draw


def tornado_bars(swings: Sequence[Swing], winner: str) -> Draw:
    """Draw the winner's saving at both ends of each input's range.

    A negative saving means that another fleet is cheaper.
    """
    finite = [s for s in swings if isfinite(s.saving_at_low_usd) and isfinite(s.saving_at_high_usd)]
    widest = max((swing.width_usd for swing in finite), default=0.0)
    shown = [swing for swing in finite if swing.width_usd >= _VISIBLE * widest][:_BARS_SHOWN]
    unit, words = axis_unit(
        max((max(abs(swing.saving_at_low_usd), abs(swing.saving_at_high_usd)) for swing in shown), default=0.0)
    )
    data: list[dict[str, Any]] = [
        {
            "name": swing_name(swing),
            "from": min(swing.saving_at_low_usd, swing.saving_at_high_usd) / unit,
            "to": max(swing.saving_at_low_usd, swing.saving_at_high_usd) / unit,
            "range": spread(swing.low, swing.high, swing.unit),
            "loses": min(swing.saving_at_low_usd, swing.saving_at_high_usd) < 0,
        }
        for swing in shown
    ]
    low = min((entry["from"] for entry in data), default=0.0)
    high = max((entry["to"] for entry in data), default=1.0)
    room = (high - min(low, 0.0)) * 0.08 or 1.0
    names = [entry["name"] for entry in data]
    own = LABEL_COLOURS.get(winner, "#17405f")

    def draw(width: int) -> Drawing:
        small = width < WIDE
        y = alt.Y("name:N", sort=names, title=None, axis=alt.Axis(labelPadding=8, labelLimit=width // 3))
        base = alt.Chart(_data(data))
        title = f"saving of {label_name(winner)} over the next cheapest, {words}"
        bars = base.mark_bar(height=16).encode(
            y=y,
            x=alt.X("from:Q", title=title, scale=alt.Scale(domain=[min(low, 0.0) - room, max(high, 0.0) + room])),
            x2="to:Q",
            color=alt.condition("datum.loses", alt.value("#8a94a0"), alt.value(own)),
        )
        zero = alt.Chart(_data([{"x": 0}])).mark_rule(color=_INK, strokeDash=[3, 3]).encode(x="x:Q")
        layers = bars + zero
        if not small:
            layers += base.mark_text(align="left", dx=5, fontSize=11, color=_FAINT).encode(
                y=y, x="to:Q", text="range:N"
            )
        room_right = 20 if small else 190
        chart: Drawing = layers.properties(width=width - width // 3 - room_right, height=26 * max(1, len(data)))
        return chart

    return draw


def compared_fleets(answer: Answer) -> list[tuple[str, Bill]]:
    """Return the winner, the best fleets of up to four other kinds, and the first runner-up, without duplicates."""
    rows = [(fleet_name(answer.winner.mix), answer.winner)]
    others = [bill for label, bill in answer.by_label.items() if label != answer.verdict.winner][:4]
    for bill in sorted((*others, *answer.runners_up[:1]), key=lambda entry: entry.cost.total_usd):
        name = fleet_name(bill.mix)
        if name not in [seen for seen, _ in rows]:
            rows.append((name, bill))
    return rows
