"""How is a fleet's run shown? One row per policy, and of the first where its requests went."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from penstock.fleet.pools import Fleet
from penstock.report.drawing.sheet import Column, sheet
from penstock.report.simulate.terminal import tpot_of, ttft_of
from penstock.simulation.compare import Destinations, PolicyRun
from penstock.simulation.replica import ReplicaPool
from penstock.units import format_s
from penstock.workload import Workload

_COLUMNS = (
    Column("policy", figures=False),
    *(
        Column(head)
        for head in (
            "SLO met\n(worst class)",
            "goodput\ntok/s",
            "$/Mtok\ngood",
            "TTFT\np50",
            "TTFT\np99",
            "TPOT\np50",
            "TPOT\np99",
            "turned\naway",
            "preempted",
            "busy\nleast-most",
        )
    ),
)


def render_fleet(
    fleet: Fleet,
    pools: Sequence[ReplicaPool],
    workload: Workload,
    events: Sequence[str],
    runs: Sequence[PolicyRun],
    width: int,
) -> RenderableType:
    """Draw the whole answer."""
    pieces: list[RenderableType] = [_heading(fleet, pools, workload, events, runs), Text()]
    pieces += [sheet(_COLUMNS, [_row(run) for run in runs], width), Text()]
    pieces += [_where(pools, run, width) for run in runs[:1]]
    pieces += [Text(), _verdict(runs)]
    return Group(*pieces)


def _heading(
    fleet: Fleet,
    pools: Sequence[ReplicaPool],
    workload: Workload,
    events: Sequence[str],
    runs: Sequence[PolicyRun],
) -> Text:
    outcome = runs[0].outcome
    replicas = ", ".join(f"{pool.replicas} x {pool.name}" for pool in pools)
    text = Text.assemble((fleet.name, "bold"), (f"  {replicas}", "dim"))
    count = outcome.requests + outcome.rejected + outcome.refused
    rate = f", {(count - 1) / outcome.arrival_span_s:,.3g} requests/s" if outcome.arrival_span_s else ""
    text.append(f"\n{fleet.pools[0].model}: {workload.name}, {count:,} requests{rate}", style="dim")
    promised = sorted({str(item.slo) for item in workload.classes if item.slo is not None})
    if promised:
        text.append(f"\nSLO {', '.join(promised)}", style="dim")
    if events:
        text.append(f"\n{'; '.join(events)}", style="yellow")
    return text


def _row(run: PolicyRun) -> list[str | Text]:
    outcome, met = run.outcome, run.worst_met_fraction
    attained = outcome.met and not outcome.rejected
    busy = [replica.busy_fraction for replica in outcome.replicas]
    usd = run.usd_per_good_mtok
    return [
        run.policy.name,
        Text(f"{met:.1%}", style="bold green" if attained else "bold red"),
        f"{outcome.goodput_tokens_per_s:,.0f}",
        "-" if usd is None else f"{usd:,.2f}",
        format_s(ttft_of(outcome).quantile_s(0.5)),
        format_s(ttft_of(outcome).quantile_s(0.99)),
        format_s(tpot_of(outcome).quantile_s(0.5)),
        format_s(tpot_of(outcome).quantile_s(0.99)),
        f"{outcome.rejected + outcome.refused:,}",
        f"{outcome.preemptions:,}",
        f"{min(busy):.0%}-{max(busy):.0%}",
    ]


def _where(pools: Sequence[ReplicaPool], run: PolicyRun, width: int) -> RenderableType:
    """Say which requests a policy sent where."""
    columns = [Column(f"{run.policy.name} sent", figures=False), Column("requests"), Column("SLO met")]
    columns += [Column(f"to {pool.name}") for pool in pools]
    return sheet(columns, [_destination(row) for row in run.destinations], width)


def _destination(row: Destinations) -> list[str | Text]:
    name = f"{row.slo_class}, prompts from {row.from_tokens:,} tokens"
    return [name, f"{row.requests:,}", f"{row.met_fraction:.1%}", *(f"{share:.0%}" for share in row.shares)]


def _verdict(runs: Sequence[PolicyRun]) -> Text:
    best = max(runs, key=lambda run: run.outcome.goodput_tokens_per_s)
    kept = [run.policy.name for run in runs if run.outcome.met and not run.outcome.rejected]
    text = Text()
    if kept:
        text.append(f"Keeps every promise: {', '.join(kept)}. ", style="green")
    else:
        text.append("No policy keeps every promise at this load. ", style="red")
    if len(runs) > 1:
        text.append(f"Most goodput: {best.policy.name}. ")
    text.append(
        "Routers see reports as old as said and their own requests, never how long an answer will be.", style="dim"
    )
    return text
