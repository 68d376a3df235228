"""The `fp8` commands."""

from typing import Annotated

import click

from penstock.api.options.option_fields import Flag
from penstock.cli.declared_commands import DeclaredGroup
from penstock.cli.flags.shared_flags import AsJson

fp8_command = DeclaredGroup("fp8", help="Inspect FP8 checkpoints byte by byte.")

EXAMPLES = """
Examples:

- `penstock fp8 scan ./DeepSeek-R1`
- `penstock fp8 scan ./model-00001-of-00030.safetensors --json`
- `penstock fp8 scan ./DeepSeek-R1 --strict  # as a gate`
"""


def scan_command(
    path: Annotated[str, Flag(positional=True, help="A checkpoint directory, or one safetensors file.")],
    *,
    strict: Annotated[bool, Flag(name="--strict", help="Exit 1 also if something is only suspicious.")] = False,
    as_json: AsJson = False,
) -> None:
    """Read every FP8 tensor and scale, and report defects.

    Streams the files with little memory, and does not change them. Reports the FP8 dialect, NaN codes, missing or
    impossible scales, and how an accelerator of the other dialect would read the bytes. Every byte is checked for
    damage. Percentages of values are estimated from a sample of the bytes. Exits 1 if damage is found, and with
    --strict also if something is suspicious.
    """
    from pathlib import Path

    from penstock.checkpoint.fp8.scan import scan_bytes, scan_fp8
    from penstock.cli.console import byte_progress
    from penstock.errors import CheckpointError

    folder = Path(path)
    if not folder.exists():
        raise CheckpointError(f"{path} does not exist; give a checkpoint directory or a safetensors file")
    with byte_progress(scan_bytes(folder), "scanning") as advance:
        found = scan_fp8(folder, advance)
    if as_json:
        from penstock.report.drawing.plain_json import to_json
        from penstock.report.fp8 import scan_document

        click.echo(to_json(scan_document(found)))
    else:
        from penstock.cli.console import stdout
        from penstock.report.fp8 import render_scan

        console = stdout()
        console.print(render_scan(found, console.width))
    if any(strict or finding.level == "damage" for finding in found.findings):
        raise click.exceptions.Exit(1)


scan_command.__doc__ = f"{scan_command.__doc__}\n{EXAMPLES}"
fp8_command.declare("scan")(scan_command)
