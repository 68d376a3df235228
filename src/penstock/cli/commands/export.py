"""The `export` command."""

from pathlib import Path
from typing import Annotated

import click

from penstock.api.options.option_fields import Flag
from penstock.cli.flags.project_file import calibration_choice
from penstock.cli.flags.shared_flags import CalibrationFiles


def export_command(
    fleet: Annotated[Path, Flag(positional=True, help="A fleet file with the endpoints of its pools.")],
    to: Annotated[str, Flag(name="--to", help="Format: envoy, litellm, sglang-router, keda, llm-d, dynamo or aibrix.")],
    calibration: CalibrationFiles = None,
) -> None:
    """How do I use these numbers with my own router?

    Prints the pools of a fleet in another program's format. The weight of an endpoint is the rate that its replica
    sustains within the SLO, from the same model that plans and simulates. envoy: endpoint discovery resources.
    litellm: the proxy's model list with weights, requests per minute and dollars per token. sglang-router: one body per
    line for POST /workers. keda: one ScaledObject per pool. llm-d: one VariantAutoscaling per pool. dynamo: one
    ConfigMap per pool with the profile of its planner. aibrix: one profile per line for its GPU optimizer.

    Example: `penstock export fleet.yaml --to litellm > config.yaml`
    """
    from penstock.api.export import export
    from penstock.cli.console import Watch

    with Watch("computing sustained rates") as watch:
        text = export(fleet, to, calibration=calibration_choice(calibration), watch=watch)
    click.echo(text, nl=False)
