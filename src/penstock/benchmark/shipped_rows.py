"""What do the shipped measurements say? One place that joins the catalog, the models and the physics."""

from functools import cache

from penstock.catalog import load_accelerator, load_measurements
from penstock.checkpoint import open_checkpoint
from penstock.model import ModelSpec
from penstock.performance.evidence.accuracy import Pair
from penstock.performance.evidence.rows import calibration_rows


@cache
def model_of(name: str) -> ModelSpec:
    """Read a catalog model once."""
    return open_checkpoint(name).spec


@cache
def measured_pairs() -> tuple[Pair, ...]:
    """Turn every shipped measurement into the work it did and the time it took."""
    return tuple(calibration_rows(load_measurements(), model_of, load_accelerator))
