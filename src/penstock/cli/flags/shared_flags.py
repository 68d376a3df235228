"""Defines flags that several commands share. Each flag is declared once with its help."""

from typing import Annotated

import typer

from penstock.api.options.simulate_options import COLUMNS_HELP

Columns = Annotated[str | None, typer.Option("--columns", help=COLUMNS_HELP)]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
