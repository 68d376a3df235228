"""Renders a fleet simulation with one row per policy. A second table shows where the first policy sent requests."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from penstock.fleet.pools import Fleet
from penstock.report.drawing.attainment import format_attainment
from penstock.report.drawing.comparison_table import Column, sheet
from penstock.report.simulate.heading import arrivals_sentence
from penstock.report.simulate.terminal import tpot_of, ttft_of
from penstock.simulation.compare_policies import Destinations, PolicyRun, SharedLoad
from penstock.simulation.replica import ReplicaPool
from penstock.units import format_gib, format_s

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
            "refused",
            "preempted",
            "busy\nmin-max",
        )
    ),
)


def render_fleet(
    fleet: Fleet,
    pools: Sequence[ReplicaPool],
    load: SharedLoad,
    events: Sequence[str],
    runs: Sequence[PolicyRun],
    width: int,
) -> RenderableType:
    """Draw the whole answer."""
    pieces: list[RenderableType] = [_heading(fleet, pools, load, events, runs), Text()]
    pieces += [sheet(_COLUMNS, [_row(run) for run in runs], width), Text()]
    pieces += [_device_table(run, width) if run.outcome.devices else _where(pools, run, width) for run in runs[:1]]
    pieces += [Text(), *_rejections(pools, runs), _verdict(runs), *_bill(pools, runs)]
    return Group(*pieces)


def _heading(
    fleet: Fleet,
    pools: Sequence[ReplicaPool],
    load: SharedLoad,
    events: Sequence[str],
    runs: Sequence[PolicyRun],
) -> Text:
    outcome = runs[0].outcome
    replicas = ", ".join(f"{pool.replicas} x {pool.name}" for pool in pools)
    text = Text.assemble((fleet.name, "bold"), (f"  {replicas}", "dim"))
    workload = load.workload
    arrivals = arrivals_sentence(
        workload, requests=outcome.asked, rate_per_s=load.rate_per_s, span_s=outcome.arrival_span_s
    )
    text.append(
        f"\n{', '.join(dict.fromkeys(pool.model for pool in fleet.pools))}: {workload.name}, {arrivals}", style="dim"
    )
    slos = sorted({str(item.slo) for item in workload.classes if item.slo is not None})
    if slos:
        text.append(f"\nSLO {', '.join(slos)}", style="dim")
    if events:
        text.append(f"\n{'; '.join(events)}", style="yellow")
    return text


def _row(run: PolicyRun) -> list[str | Text]:
    outcome, met = run.outcome, run.worst_met_fraction
    busy = [replica.busy_fraction for replica in outcome.replicas]
    usd = run.usd_per_good_mtok
    return [
        run.policy.name,
        Text(format_attainment(met), style="bold green" if outcome.met else "bold red"),
        f"{outcome.goodput_tokens_per_s:,.0f}",
        "-" if usd is None else f"{usd:,.2f}",
        format_s(ttft_of(outcome).quantile_s(0.5)),
        format_s(ttft_of(outcome).quantile_s(0.99)),
        format_s(tpot_of(outcome).quantile_s(0.5)),
        format_s(tpot_of(outcome).quantile_s(0.99)),
        f"{outcome.refused + outcome.oversized:,}",
        f"{outcome.preemptions:,}",
        f"{min(busy):.0%}-{max(busy):.0%}",
    ]


def _where(pools: Sequence[ReplicaPool], run: PolicyRun, width: int) -> RenderableType:
    """Draw the pools to which a policy sent requests."""
    columns = [Column(f"{run.policy.name} sent", figures=False), Column("requests"), Column("SLO met")]
    picked = [place for place, pool in enumerate(pools) if pool.role != "decode"]
    columns += [Column(f"to {pools[place].name}") for place in picked]
    return sheet(columns, [_destination(row, picked) for row in run.destinations], width)


def _device_table(run: PolicyRun, width: int) -> RenderableType:
    """Draw the devices that models share, and the models that a policy let wake."""
    columns = [Column(f"{run.policy.name}", figures=False)]
    columns += [Column(head) for head in ("busy", "peak\nGiB", "of GiB", "wakes", "sleeps")]
    rows: list[list[str | Text]] = [
        [
            one.name,
            f"{one.busy_fraction:.0%}",
            format_gib(one.peak_bytes),
            format_gib(one.capacity_bytes),
            f"{one.cold_starts:,}",
            f"{one.evictions:,}",
        ]
        for one in run.outcome.devices
    ]
    return sheet(columns, rows, width)


def _destination(row: Destinations, picked: Sequence[int]) -> list[str | Text]:
    name = f"{row.slo_class}, prompts from {row.from_tokens:,} tokens"
    shares = (f"{row.shares[place]:.0%}" for place in picked)
    return [name, f"{row.requests:,}", format_attainment(row.met_fraction), *shares]


def _rejections(pools: Sequence[ReplicaPool], runs: Sequence[PolicyRun]) -> list[Text]:
    """Explain why requests were not served."""
    sentences, oversized = [], runs[0].outcome.oversized
    if oversized:
        most = max(pool.replica.max_tokens for pool in pools)
        beyond = runs[0].outcome.beyond_context
        why = f"{beyond:,} exceed the engines' context, " if beyond else ""
        sentences.append(
            f"{oversized:,} request{' fits' if oversized == 1 else 's fit'} no pool and missed the SLO ({why}"
            f"{oversized - beyond:,} exceed every KV cache): "
            f"prompt and answer may have at most {most:,} tokens in total."
        )
    sent_nowhere = [f"{run.policy.name} {run.outcome.refused:,}" for run in runs if run.outcome.refused]
    if sent_nowhere:
        why = "because no running endpoint could hold them, or because of overload where the fleet file allows it"
        sentences.append(f"Requests refused, {why}: {', '.join(sent_nowhere)}.")
    held = [f"{run.policy.name} {run.outcome.held:,}" for run in runs if run.outcome.held]
    if held:
        sentences.append(f"Requests held at the gateway before they were served or refused: {', '.join(held)}.")
    broken_off = [f"{run.policy.name} {run.outcome.lost:,}" for run in runs if run.outcome.lost]
    if broken_off:
        sentences.append(
            f"Requests lost because their replica failed after the answer had begun: {', '.join(broken_off)}."
        )
    return [Text(" ".join(sentences), style="yellow")] if sentences else []


def _bill(pools: Sequence[ReplicaPool], runs: Sequence[PolicyRun]) -> list[Text]:
    """State the dollars that each policy costs, and the idle share of the elastic pools, which could be released."""
    first = runs[0]
    if first.usd is None:
        return []
    bills = (f"{run.policy.name} ${run.usd or 0.0:,.2f} in {format_s(run.outcome.makespan_s)}" for run in runs)
    text = f"The cost covers all replicas until the last token: {', '.join(bills)}."
    elastic = {pool.name for pool in pools if pool.elastic}
    idle = [
        f"{pool.name} {pool.idle_fraction:.0%} (${pool.idle_fraction * (pool.usd or 0.0):,.2f})"
        for pool in first.outcome.pools
        if pool.name in elastic
    ]
    if idle:
        text += (
            f" Elastic pools are billed like other pools. With {first.policy.name} elastic pools are idle, and could "
            f"be released, for at most this share of the time: {', '.join(idle)}. docs/gateway/how-it-decides.md "
            "describes autoscaling."
        )
    return [Text(text, style="dim")]


def _verdict(runs: Sequence[PolicyRun]) -> Text:
    most = max(run.good_tokens for run in runs)
    best = [run.policy.name for run in runs if run.good_tokens == most]
    met = [run.policy.name for run in runs if run.outcome.met]
    text = Text()
    if met:
        text.append(f"Meets every SLO: {', '.join(met)}. ", style="green")
    else:
        none = "None of these policies meets" if len(runs) > 1 else f"{runs[0].policy.name} does not meet"
        text.append(f"{none} every SLO at this load. ", style="red")
    if len(runs) > 1:
        text.append(f"Most tokens within the SLO: {', '.join(best)}. " if most else "No request met its SLO. ")
        if max(runs, key=lambda run: run.outcome.goodput_tokens_per_s).policy.name not in best:
            text.append("Goodput and cost include the time until a policy's own last token. ")
    text.append(
        "Routers know their own requests and past reports of the replicas, but not how long an answer will be.",
        style="dim",
    )
    return text
