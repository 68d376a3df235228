"""What is known about the silicon, and who says so?"""

from typing import Annotated, get_args

import typer

from penstock.errors import UsageError

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="What is known about accelerators, prices and models, each fact with its source.\n\n"
    "Example: `penstock catalog diff mi300x h100`",
)

Json = Annotated[bool, typer.Option("--json", help="Print as JSON.")]


@app.command("list")
def list_command(
    everything: Annotated[bool, typer.Option("--all", help="Also parts that are announced or unverified.")] = False,
    as_json: Json = False,
) -> None:
    """List the accelerators: memory, bandwidth, dense FLOPS, link.

    Example: `penstock catalog list --all`
    """
    from penstock.catalog import load_accelerators

    parts = [part for part in load_accelerators() if everything or part.recommendable]
    if as_json:
        _echo(parts)
        return
    from penstock.cli.terminal import stdout
    from penstock.report.catalog import render_list

    console = stdout()
    console.print(render_list(parts, console.width))
    hidden = len(load_accelerators()) - len(parts)
    if hidden:
        typer.echo(f"{hidden} announced or unverified parts are not shown; add --all", err=True)


@app.command("show")
def show_command(
    name: Annotated[str, typer.Argument(help="An accelerator, such as mi300x or h100.")], as_json: Json = False
) -> None:
    """Show one accelerator: every fact with its source, date and basis.

    Example: `penstock catalog show mi300x`
    """
    from penstock.catalog import load_accelerator, load_prices

    part, prices = load_accelerator(name), load_prices(name)
    if as_json:
        _echo({"accelerator": part, "prices": prices})
        return
    from penstock.cli.terminal import stdout
    from penstock.report.catalog import render_accelerator

    stdout().print(render_accelerator(part, prices))


@app.command("diff")
def diff_command(
    left: Annotated[str, typer.Argument(help="An accelerator.")],
    right: Annotated[str, typer.Argument(help="Another.")],
    as_json: Json = False,
) -> None:
    """Compare two accelerators, and say where published comparisons of them go wrong.

    Example: `penstock catalog diff mi300x h100`
    """
    from penstock.catalog import load_accelerator
    from penstock.catalog.compare import compare

    ours, theirs = load_accelerator(left), load_accelerator(right)
    if ours.id == theirs.id:
        raise UsageError(f"'{left}' and '{right}' are both {ours.id}; name two accelerators")
    comparison = compare(ours, theirs)
    if as_json:
        _echo(
            {
                "left": comparison.left.id,
                "right": comparison.right.id,
                "rows": comparison.rows,
                "traps": comparison.traps,
            }
        )
        return
    from penstock.cli.terminal import stdout
    from penstock.report.catalog import render_comparison

    stdout().print(render_comparison(comparison))


@app.command("prices")
def prices_command(
    name: Annotated[str, typer.Argument(help="An accelerator.")],
    kind: Annotated[str | None, typer.Option("--kind", help="Only this kind, such as rent_on_demand.")] = None,
    as_json: Json = False,
) -> None:
    """List the dated prices of an accelerator.

    Example: `penstock catalog prices mi300x --kind rent_on_demand`
    """
    from penstock.catalog import load_accelerator, load_prices
    from penstock.catalog.price import PriceKind

    if kind is not None and kind not in get_args(PriceKind):
        raise UsageError(f"'{kind}' is not a kind of price; write one of {', '.join(get_args(PriceKind))}")
    prices = [price for price in load_prices(name) if kind is None or price.kind == kind]
    if as_json:
        _echo(prices)
        return
    from penstock.cli.terminal import stdout
    from penstock.report.catalog import render_prices

    stdout().print(render_prices(load_accelerator(name).id, prices))


@app.command("models")
def models_command(as_json: Json = False) -> None:
    """List the models known by name.

    Example: `penstock catalog models`
    """
    from penstock.catalog import load_models
    from penstock.checkpoint import open_checkpoint

    models = [(model, open_checkpoint(model.id).spec) for model in load_models()]
    if as_json:
        document = [
            {
                "id": model.id,
                "repo": model.repo,
                "architecture": spec.architecture,
                "total_params": spec.total_params,
                "active_params": spec.active_params,
                "published": model.published,
                "source": model.source,
            }
            for model, spec in models
        ]
        _echo(document)
        return
    from penstock.cli.terminal import stdout
    from penstock.report.catalog import render_models

    stdout().print(render_models([(model, spec.total_params, spec.active_params) for model, spec in models]))


def _echo(value: object) -> None:
    from penstock.report.drawing.plain import to_json

    typer.echo(to_json(value))
