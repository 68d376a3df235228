"""Renders a simulated run: latencies with intervals, the use of the KV cache, and the run over time."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.catalog.device_prices import DevicePrice
from penstock.performance.prediction.predict_deployment import Range
from penstock.report.correction_note import correction_note
from penstock.report.drawing.attainment import format_attainment
from penstock.report.drawing.comparison_table import Column, sheet
from penstock.report.drawing.sparkline import sparkline
from penstock.report.price_note import price_notes
from penstock.report.simulate.heading import arrivals_sentence, clock
from penstock.simulation.outcome import Latency, Outcome, PoolOutcome
from penstock.simulation.scenario import Scenario
from penstock.units import format_digits, format_s
from penstock.workload import Diurnal, Fixed, Trace, usable_rows_sentence

_LABEL_WIDTH = len(" queue " + " max 10,000,000")
_SHADES = {"queue": "yellow", "KV": "green", "tok/s": "cyan"}


def render_simulation(scenarios: Sequence[Scenario], rents: Sequence[DevicePrice], width: int) -> RenderableType:
    """Draw the whole answer."""
    pieces: list[RenderableType] = [
        _heading(scenarios[0]),
        Text(),
        _latencies(scenarios, width),
        Text(),
        _engine(scenarios, width),
    ]
    running = [scenario for scenario in scenarios if scenario.outcome is not None]
    if running:
        pieces += [Text(), _timelines(running, width)]
    pieces += [Text(), *(_verdict(scenario) for scenario in scenarios)]
    if running:
        pieces += [Text(), _grounds(running), price_notes(rents)]
    stacks = [scenario.placement.stack for scenario in scenarios]
    corrected = [stack.correction for stack in stacks if stack.correction is not None]
    pieces += [correction_note(corrected)] if corrected else []
    return Group(*pieces)


def _heading(scenario: Scenario) -> Text:
    question = scenario.question
    workload, outcome = question.workload, scenario.outcome
    arrivals = arrivals_sentence(
        workload,
        requests=question.requests,
        rate_per_s=question.rate_per_s,
        span_s=None if outcome is None else outcome.arrival_span_s,
    )
    text = Text.assemble((scenario.placement.deployment.model.name, "bold"))
    text.append(f"  {workload.name}, {arrivals}", style="dim")
    slos = {str(item.slo) for item in workload.classes if item.slo is not None}
    if slos:
        text.append(f"\nSLO {', '.join(sorted(slos))}", style="dim")
    return text


def name_of(scenario: Scenario) -> str:
    """Return the name of a deployment as in `--on`, followed by its number of replicas."""
    devices = scenario.placement.deployment.parallelism.devices
    replicas = scenario.question.replicas
    name = scenario.placement.deployment.accelerator.id + (f" x{devices}" if devices > 1 else "")
    if scenario.question.prefill_replicas:
        return f"{name}, {scenario.question.prefill_replicas}P + {replicas}D"
    return name + (f", {replicas} replicas" if replicas > 1 else "")


_LATENCIES = (
    Column("accelerator", figures=False),
    Column("engine", figures=False),
    *(
        Column(name + "\n(P10-P90)" if "p50" in name else name)
        for name in ("TTFT p50", "TTFT\np99", "TPOT p50", "TPOT\np99", "ITL\np99", "E2E p50", "E2E\np99")
    ),
    Column("SLO met"),
    Column("goodput\ntok/s"),
    Column("output\ntok/s"),
)


def _latencies(scenarios: Sequence[Scenario], width: int) -> RenderableType:
    return sheet(_LATENCIES, [_latency_row(scenario) for scenario in scenarios], width)


def _latency_row(scenario: Scenario) -> list[str | Text]:
    outcome, engine = scenario.outcome, scenario.placement.measured_engine or "-"
    if outcome is None:
        return [name_of(scenario), engine, Text("does not fit", style="bold red"), *["-"] * 9]
    return [
        name_of(scenario),
        engine,
        _span(scenario.first_token(ttft_of, 0.5)),
        format_s(ttft_of(outcome).quantile_s(0.99)),
        _span(scenario.quantile_range(tpot_of, 0.5)),
        format_s(tpot_of(outcome).quantile_s(0.99)),
        format_s(outcome.pools[-1].itl.quantile_s(0.99)),
        _span(scenario.quantile_range(e2e_of, 0.5)),
        format_s(e2e_of(outcome).quantile_s(0.99)),
        _met(outcome),
        f"{outcome.goodput_tokens_per_s:,.0f}",
        f"{outcome.output_tokens_per_s:,.0f}",
    ]


def ttft_of(outcome: Outcome) -> Latency:
    """Return the time to first token over the requests of all SLO classes."""
    return _merge_latencies([item.ttft for item in outcome.classes])


def tpot_of(outcome: Outcome) -> Latency:
    """Return the time per output token over the requests of all SLO classes."""
    return _merge_latencies([item.tpot for item in outcome.classes])


def e2e_of(outcome: Outcome) -> Latency:
    """Return the end-to-end latency over the requests of all SLO classes."""
    return _merge_latencies([item.e2e for item in outcome.classes])


def _merge_latencies(parts: Sequence[Latency]) -> Latency:
    counts = parts[0].counts.copy()
    for part in parts[1:]:
        counts += part.counts
    return Latency(counts=counts, sum_s=sum(part.sum_s for part in parts), max_s=max(part.max_s for part in parts))


def _span(value: Range | None) -> Text | str:
    if value is None:
        return "-"
    return Text.assemble(format_s(value.value), (f"\n{format_s(value.low)}-{format_s(value.high)}", "dim"))


def _met(outcome: Outcome) -> Text | str:
    judged = [item for item in outcome.classes if item.slo is not None and item.asked]
    if not judged:
        return "-"
    share = sum(item.met for item in judged) / sum(item.asked for item in judged)
    return Text(format_attainment(share), style="bold green" if all(item.attained for item in judged) else "bold red")


_POOLS = (
    Column("pool", figures=False),
    *(
        Column(name)
        for name in (
            "replicas",
            "busy",
            "running",
            "KV mean",
            "KV peak",
            "preempted",
            "prefix hits",
            "steps",
            "run, $",
            "$/Mtok out",
        )
    ),
)


def _engine(scenarios: Sequence[Scenario], width: int) -> RenderableType:
    rows = [
        _pool_row(pool_label(scenario, pool.name), pool, scenario.outcome.usd_per_output_mtok if number == 0 else None)
        for scenario in scenarios
        if scenario.outcome is not None
        for number, pool in enumerate(scenario.outcome.pools)
    ]
    return sheet(_POOLS, rows, width)


def pool_label(scenario: Scenario, pool: str) -> str:
    """Name a pool. If the scenario has only one pool, return the name of its deployment."""
    return name_of(scenario) if scenario.outcome is None or len(scenario.outcome.pools) == 1 else pool


def _pool_row(label: str, pool: PoolOutcome, usd_per_mtok: float | None) -> list[str]:
    return [
        label,
        f"{pool.replicas}",
        f"{pool.busy_fraction:.0%}",
        f"{pool.mean_batch:,.1f}",
        f"{pool.kv_mean_fraction:.0%}",
        f"{pool.kv_peak_fraction:.0%}",
        f"{pool.preemptions:,}",
        "-" if pool.hit_fraction is None else f"{pool.hit_fraction:.1%}",
        f"{pool.engine_steps:,}",
        "-" if pool.usd is None else f"{pool.usd:,.2f}",
        "-" if usd_per_mtok is None else f"{usd_per_mtok:,.2f}",
    ]


def _timelines(scenarios: Sequence[Scenario], width: int) -> Table:
    """Draw the queue, KV cache and throughput of each pool as sparklines.

    The sparklines cover the time from the first arrival to the last token.
    """
    lines = [
        (pool_label(scenario, name), line)
        for scenario in scenarios
        if scenario.outcome is not None
        for name, line in scenario.outcome.timelines.items()
    ]
    room = max(10, min(width, 132) - max(len(name) for name, _ in lines) - _LABEL_WIDTH)
    grid = Table.grid(padding=(0, 1))
    for name, line in lines:
        waiting = line.waiting.tolist()
        rows = (
            ("queue", waiting, "{:,.1f}" if max(waiting, default=0.0) < 1 else "{:,.0f}"),
            ("KV", line.kv_used_fraction.tolist(), "{:.0%}"),
            ("tok/s", line.output_tokens_per_s.tolist(), "{:,.0f}"),
        )
        for number, (label, values, shown) in enumerate(rows):
            grid.add_row(
                name if number == 0 else "",
                Text(label, style="dim"),
                Text(sparkline(values, room), style=_SHADES[label]),
                Text(f"max {shown.format(max(values, default=0.0))}", style="dim"),
            )
    return grid


def _verdict(scenario: Scenario) -> Text:
    text = Text.assemble((f"{name_of(scenario)}: ", "bold"))
    outcome = scenario.outcome
    if outcome is None:
        obstacle = scenario.obstacle
        return text.append(obstacle.reason if obstacle else "does not fit", style="red")
    if outcome.saturation is not None:
        growth, waiting = outcome.saturation.growth_per_s, outcome.saturation.waiting
        text.append("saturated", style="bold red")
        text.append(f": the queue grows by {growth:,.2f} requests/s and had {waiting:,} requests at the end. ")
        text.append("Latencies of such a run depend on its length; do not compare them. ", style="dim")
        if outcome.saturation.stopped:
            text.append("The run was stopped early. ")
    elif not any(item.slo for item in outcome.classes):
        text.append("keeps up. ")
    elif outcome.met:
        text.append("meets the SLO. ", style="green")
    else:
        text.append("misses the SLO. ", style="red")
    beyond_cache = outcome.oversized - outcome.beyond_context
    oversized = {"the model's context": outcome.beyond_context, "its KV cache": beyond_cache}
    for limit, count in oversized.items():
        if count:
            are = "requests are" if count > 1 else "request is"
            text.append(f"{count:,} {are} too long for {limit} and not served. ", style="red")
    return text.append(_capacity(scenario))


def _capacity(scenario: Scenario) -> str:
    found, spread = scenario.capacity, scenario.capacity_range_per_s
    if found is None or spread is None:
        return ""
    if not found.rate_per_s:
        saturated = f"{found.saturated_rate_per_s:,.3g} requests/s"
        return f"No rate meets the SLO; at saturation, the deployment serves {saturated}."
    arrivals = scenario.question.workload.arrivals
    of_day = ""
    if isinstance(arrivals, Diurnal):
        hours = found.outcome.arrival_span_s / 3600
        of_day = f" as the mean of a day, tested from {clock(arrivals.first_hour)} for {hours:.2g} h"
    usd = scenario.usd_per_output_mtok_at_capacity
    cost = "" if usd is None else f" At this capacity, a million output tokens cost ${format_digits(usd)} of rent."
    return (
        f"Capacity {spread.value:,.3g} requests/s{of_day} (P10-P90 {spread.low:,.3g}-{spread.high:,.3g}); throughput "
        f"at saturation, without an SLO: {found.saturated_rate_per_s:,.3g}.{cost}"
    )


def _grounds(scenarios: Sequence[Scenario]) -> Text:
    text = Text(style="dim")
    for scenario in scenarios:
        placement, replica = scenario.placement, scenario.placement.replica
        if replica is None:
            continue
        stack = placement.stack
        text.append(
            f"{name_of(scenario)}: {stack.tier} ({' / '.join(stack.path) or 'all accelerators'}, {stack.software}), "
            f"{f'{replica.ranks} ranks, each ' if replica.ranks > 1 else ''}"
            f"{replica.kv_blocks:,} KV blocks of {replica.block_tokens} tokens, at most {replica.max_sequences:,} "
            f"requests and {replica.max_batched_tokens:,} tokens per step.\n"
        )
        drafts = placement.speculation
        if drafts is not None:
            text.append(
                f"{name_of(scenario)}: {drafts.drafted_tokens} tokens drafted, {drafts.grounds}; a step is simulated "
                f"as yielding {drafts.accepted_tokens:.2f} tokens per request.\n"
            )
    question = scenarios[0].question
    if isinstance(question.workload.lengths, Fixed) and question.replicas > 1:
        text.append(
            "All answers have the same length, so requests that start together end together, and routers that count "
            "requests send the next burst to one replica. Real answers differ in length; use a trace to avoid this.\n"
        )
    text.append(
        "P10 and P90 come from repeating the run with a faster and a slower stack; the speeds differ by the error on "
        "held-out data.\n"
    )
    text.append(f"Workload: {scenarios[0].question.workload.source}. ")
    lengths = scenarios[0].question.workload.lengths
    if isinstance(lengths, Trace):
        text.append(
            f"Rows: {usable_rows_sentence(lengths.requests, lengths.dropped)}. ",
            style="yellow" if lengths.dropped else "",
        )
    text.append(f"Seed {scenarios[0].question.seed}. ")
    text.append("Dollars are rent on demand for the duration of the run:")
    return text
