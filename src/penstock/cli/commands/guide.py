"""The `guide` command."""

from pathlib import Path
from typing import Annotated

import click

from penstock.api.options.guide_options import GuideOptions
from penstock.api.options.option_fields import Flag
from penstock.cli.console import Watch, show, write_file
from penstock.cli.flags.option_flags import Given, with_flags
from penstock.cli.flags.shared_flags import AsJson


@with_flags(GuideOptions)
def guide_command(
    given: Given,
    what: Annotated[
        str | None,
        Flag(positional=True, help="A model, or a guide file (.yaml); `--init` prints an example.", show_default=False),
    ] = None,
    *,
    init: Annotated[bool, Flag(name="--init", help="Print a commented example of a guide file and exit.")] = False,
    html: Annotated[
        Path | None,
        Flag(
            name="--html",
            help="Write the guide as one self-contained HTML file (needs the `report` extra).",
            show_default=False,
        ),
    ] = None,
    routes: Annotated[
        Path | None,
        Flag(
            name="--routes",
            help="Write the cheapest fleets as a fleet file with a route per workload, for `penstock route` and "
            "`simulate --fleet`.",
            show_default=False,
        ),
    ] = None,
    routes_load: Annotated[
        float | None,
        Flag(
            name="--routes-load",
            help="Requests per second of each workload in --routes. Default: with --trace, its share of the trace's "
            "busiest minute; otherwise the middle load of the grid.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Which workloads belong on which accelerators?

    Finds the cheapest fleet of each vendor for every prompt length and load of a grid, with the parts of `penstock
    plan`: candidates, simulated capacity, prices, spares, headroom and draws. Prints a map of the winners, their margin
    over the other vendor, and the loads, prompts and prices at which the answer turns. Exits 1 if no accelerator keeps
    the SLO of any workload.

    Examples:

    - `penstock guide llama-3.1-70b`
    - `penstock guide llama-3.1-70b --prompts 2k,32k --loads 1,8,64 --on mi325x,mi355x,h200,b200`
    - `penstock guide guide.yaml --html guide.html --routes fleet.yaml`
    """
    if init:
        from penstock.guide.guide_file import EXAMPLE_GUIDE

        click.echo(EXAMPLE_GUIDE, nl=False)
        return
    if what is None:
        raise click.BadParameter("name a model or a guide file, or print an example with --init", param_hint="WHAT")
    if html is not None:
        from penstock.report.drawing.chart_files import check_drawable

        check_drawable(".html")
    from penstock.api.guide import guide

    with Watch("mapping workloads") as watch:
        answer = guide(what, **given, watch=watch)
    if routes is not None:
        from penstock.fleet.fleet_file import write_fleet

        write_file(routes, write_fleet(fleet := answer.fleet(routes_load)), note=fleet.note or "")
    if html is not None:
        from penstock.report.guide.page import guide_html

        write_file(html, guide_html(answer.result))
    show(answer, as_json=as_json)
