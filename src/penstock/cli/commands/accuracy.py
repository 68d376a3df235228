"""The `accuracy` command."""

from typing import Annotated

import click

from penstock.api.options.option_fields import Flag


def accuracy_command(
    by: Annotated[
        str,
        Flag(
            name="--by",
            help="Hold out measurements by month, setup, model, accelerator, lengths or load; `all` "
            "does each of these in turn.",
        ),
    ] = "all",
    as_json: Annotated[bool, Flag(name="--json", help="Print as JSON.")] = False,
) -> None:
    """How large are the prediction errors on measurements that the fit has not seen?

    Predicts every public serving measurement with a model that was fitted without this measurement, and prints the
    errors. With `--by month`, the fit uses only earlier months, as a user at that time would have done. With the other
    values of `--by`, the fit leaves out all measurements with the same setup, model, accelerator, lengths or load. The
    tables by engine, model and load are tools/results/accuracy-*.csv of the repository.

    Example: `penstock accuracy --by model`
    """
    from penstock.cli.console import Watch, stdout
    from penstock.performance.shipped.shipped_runs import shipped_errors
    from penstock.report.accuracy import SPLITS, Published, render_accuracy

    names = list(SPLITS) if by == "all" else [by]
    if unknown := [name for name in names if name not in SPLITS]:
        raise click.BadParameter(
            f"'{unknown[0]}' is not a way to hold out measurements; use one of {', '.join(SPLITS)}, all",
            param_hint="--by",
        )
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
