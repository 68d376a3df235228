"""The `plan` command."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from penstock.api.options.option_fields import Flag
from penstock.cli.flags.project_file import calibration_choice
from penstock.cli.flags.shared_flags import AsJson, CalibrationFiles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.api.plan import PlanAnswer
    from penstock.planning.plan_result import Answer

EXAMPLES = """
With --share, prints the fewest devices of each accelerator on which all models together keep their SLOs in simulation,
at the peak rate of the first year, and the rent by model.

Examples:

- `penstock plan --init > plan.yaml  # a commented plan to start from`
- `penstock plan plan.yaml`
- `penstock plan plan.yaml --html report.html --fleet fleet.yaml`
- `penstock plan plan.yaml --rfp request/`
- `penstock plan plan.yaml --json`
- `penstock plan plan.yaml --share  # many small models on shared devices`
"""


def plan_command(
    file: Annotated[
        Path | None, Flag(positional=True, help="A plan file; `--init` prints an example.", show_default=False)
    ] = None,
    init: Annotated[bool, Flag(name="--init", help="Print a commented example of a plan file and exit.")] = False,
    schema: Annotated[bool, Flag(name="--schema", help="Print a JSON schema of plan files for editors.")] = False,
    html: Annotated[
        Path | None,
        Flag(
            name="--html",
            help="Write the report as one self-contained HTML file (needs the `report` extra).",
            show_default=False,
        ),
    ] = None,
    fleet: Annotated[
        Path | None,
        Flag(
            name="--fleet",
            help="Write the chosen fleet as fleet.yaml. If it changes over time, also one file per later period.",
            show_default=False,
        ),
    ] = None,
    rfp: Annotated[
        Path | None,
        Flag(
            name="--rfp",
            help="Write a request for proposals (questions, workload, acceptance benchmark) into this directory.",
            show_default=False,
        ),
    ] = None,
    calibration: CalibrationFiles = None,
    share: Annotated[bool, Flag(name="--share", help="Place all models on shared devices instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Which fleet should be bought?

    Finds the cheapest fleet, of AMD, NVIDIA or both, that serves the workloads within their SLOs. Prints the fleet's
    accelerators, its total cost, the confidence in the choice, and the inputs that would change the choice. Exits 1 if
    no fleet satisfies every rule of the plan.
    """
    if init:
        _print_example()
        return
    if schema:
        _print_plan_schema()
        return
    if file is None:
        raise click.BadParameter("name a plan file, or print an example with --init", param_hint="FILE")
    if share:
        _share(file, fleet, as_json=as_json, ignored=(html, rfp, calibration))
        return
    if html is not None:
        from penstock.report.drawing.chart_files import check_drawable

        check_drawable(".html")
    from penstock.api.plan import plan
    from penstock.cli.console import Watch

    with Watch("planning") as watch:
        answer = plan(file, calibration=calibration_choice(calibration), watch=watch)
    _write_and_show(file, answer, html=html, fleet=fleet, rfp=rfp, as_json=as_json)


def _write_and_show(
    file: Path, answer: "PlanAnswer", *, html: Path | None, fleet: Path | None, rfp: Path | None, as_json: bool
) -> None:
    """Write the requested files, print the answer, and name the next commands unless the answer is JSON."""
    from penstock.cli.console import show, write_file
    from penstock.planning.plan_result import NoFleet

    found = answer.result.answer
    if not isinstance(found, NoFleet):
        for path, text, note in _files(answer, found, html=html, fleet=fleet, rfp=rfp):
            write_file(path, text, note=note)
        if found.measurement is not None:
            from penstock.report.plan.confidence_sentences import measurement_sentence

            click.echo(measurement_sentence(found.measurement, str(file)), err=True)
    show(answer, as_json=as_json)
    if not as_json and not isinstance(found, NoFleet):
        _show_next_commands(file, found, fleet=fleet, rfp=rfp)


def _show_next_commands(file: Path, found: "Answer", *, fleet: Path | None, rfp: Path | None) -> None:
    """Print the commands that come after this one. They depend on the files that were written."""
    from rich.console import Group

    from penstock.cli.console import stdout
    from penstock.report.plan.next_steps import next_steps
    from penstock.report.predict_summary import next_commands

    console = stdout()
    steps = next_steps(file, fleet=fleet, rfp=rfp, vendors=sorted(found.winner.mix.vendors))
    console.print(Group(*next_commands(steps, console.width)), crop=False)


def _print_example() -> None:
    from penstock.planning.spec.example_plan import EXAMPLE_PLAN

    click.echo(EXAMPLE_PLAN, nl=False)


def _print_plan_schema() -> None:
    """Print the JSON schema of plan files."""
    from penstock.planning.spec.plan_file import PLAN_FILE
    from penstock.report.drawing.plain_json import to_json

    click.echo(to_json(PLAN_FILE.schema()))


def _share(file: Path, fleet: Path | None, *, as_json: bool, ignored: tuple[object, ...]) -> None:
    """Plan shared devices, print the result and write the fleet file. Options that would be ignored are refused."""
    if any(ignored):
        raise click.BadParameter("leave out --html, --rfp and --calibration", param_hint="--share")
    from penstock.api.plan_shared import plan_shared
    from penstock.cli.console import Watch, show, write_file
    from penstock.fleet.fleet_file import write_fleet

    with Watch("simulating shared devices") as watch:
        answer = plan_shared(file, watch=watch)
    if fleet is not None and answer.result.choices:
        best = answer.result.choices[0].accelerator
        write_file(fleet, write_fleet(answer.result.fleets[best]), note=f"the fleet on {best}")
    show(answer, as_json=as_json)


def _files(
    answer: "PlanAnswer", found: "Answer", *, html: Path | None, fleet: Path | None, rfp: Path | None
) -> "Iterator[tuple[Path, str, str]]":
    """Yield the path, the text and a note of each requested file."""
    if fleet is not None:
        from penstock.fleet.fleet_file import write_fleet

        (_, first), *later = answer.fleets()
        yield fleet, write_fleet(first), "the fleet to deploy first" if later else ""
        for start, described in later:
            path = fleet.with_name(f"{fleet.stem}-from-{start}{fleet.suffix}")
            yield path, write_fleet(described), f"the fleet from {start}"
    if rfp is not None:
        from penstock.cli.console import make_directory
        from penstock.report.plan.rfp import rfp_pack

        make_directory(rfp)
        pack = rfp_pack(answer.result, found, answer.sustained)
        yield from ((rfp / name, text, "") for name, text in pack.items())
    if html is not None:
        from penstock.report.plan.page import plan_html

        yield html, plan_html(answer.result, answer.launches()), ""


plan_command.__doc__ = f"{plan_command.__doc__}\n{EXAMPLES}"
