"""Reads the user's calibration files, and applies them to the shipped evidence."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from penstock.errors import UsageError
from penstock.performance.calibration.efficiencies import Efficiencies
from penstock.performance.calibration.own_correction import SetupFingerprint
from penstock.performance.shipped.shipped_runs import shipped_efficiencies
from penstock.reading.text import read_text

_REMEDY: Final = "`penstock calibrate RESULTS --to calibration.yaml` writes one"


def efficiencies_with(calibration: str | None) -> Efficiencies:
    """Return the shipped evidence, with the corrections of calibration files that are named with commas between."""
    if calibration is None:
        return shipped_efficiencies()
    from penstock.own_runs.calibration_file import read_correction  # noqa: PLC0415 - reads YAML, which `predict` needs not

    names = [name.strip() for name in str(calibration).split(",") if name.strip()]
    corrections = tuple(read_correction(read_text(Path(name), _REMEDY), Path(name).name) for name in names)
    setups = [one.setup for one in corrections]
    if len(set(setups)) < len(setups):
        raise UsageError("--calibration: two files correct the same setup; name one of them")
    return replace(shipped_efficiencies(), corrections=corrections)


def require_used(efficiencies: Efficiencies, asked: Iterable[SetupFingerprint]) -> None:
    """Raise an error if a calibration corrects none of the setups that the user asks about."""
    setups = list(asked)
    for one in efficiencies.corrections:
        if one.setup in setups or not setups:
            continue
        nearest = min((one.setup.differences(setup) for setup in setups), key=len)
        raise UsageError(
            f"{one.source} does not correct a setup of this question ({'; '.join(nearest)}); "
            "drop --calibration, or ask about the setup that was measured"
        )
