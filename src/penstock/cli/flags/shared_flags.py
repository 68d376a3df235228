"""Defines flags that several commands share. Each flag is declared once with its help."""

from typing import Annotated

from penstock.api.options.option_fields import Flag
from penstock.api.options.simulate_options import COLUMNS_HELP

Columns = Annotated[str | None, Flag(name="--columns", help=COLUMNS_HELP)]
AsJson = Annotated[bool, Flag(name="--json", help="Print the result as JSON.")]
