"""Which fleet should be bought?"""

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.planning.make import PlanResult, Progress, Sources
    from penstock.planning.plan_file import Plan

EXAMPLES = """
Examples:

- `penstock plan --init > plan.yaml` (a commented plan to start from)
- `penstock plan plan.yaml`
- `penstock plan plan.yaml --html report.html --fleet fleet.yaml`
- `penstock plan plan.yaml --json`
"""
_MAX_BYTES = 1_000_000


def plan_command(
    file: Annotated[Path | None, typer.Argument(help="A plan file; `--init` prints one.", show_default=False)] = None,
    init: Annotated[bool, typer.Option("--init", help="Print a commented plan file and stop.")] = False,
    html: Annotated[
        Path | None,
        typer.Option("--html", help="Write the report as one self-contained HTML file.", show_default=False),
    ] = None,
    fleet: Annotated[
        Path | None, typer.Option("--fleet", help="Write the chosen fleet as fleet.yaml.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Which fleet should be bought?

    Accelerators, how many, AMD, NVIDIA or both: the cheapest fleet that serves the workloads within their SLOs, its
    cost all in, how sure that is, and what would change it. Exits 1 when no fleet keeps every rule.
    """
    from penstock.planning.make import NoFleet, make_plan

    if init:
        from penstock.planning.example import EXAMPLE_PLAN

        typer.echo(EXAMPLE_PLAN, nl=False)
        return
    if file is None:
        raise typer.BadParameter("name a plan file, or print one with --init", param_hint="FILE")
    plan = _read(file)
    with _progress() as progress:
        result = make_plan(plan, sources_of(plan, file.parent), progress)
    if isinstance(result.answer, NoFleet):
        _show(result, as_json=as_json)
        raise typer.Exit(1)
    if html is not None:
        from penstock.report.plan_html import plan_html

        _write(html, plan_html(result))
    if fleet is not None:
        from penstock.report.plan_fleet import fleet_yaml

        _write(fleet, fleet_yaml(result, result.answer))
    _show(result, as_json=as_json)


def _read(file: Path) -> "Plan":
    from datetime import UTC, datetime

    from penstock.errors import UsageError
    from penstock.planning.plan_yaml import parse_plan

    try:
        if file.stat().st_size > _MAX_BYTES:
            raise UsageError(f"{file.name} is larger than {_MAX_BYTES:,} bytes; a plan is a page or two")
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UsageError(f"{file}: {reason}; `penstock plan --init > plan.yaml` writes one to start from") from None
    return parse_plan(text, file.name, today=datetime.now(tz=UTC).date())


def sources_of(plan: "Plan", folder: Path) -> "Sources":
    """Join the catalog, the models and the judge of capacity."""
    from penstock.catalog import load_accelerator, load_accelerators, load_efficiencies, load_prices
    from penstock.cli.evidence import model_of
    from penstock.performance.efficiencies import from_document
    from penstock.planning.closed_loop import ClosedLoop
    from penstock.planning.make import Sources
    from penstock.planning.trace_lengths import trace_lengths
    from penstock.workload import read_trace

    named = tuple(load_accelerator(part.id) for part in plan.parts)
    return Sources(
        accelerators=named or load_accelerators(),
        prices_of=load_prices,
        model_of=model_of,
        capacity_of=ClosedLoop(from_document(load_efficiencies())),
        capacity_note="Capacity within the SLO from closed-loop predictions; no queue was simulated.",
        read_trace=lambda name: trace_lengths(read_trace(folder / name).blocks()),
    )


def _show(result: "PlanResult", *, as_json: bool) -> None:
    if as_json:
        from penstock.report.plain import to_json
        from penstock.report.plan_json import plan_document

        typer.echo(to_json(plan_document(result)))
        return
    from penstock.cli.terminal import stdout
    from penstock.report.plan import render_plan

    console = stdout()
    console.print(render_plan(result, console.width))


def _write(path: Path, text: str) -> None:
    from penstock.errors import UsageError

    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; choose a place that can be written") from None
    typer.echo(f"wrote {path}", err=True)


@contextmanager
def _progress() -> "Iterator[Progress]":
    """Show what is being done on stderr while a person watches; a pipe sees nothing."""
    import sys

    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("reading", total=1)

        def update(label: str, done: int, total: int) -> None:
            bar.update(task, description=label, completed=done, total=total)

        yield update


plan_command.__doc__ = f"{plan_command.__doc__}\n{EXAMPLES}"
