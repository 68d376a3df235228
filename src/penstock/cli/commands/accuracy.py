"""How wrong are we?"""

from typing import Annotated

import typer


def accuracy_command(
    by: Annotated[
        str, typer.Option("--by", help="What is held out together: shape, configuration, model, accelerator, or all.")
    ] = "shape",
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """How wrong are the predictions, on measurements they never saw?

    Every public row is predicted by a fit that saw no row of its fold: its lengths, its exact setup, its model, or its
    accelerator. `shape` takes half a minute, `all` two. docs/accuracy.md has the full tables.

    Example: `penstock accuracy --by model`
    """
    from penstock.benchmark.shipped_rows import measured_pairs
    from penstock.catalog import load_accelerator
    from penstock.cli.terminal import progress
    from penstock.performance.evidence.accuracy import FOLDS, contests, hold_out, with_coverage
    from penstock.report.accuracy import SCENARIOS, render_accuracy, summary_rows

    names = list(FOLDS) if by == "all" else [by]
    if unknown := [name for name in names if name not in FOLDS]:
        raise typer.BadParameter(f"'{unknown[0]}' is not one of {', '.join(FOLDS)}, all", param_hint="--by")
    pairs = measured_pairs()
    held, winners = [], {}
    for name in names:
        rows = list(progress(hold_out(pairs, FOLDS[name]), total=len(pairs), label=f"held out by {name}"))
        held.append(with_coverage(name, rows))
        crossed = [found for found in contests(rows, lambda part: load_accelerator(part).vendor) if found.cross_vendor]
        winners[f"held out by {name}, AMD against NVIDIA"] = crossed
    if as_json:
        from penstock.report.drawing.plain import to_json

        document = {
            each.name: {scenario: dict(summary_rows(each, scenario, "accelerator")) for scenario in SCENARIOS}
            for each in held
        }
        typer.echo(to_json(document))
        return
    from penstock.cli.terminal import stdout

    stdout().print(render_accuracy(held, winners))
