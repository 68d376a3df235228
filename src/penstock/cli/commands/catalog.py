"""The `catalog` commands."""

from typing import Annotated

import click

from penstock.api.options.option_fields import Flag
from penstock.cli.console import show
from penstock.cli.declared_commands import DeclaredGroup

catalog_command = DeclaredGroup(
    "catalog",
    help="Facts about accelerators, prices and models, each with its source.\n\n"
    "Example: `penstock catalog diff mi300x h100`",
)

Json = Annotated[bool, Flag(name="--json", help="Print as JSON.")]


@catalog_command.declare("list")
def list_command(
    everything: Annotated[bool, Flag(name="--all", help="Also list announced or unverified accelerators.")] = False,
    as_json: Json = False,
) -> None:
    """List the accelerators with memory, bandwidth, dense FLOPS and link.

    Example: `penstock catalog list --all`
    """
    from penstock.api.catalog import catalog
    from penstock.catalog import load_accelerators

    answer = catalog("list", everything=everything)
    show(answer, as_json=as_json)
    hidden = len(load_accelerators()) - len(answer.rows())
    if hidden and not as_json:
        click.echo(f"{hidden} announced or unverified accelerators are not shown; add --all", err=True)


@catalog_command.declare("show")
def show_command(
    name: Annotated[str, Flag(positional=True, values="accelerators", help="An accelerator, such as mi300x or h100.")],
    as_json: Json = False,
) -> None:
    """Show every fact about one accelerator, with its source, date and basis.

    Example: `penstock catalog show mi300x`
    """
    from penstock.api.catalog import catalog

    show(catalog("show", name), as_json=as_json)


@catalog_command.declare("diff")
def diff_command(
    left: Annotated[str, Flag(positional=True, values="accelerators", help="An accelerator.")],
    right: Annotated[str, Flag(positional=True, values="accelerators", help="Another accelerator.")],
    as_json: Json = False,
) -> None:
    """Compare two accelerators, and list common errors in published comparisons.

    Example: `penstock catalog diff mi300x h100`
    """
    from penstock.api.catalog import catalog

    show(catalog("diff", left, right), as_json=as_json)


@catalog_command.declare("prices")
def prices_command(
    name: Annotated[str, Flag(positional=True, values="accelerators", help="An accelerator.")],
    kind: Annotated[
        str | None, Flag(name="--kind", help="List only prices of this kind, such as rent_on_demand.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the dated prices of an accelerator.

    Example: `penstock catalog prices mi300x --kind rent_on_demand`
    """
    from penstock.api.catalog import catalog

    show(catalog("prices", name, kind=kind), as_json=as_json)


@catalog_command.declare("models")
def models_command(as_json: Json = False) -> None:
    """List the models known by name.

    Example: `penstock catalog models`
    """
    from penstock.api.catalog import catalog

    show(catalog("models"), as_json=as_json)
