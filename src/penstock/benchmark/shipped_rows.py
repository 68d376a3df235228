"""What do the shipped measurements say? One place that joins the catalog, the models and the physics."""

from functools import cache

from penstock.catalog import load_accelerator, load_measurements, load_withdrawn
from penstock.checkpoint import open_checkpoint
from penstock.model import ModelSpec
from penstock.performance.evidence.accuracy import Pair
from penstock.performance.evidence.rows import calibration_rows, first_edition


@cache
def model_of(name: str) -> ModelSpec:
    """Read a catalog model once."""
    return open_checkpoint(name).spec


@cache
def measured_pairs() -> tuple[Pair, ...]:
    """Turn the measurements the shipped efficiencies stand on into the work they did and the time it took."""
    return tuple(calibration_rows(first_edition(load_measurements(), load_withdrawn()), model_of, load_accelerator))


@cache
def believed_pairs() -> tuple[Pair, ...]:
    """Return those of them that are still believed to be what they were taken for."""
    believed = {row.id for row in load_measurements() if row.plain}
    return tuple(pair for pair in measured_pairs() if pair[0].id in believed)
