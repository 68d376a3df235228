"""The `inspect` command."""

from typing import Annotated

import click

from penstock.api.options.option_fields import Flag


def inspect_command(
    model: Annotated[
        str | None,
        Flag(
            positional=True,
            values="models",
            help="A config.json, a checkpoint directory, a name from `catalog models`, or hf:org/name.",
        ),
    ] = None,
    architectures: Annotated[
        bool, Flag(name="--architectures", help="List the supported architectures and stop.")
    ] = False,
    headers: Annotated[
        bool, Flag(name="--headers", help="Also read the safetensors headers and check them against the config.")
    ] = False,
    as_json: Annotated[bool, Flag(name="--json", help="Print as JSON.")] = False,
) -> None:
    """What does this checkpoint's config say?

    Prints total and active parameters, bytes per component and per format, the number of layers of each kind, and the
    KV-cache bytes per token of each kind of layer. With --headers, exits 1 if the stored tensors contradict the config.

    Examples:

    - `penstock inspect deepseek-v4-flash`
    - `penstock inspect ./Qwen3-8B --headers --json`
    """
    from penstock.report.drawing.plain_json import to_json

    if architectures:
        from penstock.model.architectures import ARCHITECTURES

        names = sorted(ARCHITECTURES)
        click.echo(to_json(names) if as_json else "\n".join(names))
        return
    if model is None:
        raise click.BadParameter("name a model, or use --architectures", param_hint="MODEL")
    from penstock.checkpoint import cross_check, open_checkpoint
    from penstock.cli.console import Watch, stdout

    with Watch("reading the checkpoint"):
        checkpoint = open_checkpoint(model, headers=headers)
        check = cross_check(checkpoint.spec, checkpoint.tensors) if checkpoint.tensors is not None else None
    if as_json:
        from penstock.report.inspect import inspect_document

        click.echo(to_json(inspect_document(checkpoint.spec, checkpoint.source, check)))
    else:
        from penstock.report.inspect import render_model

        stdout().print(render_model(checkpoint.spec, checkpoint.source, check), crop=False)
    if headers and check is None:
        click.echo("no safetensors files next to the config, so --headers checked nothing", err=True)
    if check is not None and not check.agrees:
        raise click.exceptions.Exit(1)
