"""Which fleet should be bought?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.flags.options import AsJson

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.planning.asked.plan import Plan
    from penstock.planning.make import PlanResult, Sources
    from penstock.workload import Trace

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
    schema: Annotated[bool, typer.Option("--schema", help="Print a JSON schema of plan files for editors.")] = False,
    html: Annotated[
        Path | None,
        typer.Option("--html", help="Write the report as one self-contained HTML file.", show_default=False),
    ] = None,
    fleet: Annotated[
        Path | None, typer.Option("--fleet", help="Write the chosen fleet as fleet.yaml.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Which fleet should be bought?

    Accelerators, how many, AMD, NVIDIA or both: the cheapest fleet that serves the workloads within their SLOs, its
    cost all in, how sure that is, and what would change it. Exits 1 when no fleet keeps every rule.
    """
    if init:
        from penstock.planning.asked.example import EXAMPLE_PLAN

        typer.echo(EXAMPLE_PLAN, nl=False)
        return
    if schema:
        from penstock.planning.asked.schema import plan_schema
        from penstock.report.drawing.plain import to_json

        typer.echo(to_json(plan_schema()))
        return
    if file is None:
        raise typer.BadParameter("name a plan file, or print one with --init", param_hint="FILE")
    from penstock.cli.terminal import Watch, write_file
    from penstock.planning.make import NoFleet, make_plan

    plan = _read(file)
    with Watch() as watch:
        watch.compiling()
        result = make_plan(plan, sources_of(plan, file.parent), watch.tell)
    if isinstance(result.answer, NoFleet):
        _show(result, as_json=as_json)
        raise typer.Exit(1)
    if html is not None:
        from penstock.report.plan.page import plan_html

        write_file(html, plan_html(result))
    if fleet is not None:
        from penstock.fleet.file import write_fleet
        from penstock.planning.fleet_of import fleet_of

        write_file(fleet, write_fleet(fleet_of(result, result.answer)))
    _show(result, as_json=as_json)


def _read(file: Path) -> "Plan":
    from datetime import UTC, datetime

    from penstock.errors import UsageError
    from penstock.planning.asked.plan_yaml import parse_plan

    try:
        if file.stat().st_size > _MAX_BYTES:
            raise UsageError(f"{file.name} is larger than {_MAX_BYTES:,} bytes; a plan is a page or two")
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UsageError(f"{file}: {reason}; `penstock plan --init > plan.yaml` writes one to start from") from None
    return _named(parse_plan(text, file.name, today=datetime.now(tz=UTC).date()))


def _named(plan: "Plan") -> "Plan":
    """Give what is owned its catalog name: a plan that names no accelerators has nothing else to find it by."""
    from dataclasses import replace

    from penstock.catalog import load_accelerator

    return replace(plan, owned=tuple(replace(entry, id=load_accelerator(entry.id).id) for entry in plan.owned))


def sources_of(plan: "Plan", folder: Path) -> "Sources":
    """Join the catalog, the models and the simulator."""
    from penstock.benchmark.shipped_energy import drawn_under_load
    from penstock.benchmark.shipped_rows import model_of, shipped_efficiencies
    from penstock.catalog import load_accelerator, load_accelerators, load_prices
    from penstock.planning.asked.trace_lengths import trace_lengths
    from penstock.planning.candidates.screen import QueuelessScreen
    from penstock.planning.make import Sources
    from penstock.planning.proof.simulated import simulated_capacity, verify_by
    from penstock.planning.proof.simulator import Simulator

    columns = {workload.trace: workload.columns for workload in plan.workloads if workload.trace is not None}
    efficiencies = shipped_efficiencies()
    loop = QueuelessScreen(efficiencies)
    simulator = Simulator(loop, seed=plan.seed)
    return Sources(
        accelerators=tuple(load_accelerator(part.id) for part in plan.parts) or load_accelerators(),
        prices_of=load_prices,
        model_of=model_of,
        capacity_of=simulated_capacity(simulator.sketched, loop),
        capacity_note="Capacity within the SLO by simulation: replicas behind one router, Poisson arrivals of the "
        "workload's mix of lengths, the engine that carries most.",
        screen=loop,
        engines_of=efficiencies.engines,
        verify_of=verify_by(simulator.sustained, simulator.attained),
        read_trace=lambda name: trace_lengths(_recorded(folder / name, columns.get(name)).blocks()),
        draw_of=drawn_under_load,
    )


def _recorded(path: Path, columns: "Mapping[str, str] | None") -> "Trace":
    """Read a trace, and say which column was read as what where that was not plain."""
    from penstock.cli.flags.workload_choice import mapping_note
    from penstock.workload import read_trace

    trace = read_trace(path, columns=columns or None)
    if trace.mapping:
        typer.echo(mapping_note(path.name, trace.mapping), err=True)
    return trace


def _show(result: "PlanResult", *, as_json: bool) -> None:
    if as_json:
        from penstock.report.drawing.plain import to_json
        from penstock.report.plan.document import plan_document

        typer.echo(to_json(plan_document(result)))
        return
    from penstock.cli.terminal import stdout
    from penstock.report.plan.terminal import render_plan

    console = stdout()
    console.print(render_plan(result, console.width))


plan_command.__doc__ = f"{plan_command.__doc__}\n{EXAMPLES}"
