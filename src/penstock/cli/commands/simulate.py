"""The `simulate` command."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import click

from penstock.api.options.option_fields import Flag
from penstock.api.options.simulate_options import SimulateFleetOptions, SimulateOptions
from penstock.cli.console import Watch, show
from penstock.cli.flags.misplaced_flags import refuse_misplaced
from penstock.cli.flags.option_flags import Given, options_of, with_flags
from penstock.cli.flags.shared_flags import AsJson
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.api.simulate import SimulateAnswer

ON_HELP: Final = "Accelerators to compare, comma separated; `h100:2` is two per replica."


@with_flags(SimulateFleetOptions, SimulateOptions)
def simulate_command(
    given: Given,
    context: click.Context,
    model: Annotated[
        str | None,
        Flag(
            positional=True,
            values="models",
            help="A config.json, a checkpoint directory, a name from `catalog models`, or hf:org/name. With --fleet, "
            "the fleet file names the model.",
            show_default=False,
        ),
    ] = None,
    on: Annotated[
        str | None,
        Flag(name="--on", values="accelerators", help=ON_HELP, show_default=False),
    ] = None,
    fleet: Annotated[
        Path | None,
        Flag(
            name="--fleet",
            help="Simulate the pools of a fleet file, as `plan --fleet` writes it, instead of MODEL and --on.",
        ),
    ] = None,
    fleet_schema: Annotated[
        bool, Flag(name="--fleet-schema", help="Print a JSON schema of fleet files for editors.")
    ] = False,
    *,
    chart: Annotated[
        Path | None, Flag(name="--chart", help="Write a timeline as .html, .svg or .png (needs the `report` extra).")
    ] = None,
    perfetto: Annotated[
        Path | None,
        Flag(name="--perfetto", help="Write the first replica's engine steps as a file for ui.perfetto.dev."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """How does a deployment or a fleet behave under load?

    Simulates an engine and a router: continuous batching with chunked prefill as vLLM V1 schedules it, paged KV with
    preemption, and prefix caching. Prints latencies, goodput, use of the KV cache, cost, and whether the replicas keep
    up with the arrivals. Latencies have P10-P90 intervals from errors on held-out measurements. Exits 1 if the SLO is
    missed, the queue keeps growing, or the model does not fit.

    Examples:

    - `penstock simulate llama-3.1-70b --on mi300x:1,h100:2 --in 1024 --out 256 --rate 4 --slo ttft=1s,tpot=50ms`
    - `penstock simulate llama-3.1-70b --on mi300x:1 --trace azure_conv.csv --rate 4 --slo ttft=1s,tpot=50ms --capacity`
    - `penstock simulate deepseek-r1 --on mi355x:8 --users 64 --in 8192 --out 1024 --json`
    - `penstock simulate deepseek-r1 --on gb200:8 --ep --replicas 2 --prefill 1 --prefill-split dp8,ep --users 128`
    - `penstock simulate --fleet fleet.yaml --trace azure_conv.csv --rate 20 --policy penstock,round-robin,llm-d,dynamo`
    - `penstock simulate llama-3.1-8b --on h100:1 --trace mooncake.jsonl --chart run.html --perfetto run.json`
    """
    if fleet_schema:
        _print_fleet_schema()
        return
    refuse_misplaced(context, of_a_fleet=fleet is not None)
    if chart is not None:
        from penstock.report.drawing.chart_files import check_drawable

        check_drawable(chart.suffix)
    if fleet is not None:
        _simulate_fleet(fleet, given, chart, as_json=as_json)
        return
    if model is None or on is None:
        raise UsageError("name what to simulate: a model and --on h100:2, or --fleet fleet.yaml")
    from penstock.api.simulate import simulate

    with Watch("simulating") as watch:
        answer = simulate(model, on, **options_of(SimulateOptions, given), log_steps=perfetto is not None, watch=watch)
    _write_run(answer, chart, perfetto)
    show(answer, as_json=as_json)


def _print_fleet_schema() -> None:
    """Print the JSON schema of fleet files."""
    from penstock.fleet.fleet_file import FLEET_FILE
    from penstock.report.drawing.plain_json import to_json

    click.echo(to_json(FLEET_FILE.schema()))


def _simulate_fleet(fleet: Path, given: Given, chart: Path | None, *, as_json: bool) -> None:
    """Simulate a fleet file, write the chart of the compared policies if requested, and print the answer."""
    from penstock.api.simulate_fleet import simulate_fleet

    with Watch("simulating") as watch:
        answer = simulate_fleet(fleet, **options_of(SimulateFleetOptions, given), watch=watch)
    if chart is not None:
        from penstock.cli.console import write_file
        from penstock.report.simulate_fleet.chart import policies_chart

        drawing = policies_chart(answer.fleet, answer.pools, answer.workload, answer.runs, chart.suffix)
        write_file(chart, drawing)
    show(answer, as_json=as_json)


def _write_run(answer: "SimulateAnswer", chart: Path | None, perfetto: Path | None) -> None:
    """Write the timeline and the engine steps, if the user requested them."""
    from penstock.cli.console import write_file

    if chart is not None:
        from penstock.report.simulate.timeline import timeline

        write_file(chart, timeline(answer.scenarios, chart.suffix))
    if perfetto is not None:
        from penstock.report.simulate.trace_events import trace_events

        first = next((scenario for scenario in answer.scenarios if scenario.outcome is not None), None)
        if first is not None and first.outcome is not None:
            write_file(perfetto, trace_events(first.outcome))
