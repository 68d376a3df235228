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
    """Turn every shipped measurement into the work it did and the time it took."""
    from penstock.catalog import load_accelerator, load_measurements
    from penstock.performance.evidence import calibration_rows

    return tuple(calibration_rows(load_measurements(), model_of, load_accelerator))
