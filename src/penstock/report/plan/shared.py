"""Renders a plan of shared devices: one row per accelerator, and the bill by model of the cheapest."""

from typing import Annotated, Literal

from rich.console import Group, RenderableType
from rich.text import Text
from typing_extensions import TypedDict

from penstock.planning.shared_placement.shared_plan import ModelBill, SharedChoice, SharedPlan
from penstock.report.drawing.comparison_table import Column, sheet
from penstock.report.drawing.json_document import at
from penstock.report.plan.plan_amounts import usd
from penstock.units import count_text, format_digits, format_gib

_CHOICES = (
    Column("accelerator", figures=False),
    Column("devices\n+ spare"),
    Column("one per\nmodel"),
    Column("in time\n(worst model)"),
    Column("busiest\ndevice"),
    Column("rented\ndevices"),
    Column("rent"),
)
_BILLS = (
    Column("workload", figures=False),
    Column("device"),
    Column("memory\nGiB"),
    Column("residency", figures=False),
    Column("in time"),
    Column("share"),
    Column("rent"),
)


class SharedPlanDocument(TypedDict):
    """Shared devices for the workloads of a plan."""

    schema: Literal["penstock.plan-shared/1"]
    name: Annotated[str, at("result.name")]
    horizon_years: Annotated[float, at("result.horizon_years")]
    simulated_hours: Annotated[float, at("result.simulated_hours")]
    choices: Annotated[list[SharedChoice], at("result.choices")]
    left_out: Annotated[list[str], at("result.left_out")]


def render_shared_plan(result: SharedPlan, width: int) -> RenderableType:
    """Draw the whole answer."""
    pieces: list[RenderableType] = []
    if result.choices:
        best = result.choices[0]
        pieces += [_headline(result, best), sheet(_CHOICES, [_choice(one) for one in result.choices], width), Text()]
        pieces += [Text(f"Bill by model on {best.accelerator}:", style="bold")]
        pieces += [sheet(_BILLS, [_bill(one) for one in best.bills], width), Text()]
        pieces += [_footnote(result)]
    else:
        pieces += [Text("No accelerator serves the workloads on shared devices.\n", style="bold red")]
    for one in result.choices:
        pieces += [
            Text(f"{one.accelerator}: {name} does not fit on one device; plan it separately.") for name in one.too_large
        ]
    return Group(*pieces, *(Text(f"Left out: {reason}.", style="dim") for reason in result.left_out))


def _headline(result: SharedPlan, best: SharedChoice) -> Text:
    held = f"{count_text(len(best.bills), 'model')} on {best.devices} {best.accelerator} and {best.spare_devices} spare"
    cost = f"{usd(best.usd)} in {count_text(result.horizon_years, 'year')}"
    return Text(f"{result.name}: {held}, {cost}.\n", style="bold")


def _choice(choice: SharedChoice) -> list[str]:
    without = f" without {count_text(len(choice.too_large), 'model')}" if choice.too_large else ""
    return [
        f"{choice.accelerator}{without}",
        f"{choice.devices} + {choice.spare_devices}",
        str(choice.dedicated_devices),
        f"{choice.worst_attained_fraction:.1%}",
        f"{choice.busy_fraction:.0%}",
        str(choice.rented_devices),
        usd(choice.usd),
    ]


def _bill(bill: ModelBill) -> list[str]:
    wakes = "" if bill.wake is None else f", {format_digits(bill.wake.median_s)} s"
    return [
        bill.workload,
        str(bill.device),
        format_gib(bill.memory_bytes),
        "awake" if bill.kept_awake else f"on demand{wakes}",
        "-" if bill.attained_fraction is None else f"{bill.attained_fraction:.1%}",
        f"{bill.share_fraction:.1%}",
        usd(bill.usd),
    ]


def _footnote(result: SharedPlan) -> Text:
    return Text(
        f"Checked by simulation: {result.simulated_hours:g} hours at the peak rate, all step times and wake times at "
        "their P90. Devices are rented in the smallest instances on sale; rents are not discounted. A model's share is "
        "the larger of its part of the memory and of the busy time of its device: docs/guides/which-accelerator.md.",
        style="dim",
    )
