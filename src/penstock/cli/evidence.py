"""How do commands get at the measured rows? One place that joins the catalog, the models and the physics."""

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.model import ModelSpec
    from penstock.performance.accuracy import Pair


@cache
def model_of(name: str) -> "ModelSpec":
    """Read a catalog model once."""
    from penstock.checkpoint import open_checkpoint

    return open_checkpoint(name).spec


@cache
def measured_pairs() -> "tuple[Pair, ...]":
    """Turn the measurements the shipped efficiencies stand on into the work they did and the time it took."""
    from penstock.catalog import load_accelerator, load_measurements, load_withdrawn
    from penstock.performance.evidence import calibration_rows, first_edition

    return tuple(calibration_rows(first_edition(load_measurements(), load_withdrawn()), model_of, load_accelerator))


@cache
def believed_pairs() -> "tuple[Pair, ...]":
    """Return those of them that are still believed to be what they were taken for."""
    from penstock.catalog import load_measurements

    believed = {row.id for row in load_measurements() if row.plain}
    return tuple(pair for pair in measured_pairs() if pair[0].id in believed)
