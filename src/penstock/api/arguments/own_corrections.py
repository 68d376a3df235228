"""Reads the user's calibration files, and applies them to the shipped evidence."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from penstock.api.options.calibration_choice import AskedCalibration, FoundCalibrations
from penstock.errors import UsageError
from penstock.performance.calibration.efficiencies import Efficiencies
from penstock.performance.calibration.own_correction import SetupFingerprint
from penstock.performance.shipped.shipped_runs import shipped_efficiencies
from penstock.reading.text import read_text

_REMEDY: Final = "`penstock calibrate RESULTS --to calibration.yaml` writes one"


def efficiencies_with(calibration: AskedCalibration | None) -> Efficiencies:
    """Return the shipped evidence, with the corrections of calibration files."""
    if calibration is None:
        return shipped_efficiencies()
    from penstock.own_runs.calibration_file import read_correction  # noqa: PLC0415 - reads YAML, which `predict` needs not

    named = not isinstance(calibration, FoundCalibrations)
    names = calibration.split(",") if isinstance(calibration, str) else calibration.files
    paths = [Path(name.strip()) for name in names if name.strip()]
    read = (read_correction(read_text(path, _REMEDY), path.name) for path in paths)
    corrections = tuple(replace(one, must_fit=named) for one in read)
    setups = [one.setup for one in corrections]
    if len(set(setups)) < len(setups):
        raise UsageError("--calibration: two files correct the same setup; name one of them")
    return replace(shipped_efficiencies(), corrections=corrections)


def require_used(efficiencies: Efficiencies, asked: Iterable[SetupFingerprint]) -> None:
    """Raise an error if a calibration that the user named corrects none of the setups that the user asks about."""
    setups = list(asked)
    for one in efficiencies.corrections:
        if not one.must_fit or one.setup in setups or not setups:
            continue
        nearest = min((one.setup.differences(setup) for setup in setups), key=len)
        raise UsageError(
            f"{one.source} does not correct a setup of this question ({'; '.join(nearest)}); "
            "drop --calibration, or ask about the setup that was measured"
        )
