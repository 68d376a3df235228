"""The `tax` command."""

from typing import Annotated

import click

from penstock.api.options.option_fields import Flag


def tax_command(
    on: Annotated[str | None, Flag(name="--on", help="Show only these accelerators, comma separated.")] = None,
    engine: Annotated[
        str | None,
        Flag(name="--engine", help="Show only this engine: vllm, vllm-atom, sglang, sglang-atom, trtllm or atom."),
    ] = None,
    as_json: Annotated[bool, Flag(name="--json", help="Print as JSON.")] = False,
) -> None:
    """What fraction of the roofline does each software stack deliver, month by month?

    Prints the software tax, the part of the roofline that a stack does not deliver, for each month with public serving
    measurements.

    Example: `penstock tax --on mi300x,mi355x,h200`
    """
    from penstock.api.arguments.choices import counted_targets
    from penstock.cli.console import Watch, stdout
    from penstock.performance.calibration.software_tax import delivered_over_time
    from penstock.performance.shipped.shipped_runs import shipped_efficiencies

    wanted = None if on is None else {accelerator.id for accelerator, _ in counted_targets(on)}
    with Watch("comparing measurements with the roofline"):
        points = [
            point
            for point in delivered_over_time(shipped_efficiencies().evidence)
            if (wanted is None or point.accelerator in wanted) and engine in {None, point.engine}
        ]
    if as_json:
        from penstock.report.drawing.plain_json import to_json

        click.echo(to_json({"schema": "penstock.tax/1", "points": points}))
        return
    from penstock.report.tax import render_tax

    console = stdout()
    console.print(render_tax(points, console.width))
