"""Names the calibration files behind an answer."""

from collections.abc import Sequence
from math import exp

from rich.text import Text

from penstock.performance.calibration.own_correction import OwnCorrection


def correction_note(corrections: Sequence[OwnCorrection]) -> Text:
    """Return one line per calibration file behind an answer."""
    known = {one.source: one for one in corrections}
    sentences = [
        f"Corrected by {name}: steps take {exp(one.errors.level):.2f}x the time of the public measurements at the "
        f"measured loads, prompt tokens another {exp(one.prompt_log):.2f}x."
        for name, one in known.items()
    ]
    return Text("\n".join(sentences))
