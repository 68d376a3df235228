"""Defines flags that several commands share. Each flag is declared once with its help."""

from typing import Annotated

from penstock.api.options.model_options import CALIBRATION_HELP
from penstock.api.options.option_fields import Flag

AsJson = Annotated[bool, Flag(name="--json", help="Print the result as JSON.")]
CalibrationFiles = Annotated[str | None, Flag(name="--calibration", metavar="FILE", help=CALIBRATION_HELP)]
