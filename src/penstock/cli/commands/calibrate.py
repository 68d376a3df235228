"""The `calibrate` command."""

from pathlib import Path
from typing import Annotated

import click

from penstock.api.options.calibrate_options import CalibrateOptions
from penstock.api.options.option_fields import Flag
from penstock.cli.console import Watch, show
from penstock.cli.flags.option_flags import Given, with_flags
from penstock.cli.flags.shared_flags import AsJson


@with_flags(CalibrateOptions)
def calibrate_command(
    given: Given,
    files: Annotated[
        list[Path], Flag(positional=True, metavar="FILE...", help="Result files, or folders that a load tool wrote.")
    ],
    *,
    to: Annotated[Path | None, Flag(name="--to", metavar="FILE", help="Write the calibration file.")] = None,
    as_json: AsJson = False,
) -> None:
    """How fast is my own setup, compared with the prediction?

    Simulates each run as it was recorded, and finds the factor on step times that makes simulated and measured times
    agree. Combines the runs with the public measurements behind the prediction: one run moves it little if the
    prediction is certain. `predict`, `simulate` and `plan` take the calibration file with `--calibration`, and use it
    for exactly this setup. A disturbed run is left out with the reason; the command then exits with 1.

    Examples:

    - `penstock calibrate c4.json c16.json --on h100:2 --engine vllm --precision fp8 --kv fp8 --to calibration.yaml`
    - `penstock predict llama-3.1-70b --on h100:2 --engine vllm --precision fp8 --kv fp8 --calibration calibration.yaml`
    """
    from penstock.api.calibrate import calibrate

    with Watch("simulating the runs") as watch:
        answer = calibrate(files, **given, watch=watch)
    if to is not None:
        to.write_text(answer.text(), encoding="utf-8")
        click.echo(f"wrote {to}; next: add `--calibration {to}` to predict, simulate or plan", err=True)
    show(answer, as_json=as_json)
