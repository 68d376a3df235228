"""The `calibrate` command."""

from pathlib import Path
from typing import Annotated

import click

from penstock.api.options.calibrate_options import CalibrateOptions
from penstock.api.options.option_fields import Flag
from penstock.cli.console import Watch, show
from penstock.cli.flags.option_flags import Given, with_flags
from penstock.cli.flags.project_file import PROJECT_FILE
from penstock.cli.flags.shared_flags import AsJson
from penstock.errors import UsageError


@with_flags(CalibrateOptions)
def calibrate_command(
    given: Given,
    files: Annotated[
        list[Path] | None,
        Flag(positional=True, metavar="[FILE...]", help="Result files, or folders that a load tool wrote."),
    ] = None,
    *,
    from_gateway: Annotated[
        str | None,
        Flag(
            name="--from-gateway",
            metavar="URL",
            help="Metrics page of a running `penstock route`. Uses what the endpoints of one pool serve meanwhile.",
        ),
    ] = None,
    to: Annotated[Path | None, Flag(name="--to", metavar="FILE", help="Write the calibration file.")] = None,
    as_json: AsJson = False,
) -> None:
    """How fast is my own setup, compared with the prediction?

    Simulates each run as it was recorded, and finds the factor on step times that makes simulated and measured times
    agree. Combines the runs with the public measurements behind the prediction: one run moves it little if the
    prediction is certain. `predict`, `simulate` and `plan` take the calibration file with `--calibration`, and use it
    for exactly this setup. With --from-gateway, the endpoints of a running gateway are watched until they have served
    500 requests; no benchmark is needed. A disturbed run is left out with the reason; the command then exits with 1.
    If times are implausible for the stated setup, no file is written. Proposes the next run: the one that narrows the
    interval most at the measured lengths, or with --plan at the loads of a plan.

    Examples:

    - `penstock calibrate c4.json c16.json --on h100:2 --engine vllm --precision fp8 --kv fp8 --to calibration.yaml`
    - `penstock calibrate --from-gateway http://127.0.0.1:9464 --model qwen3-32b --on h100 --engine vllm --precision fp8
      --kv fp8`
    - `penstock predict llama-3.1-70b --on h100:2 --engine vllm --precision fp8 --kv fp8 --calibration calibration.yaml`
    """
    from penstock.api.calibrate import calibrate
    from penstock.api.observed_runs import is_gateway

    with Watch("simulating the runs") as watch:
        places = [*(files or ()), *((from_gateway,) if from_gateway else ())]
        if from_gateway and not is_gateway(from_gateway):
            raise UsageError("--from-gateway: write the address of a metrics page, such as http://127.0.0.1:9464")
        answer = calibrate(places, **given, watch=watch)
    if to is not None and not answer.usable:
        click.echo(f"did not write {to}: runs are doubtful; if the setup is right, add --accept-doubtful", err=True)
    elif to is not None:
        to.write_text(answer.text(), encoding="utf-8")
        next_step = f"add `--calibration {to}` to predict, simulate or plan, or name it in {PROJECT_FILE}"
        click.echo(f"wrote {to}; next: {next_step}", err=True)
    show(answer, as_json=as_json)
