"""Are these FP8 weights sound?"""

from typing import Annotated

import typer

from penstock.cli.flags.shared_flags import AsJson

app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown", help="Look into FP8 checkpoints, byte by byte.")

EXAMPLES = """
Examples:

- `penstock fp8 scan ./DeepSeek-R1`
- `penstock fp8 scan ./model-00001-of-00030.safetensors --json`
"""


@app.callback()
def group() -> None:
    """Keep `scan` a word of its own: more commands may join it."""


def scan_command(
    path: Annotated[str, typer.Argument(help="A checkpoint directory, or one safetensors file.")],
    as_json: AsJson = False,
) -> None:
    """Read every FP8 tensor and scale, and say what is wrong with them.

    Streams the files in little memory and changes nothing: dialect, NaN codes, scales that are missing or cannot be
    right, and what a chip of the other dialect would make of the bytes. Damage is looked for in every byte; shares are
    from a sample. Exits 1 when something is damaged.
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

        typer.echo(to_json(scan_document(found)))
    else:
        from penstock.cli.console import stdout
        from penstock.report.fp8 import render_scan

        console = stdout()
        console.print(render_scan(found, console.width))
    if any(finding.level == "damage" for finding in found.findings):
        raise typer.Exit(1)


scan_command.__doc__ = f"{scan_command.__doc__}\n{EXAMPLES}"
app.command(name="scan")(scan_command)
