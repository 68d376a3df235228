"""Defines flags that several commands share. Each flag is declared once with its help."""

from typing import Annotated

from penstock.api.options.option_fields import Flag

AsJson = Annotated[bool, Flag(name="--json", help="Print the result as JSON.")]
