"""How does it behave under load?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.console import Watch, show
from penstock.cli.flags.misplaced_flags import refuse_misplaced
from penstock.cli.flags.shared_flags import (
    AsJson,
    Columns,
    Dp,
    Ep,
    Kv,
    KvGbps,
    MeasuredEngine,
    Mtp,
    Precision,
    Prefill,
    PrefillSplit,
)
from penstock.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.simulation.scenario import Scenario

EXAMPLES = """
Examples:

- `penstock simulate llama-3.1-70b --on mi300x:1,h100:2 --in 1024 --out 256 --rate 4 --slo ttft=1s,tpot=50ms`
- `penstock simulate llama-3.1-70b --on mi300x:1 --trace azure_conv.csv --rate 4 --slo ttft=1s,tpot=50ms --capacity`
- `penstock simulate deepseek-r1 --on mi355x:8 --users 64 --in 8192 --out 1024 --json`
- `penstock simulate deepseek-r1 --on gb200:8 --ep --replicas 2 --prefill 1 --prefill-split dp8,ep --users 128`
- `penstock simulate --fleet fleet.yaml --trace azure_conv.csv --rate 20 --policy penstock,round-robin,llm-d,dynamo`
- `penstock simulate llama-3.1-8b --on h100:1 --trace mooncake.jsonl --chart run.html --perfetto run.json`
"""


def simulate_command(
    context: typer.Context,
    model: Annotated[
        str | None,
        typer.Argument(
            help="A config.json, a checkpoint directory, a name from `catalog models`, or hf:org/name; "
            "with --fleet the file says it.",
            show_default=False,
        ),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            "--on", help="Accelerators to compare, comma separated; `h100:2` is two per replica.", show_default=False
        ),
    ] = None,
    fleet: Annotated[
        Path | None,
        typer.Option("--fleet", help="A fleet of several pools, as `plan --fleet` writes it, instead of --on."),
    ] = None,
    fleet_schema: Annotated[
        bool, typer.Option("--fleet-schema", help="Print a JSON schema of fleet files for editors.")
    ] = False,
    policy: Annotated[
        str,
        typer.Option(
            "--policy",
            help="Who routes to a fleet, compared on the same requests: penstock, round-robin, weighted-round-robin, "
            "least-request, in-flight-per-capacity, llm-d, llm-d-scorers, dynamo, sglang-cache-aware, static-weight.",
        ),
    ] = "penstock",
    event: Annotated[
        list[str] | None,
        typer.Option(
            "--event",
            help="What happens to a fleet: 'death of h100/0 at 60s for 30s', 'slow h100/0 x3 at 60s', "
            "'silence of h100/0 at 60s', 'loss 5%', 'crowd x3 at 60s for 20s'. May be given several times. "
            "Deaths, slowness and silence are of replicas that serve whole requests with one rank "
            "(no dp, no prefill or decode pools).",
        ),
    ] = None,
    reports: Annotated[
        str, typer.Option("--reports", help="How often a router of a fleet hears from an endpoint.")
    ] = "250ms",
    pickers: Annotated[
        int, typer.Option("--pickers", metavar="N", min=1, max=64, help="Routers of a fleet that share nothing.")
    ] = 1,
    replicas: Annotated[
        int, typer.Option("--replicas", metavar="N", min=1, max=1024, help="Replicas behind one router.")
    ] = 1,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", help="Azure, Mooncake, BurstGPT or a plain CSV, JSONL or Parquet of requests."),
    ] = None,
    columns: Columns = None,
    input_tokens: Annotated[
        str | None,
        typer.Option(
            "--in",
            metavar="N",
            help="Prompt tokens per request, without a trace: 1024, 8k. Default: 1024, or the fleet's.",
            show_default=False,
        ),
    ] = None,
    output_tokens: Annotated[
        str | None,
        typer.Option(
            "--out",
            metavar="N",
            help="Answer tokens per request, without a trace: 256, 1k. Default: 256, or the fleet's.",
            show_default=False,
        ),
    ] = None,
    arrivals: Annotated[
        str | None,
        typer.Option(
            "--arrivals",
            help="recorded, poisson, gamma:2 (coefficient of variation) or diurnal:4 (peak over trough, from "
            "the peak on; --rate is the mean of the day). Default: recorded with a trace, else poisson.",
        ),
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="N", min=0, help="Requests a second; a trace is stretched.")
    ] = None,
    users: Annotated[
        int | None,
        typer.Option("--users", metavar="N", min=1, help="A closed loop of so many users instead of arrivals."),
    ] = None,
    think: Annotated[
        str,
        typer.Option(
            "--think",
            help="How long a user of a closed loop waits on average before asking again: 2s, 500ms. Pauses are "
            "exponential; first requests are spread over a pause and an answer, and not judged. 0s: all start at "
            "once, as benchmarks do.",
        ),
    ] = "0s",
    requests: Annotated[
        int | None,
        typer.Option(
            "--requests",
            metavar="N",
            min=1,
            help="How many. Default: the trace once, else 10,000; at least 5 for each user who thinks.",
        ),
    ] = None,
    system_prompts: Annotated[
        str | None, typer.Option("--system-prompts", help="Every request begins with one of COUNT:TOKENS prompts.")
    ] = None,
    slo: Annotated[
        str | None, typer.Option("--slo", help="What is promised: ttft=1s,tpot=50ms and e2e=30s or attain=95% alike.")
    ] = None,
    find_capacity: Annotated[
        bool, typer.Option("--capacity", help="Also find the highest rate that meets the SLO.")
    ] = False,
    route: Annotated[
        str, typer.Option("--route", help="Between replicas: least-requests, least-tokens, round-robin.")
    ] = "least-requests",
    prefill: Prefill = 0,
    prefill_split: PrefillSplit = None,
    kv_gbps: KvGbps = None,
    precision: Precision = None,
    kv: Kv = "auto",
    engine: MeasuredEngine = "best",
    dp: Dp = 1,
    ep: Ep = False,
    mtp: Mtp = False,
    max_num_seqs: Annotated[
        int | None,
        typer.Option("--max-num-seqs", metavar="N", min=1, help="Requests in one step. Default: the engine's."),
    ] = None,
    max_num_batched_tokens: Annotated[
        int | None,
        typer.Option("--max-num-batched-tokens", metavar="N", min=1, help="Tokens in one step. Default: the engine's."),
    ] = None,
    no_prefix_caching: Annotated[
        bool, typer.Option("--no-prefix-caching", help="Keep nothing of prompts that begin alike.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Same seed, same run.")] = 0,
    chart: Annotated[
        Path | None, typer.Option("--chart", help="Write a timeline as .html, .svg or .png (extra: report).")
    ] = None,
    perfetto: Annotated[
        Path | None, typer.Option("--perfetto", help="Write the first replica's steps for ui.perfetto.dev.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """How does it behave under load?

    Runs requests through a model of the engine: continuous batching with chunked prefill as vLLM V1 schedules it, paged
    KV with preemption, prefix caching, a router in front. Prints latencies with P10-P90 from errors on held-out
    measurements, goodput, what the KV cache did, cost, and whether the queue keeps up. Exits 1 when the SLO is missed,
    the queue does not keep up, or it does not fit.
    """
    if fleet_schema:
        from penstock.fleet.fleet_file import FLEET_FILE
        from penstock.report.drawing.plain_json import to_json

        typer.echo(to_json(FLEET_FILE.schema()))
        return
    refuse_misplaced(context, of_a_fleet=fleet is not None)
    if chart is not None:
        from penstock.report.drawing.chart_files import check_drawable

        check_drawable(chart.suffix)
    if fleet is not None:
        _fleet(
            fleet,
            chart,
            as_json=as_json,
            trace=trace,
            columns=columns,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            arrivals=arrivals,
            rate=rate,
            requests=requests,
            system_prompts=system_prompts,
            slo=slo,
            policy=policy,
            events=event or (),
            reports=reports,
            pickers=pickers,
            seed=seed,
        )
        return
    if model is None or on is None:
        raise UsageError("say what is simulated: a model and --on h100:2, or --fleet fleet.yaml")
    from penstock.api.simulate import simulate

    with Watch() as watch:
        answer = simulate(
            model,
            on,
            replicas=replicas,
            trace=trace,
            columns=columns,
            input_tokens=input_tokens or 1024,
            output_tokens=output_tokens or 256,
            arrivals=arrivals,
            rate=rate,
            users=users,
            think=think,
            requests=requests,
            system_prompts=system_prompts,
            slo=slo,
            capacity=find_capacity,
            route=route,
            prefill=prefill,
            prefill_split=prefill_split,
            kv_gbps=kv_gbps,
            precision=precision,
            kv=kv,
            engine=engine,
            dp=dp,
            ep=ep,
            mtp=mtp,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            prefix_caching=not no_prefix_caching,
            seed=seed,
            log_steps=perfetto is not None,
            watch=watch,
        )
    _write(answer.scenarios, chart, perfetto)
    show(answer, as_json=as_json)


simulate_command.__doc__ = f"{simulate_command.__doc__}\n{EXAMPLES}"


def _fleet(path: Path, chart: Path | None, *, as_json: bool, **asked: Any) -> None:  # noqa: ANN401 - as the API has them
    """Compare policies on a fleet."""
    from penstock.api.simulate_fleet import simulate_fleet
    from penstock.cli.console import write_file

    with Watch() as watch:
        answer = simulate_fleet(path, **asked, watch=watch)
    if chart is not None:
        from penstock.report.simulate_fleet.chart import policies_chart

        drawing = policies_chart(answer.fleet, answer.pools, answer.workload, answer.runs, chart.suffix)
        write_file(chart, drawing)
    show(answer, as_json=as_json)


def _write(scenarios: "Sequence[Scenario]", chart: Path | None, perfetto: Path | None) -> None:
    """Write the pictures that were asked for."""
    from penstock.cli.console import write_file

    if chart is not None:
        from penstock.report.simulate.timeline import timeline

        write_file(chart, timeline(scenarios, chart.suffix))
    if perfetto is not None:
        from penstock.report.simulate.trace_events import trace_events

        first = next((scenario for scenario in scenarios if scenario.outcome is not None), None)
        if first is not None and first.outcome is not None:
            write_file(perfetto, trace_events(first.outcome))
