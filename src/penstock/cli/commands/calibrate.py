"""The `calibrate` command."""

from pathlib import Path
from typing import Annotated

import click

from penstock.api.options.option_fields import Flag
from penstock.cli.console import Watch, show
from penstock.cli.flags.shared_flags import AsJson

EXAMPLES = """
Examples:

- `penstock calibrate c4.json c16.json --on h100:2 --engine vllm --precision fp8 --kv fp8 --to calibration.yaml`
- `penstock predict llama-3.1-70b --on h100:2 --engine vllm --precision fp8 --kv fp8 --calibration calibration.yaml`
"""


def calibrate_command(
    files: Annotated[
        list[Path], Flag(positional=True, metavar="FILE...", help="Result files, or folders that a load tool wrote.")
    ],
    on: Annotated[str, Flag(name="--on", help="The accelerator and its devices per replica, such as h100:2.")],
    engine: Annotated[str, Flag(name="--engine", help="Engine: vllm, sglang, vllm-atom, sglang-atom, atom or trtllm.")],
    precision: Annotated[str, Flag(name="--precision", help="Weight format: bf16, fp16, fp8, mxfp4, nvfp4 or int4.")],
    kv: Annotated[str, Flag(name="--kv", help="KV cache dtype: bf16, fp16 or fp8.")],
    model: Annotated[
        str | None, Flag(name="--model", help="Model as in `catalog models`. Default: the name that the files state.")
    ] = None,
    engine_version: Annotated[
        str | None, Flag(name="--engine-version", help="Release of the engine, kept in the calibration file.")
    ] = None,
    dp: Annotated[int, Flag(name="--dp", help="Number of data-parallel ranks of attention.", min=1)] = 1,
    ep: Annotated[bool, Flag(name="--ep", help="Whole experts were distributed over the ranks.")] = False,
    shared_prefixes: Annotated[
        bool, Flag(name="--shared-prefixes", help="The prompts share prefixes on purpose. Accept cache hits.")
    ] = False,
    to: Annotated[Path | None, Flag(name="--to", metavar="FILE", help="Write the calibration file.")] = None,
    as_json: AsJson = False,
) -> None:
    """How fast is my own setup, compared with the prediction?

    Simulates each run as it was recorded, and finds the factor on step times that makes simulated and measured times
    agree. Combines the runs with the public measurements behind the prediction: one run moves it little if the
    prediction is certain. `predict`, `simulate` and `plan` take the calibration file with `--calibration`, and use it
    for exactly this setup. A disturbed run is left out with the reason; the command then exits with 1.
    """
    from penstock.api.calibrate import calibrate

    with Watch("simulating the runs") as watch:
        answer = calibrate(
            files,
            on,
            engine,
            precision,
            kv,
            model=model,
            engine_version=engine_version,
            dp=dp,
            ep=ep,
            shared_prefixes=shared_prefixes,
            watch=watch,
        )
    if to is not None:
        to.write_text(answer.text(), encoding="utf-8")
        click.echo(f"wrote {to}; next: add `--calibration {to}` to predict, simulate or plan", err=True)
    show(answer, as_json=as_json)


calibrate_command.__doc__ = f"{calibrate_command.__doc__}\n{EXAMPLES}"
