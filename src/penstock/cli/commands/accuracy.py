"""The `accuracy` command."""

from typing import Annotated

import click

from penstock.api.options.option_fields import Flag


def accuracy_command(
    by: Annotated[
        str,
        Flag(
            name="--by",
            help="What the fit leaves out: month, setup, model, accelerator, lengths, load, or all in turn.",
        ),
    ] = "all",
    as_json: Annotated[bool, Flag(name="--json", help="Print as JSON.")] = False,
) -> None:
    """How wrong are the predictions for measurements that they were not fitted to?

    Predicts every public serving measurement after a fit that leaves out some measurements, and prints the errors.
    With `--by month`, each measurement is predicted from earlier months only, as a user at that time could. The other
    values leave out all measurements with the same setup, model, accelerator, lengths or load. The full tables are in
    docs/accuracy.md of the repository.

    Example: `penstock accuracy --by model`
    """
    from penstock.cli.console import Watch, stdout
    from penstock.performance.shipped.shipped_runs import shipped_errors
    from penstock.report.accuracy import SPLITS, Published, render_accuracy

    names = list(SPLITS) if by == "all" else [by]
    if unknown := [name for name in names if name not in SPLITS]:
        raise click.BadParameter(f"'{unknown[0]}' is not one of {', '.join(SPLITS)}, all", param_hint="--by")
    with Watch("comparing predictions with measurements"):
        published = [Published.of(name, *shipped_errors(name)) for name in names]
    if as_json:
        from penstock.report.drawing.plain_json import to_json

        document = {
            each.name: {"all": each.summary(), "accelerators": dict(each.by("part")), "winners": each.winners}
            for each in published
        }
        click.echo(to_json({"schema": "penstock.accuracy/1", "held_out": document}))
        return
    stdout().print(render_accuracy(published))
