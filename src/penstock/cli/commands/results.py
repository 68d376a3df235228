"""The `results` command."""

from pathlib import Path
from typing import Annotated

import click

from penstock.api.options.option_fields import Flag
from penstock.cli.console import show
from penstock.cli.flags.shared_flags import AsJson


def results_command(
    files: Annotated[
        list[Path], Flag(positional=True, metavar="FILE...", help="Result files, or folders that a load tool wrote.")
    ],
    report_to: Annotated[
        Path | None,
        Flag(
            name="--report-to", metavar="DIR", help="Write one llm-d Benchmark Report 0.2.1 per run into this folder."
        ),
    ] = None,
    shared_prefixes: Annotated[
        bool, Flag(name="--shared-prefixes", help="The prompts share prefixes on purpose. Accept cache hits.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """What did my load tool measure, in definitions that can be compared?

    Reads results of `vllm bench serve`, `sglang.bench_serving`, aiperf, guidellm, inference-perf, genai-bench,
    `evalscope perf` and llm-d's Benchmark Report. TPOT is the time from the first token to the last, divided by the
    tokens after the first. A run that ended early, whose load tool was late, or whose answers had other lengths is
    refused with the reason; the command then exits with 1.

    Example: `penstock results vllm-bench.json --report-to reports`
    """
    from penstock.api.results import results

    answer = results(files, shared_prefixes=shared_prefixes)
    if report_to is not None:
        for path in answer.write_reports(report_to):
            click.echo(f"wrote {path}", err=True)
    show(answer, as_json=as_json)
