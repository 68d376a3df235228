"""The `workload` commands."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from penstock.api.options.option_fields import Flag
from penstock.api.options.simulate_options import COLUMNS_HELP
from penstock.cli.declared_commands import DeclaredGroup
from penstock.cli.flags.shared_flags import AsJson

if TYPE_CHECKING:
    from penstock.workload import TraceSummary

workload_command = DeclaredGroup("workload", help="Inspect recorded workloads.")

EXAMPLES = """
A plain trace has the columns `arrival_s`, `input_tokens` and `output_tokens`, and may have `class`, `session`, `prefix`
and `prefix_tokens`.

Examples:

- `penstock workload describe azure_conv.csv`
- `penstock workload describe requests.parquet --chart requests.html`
- `penstock workload describe mooncake.jsonl --json`
"""


def describe_command(
    trace: Annotated[
        Path,
        Flag(positional=True, help="A trace file: Azure, Mooncake, BurstGPT, or plain CSV, JSONL or Parquet."),
    ],
    columns: Annotated[str | None, Flag(name="--columns", help=COLUMNS_HELP)] = None,
    chart: Annotated[
        Path | None,
        Flag(name="--chart", help="Draw arrivals and lengths as .html, .svg or .png (needs the `report` extra)."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What is in my trace?

    Prints the number of requests, the rows left out with the reason, the rate and burstiness of arrivals, the lengths
    of prompts and answers, and shared prefixes. Also prints distributions fitted to lengths and arrivals, and commands
    that use the trace.
    """
    if chart is not None:
        from penstock.report.drawing.chart_files import check_drawable

        check_drawable(chart.suffix)
    summary = _summarise(trace, columns)
    if chart is not None:
        from penstock.cli.console import write_file
        from penstock.report.workload.chart import trace_chart

        write_file(chart, trace_chart(summary, chart.suffix))
    if as_json:
        from penstock.report.drawing.plain_json import to_json
        from penstock.report.workload.terminal import trace_document

        click.echo(to_json(trace_document(summary)))
        return
    from penstock.cli.console import stdout
    from penstock.report.workload.terminal import render_trace

    console = stdout()
    console.print(render_trace(summary, str(trace), console.width, columns))


describe_command.__doc__ = f"{describe_command.__doc__}\n{EXAMPLES}"
workload_command.declare("describe")(describe_command)


def _summarise(path: Path, columns: str | None) -> "TraceSummary":
    """Read and summarise a trace, with progress."""
    from penstock.api.arguments.workload_argument import inspected_trace
    from penstock.cli.console import Watch
    from penstock.workload import describe_trace

    with Watch() as watch:
        trace = inspected_trace(path, columns, watch)
        return describe_trace(
            trace, progress=lambda done: watch.progress(f"describing {path.name}", done, 2 * trace.requests)
        )
