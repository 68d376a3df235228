"""Says in how many cases the planned fleet is enough, and what more or less confidence would cost."""

from typing import Final

from penstock.planning.optimizer.problem import Mix
from penstock.planning.plan_result import Answer
from penstock.planning.uncertainty.confidence_levels import ConfidenceLevel
from penstock.planning.uncertainty.monte_carlo import Confidence
from penstock.planning.uncertainty.next_measurement import NextMeasurement
from penstock.report.plan.html_tables import Cell, HtmlTable
from penstock.report.plan.plan_amounts import usd
from penstock.report.plan.sentences import unit_word
from penstock.units import count_text

_COMPARED: Final = (0.5, 0.9)
"""Confidences that the first screen compares with the planned one."""
_MEASURED_LOAD: Final = 0.7
"""Share of a replica's predicted capacity at which it is first measured."""
_NEGLIGIBLE: Final = 0.001
"""Difference of costs, relative to the plan, that counts as none."""


def planned_level(answer: Answer) -> ConfidenceLevel | None:
    """Return the planned confidence with its cost; None if the plan has no levels."""
    return next((level for level in answer.levels if level.planned), None)


def enough_sentence(answer: Answer, *, unit: str = "node", other: str = "") -> str:
    """State in which share of cases the planned fleet is enough, and what 50% and 90% of cases would cost.

    `other` introduces the fleet of another share, for readers who do not know "90% costs".
    """
    planned = planned_level(answer)
    if planned is None or planned.nodes is None:
        return ""
    nodes = count_text(round(planned.nodes), unit)
    changes = len({pool.period for pool in answer.winner.mix.pools}) > 1
    these = f"{nodes} {'is' if planned.nodes == 1 else 'are'}"
    if changes:
        these = f"the planned fleet, {nodes} at its largest, is"
    enough = share_enough(answer.winner.mix, answer.confidence)
    first = f"{these} enough in {enough} of cases (planned for {planned.confidence:.0%})"
    compared = (level for level in answer.levels if level.confidence in _COMPARED)
    others = [compare_level(level, planned, unit, other) for level in compared]
    return "; ".join([first, *(text for text in others if text)])


def measurement_sentence(measurement: NextMeasurement, plan: str) -> str:
    """State which setup to measure next, what knowing its speed would save, and with which command."""
    one = measurement
    setup = f"{one.model} ({one.weights}) on {one.accelerator}, {one.way}, {one.engine}"
    rate = f"{_MEASURED_LOAD * one.requests_per_s:.2g}"
    return (
        f"measure next: {setup}: its speed is known to {one.low:.2g}-{one.high:.2g}x, and knowing it would save "
        f"{usd(one.saving_usd)} on average; `penstock bench {plan} --workload {one.workload} --rate {rate} "
        f"--target {one.vendor}=URL`, then `penstock calibrate`"
    )


def share_enough(mix: Mix, confidence: Confidence) -> str:
    """Format the share of cases in which a planned fleet is enough.

    Each case either refills nodes or redistributes load, but not both. With several kinds of replicas the share is
    therefore a lower bound.
    """
    periods = {pool.period for pool in mix.pools}
    shared = len(mix.pools) > len(periods) or any(len(pool.replicas) > 1 for pool in mix.pools)
    return f"{'at least ' if shared else ''}{confidence.enough_fraction:.0%}"


def compare_level(level: ConfidenceLevel, planned: ConfidenceLevel, unit: str, other: str = "") -> str:
    """Compare the cost of another confidence with the planned cost; empty for the planned confidence itself."""
    if level.planned or planned.usd is None:
        return ""
    if level.usd is None or level.nodes is None:
        return f"no compared fleet is enough in {level.confidence:.0%}"
    more = level.usd - planned.usd
    name = f"{other}{level.confidence:.0%}"
    if abs(more) <= _NEGLIGIBLE * planned.usd:
        # A smaller confidence allows fleets that were not compared, because they are not enough as often as planned.
        free = level.confidence > planned.confidence
        return f"{name} costs the same" if free else f"{name} may cost less with a fleet that was not compared"
    least = f"costs at most {usd(more)} more" if more > 0 else f"saves at least {usd(-more)}"
    what = " + ".join(level.instead) if level.instead else count_text(round(level.nodes), unit)
    return f"{name} {least} ({what})"


def levels_table(answer: Answer) -> HtmlTable | None:
    """List the size and the cost of the fleet by confidence; None if the plan has no levels."""
    planned = planned_level(answer)
    if planned is None or planned.usd is None:
        return None
    heads: list[Cell] = [
        "enough in",
        (f"{unit_word(answer.winner.mix)}s", "n"),
        ("costs at most", "n"),
        ("compared with the plan", "n"),
    ]
    rows: list[list[Cell]] = []
    for level in answer.levels:
        name = f"{level.confidence:.0%} of cases" + (", as planned" if level.planned else "")
        name += f", with {' + '.join(level.instead)}" if level.instead else ""
        if level.usd is None or level.nodes is None:
            rows.append([name, ("-", "n"), ("no compared fleet", "n"), ("-", "n")])
            continue
        more = level.usd - planned.usd
        sign = "-" if more < 0 else "+"
        compared = "-" if abs(more) <= _NEGLIGIBLE * planned.usd else f"{sign}{usd(abs(more))}"
        nodes = "-" if level.instead else f"{round(level.nodes):,}"  # its nodes may have other sizes
        rows.append([name, (nodes, "n"), (usd(level.usd), "n"), (compared, "n")])
    return HtmlTable(heads, rows, classes=["best" if level.planned else "" for level in answer.levels])
