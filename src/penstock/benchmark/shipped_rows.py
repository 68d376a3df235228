"""What do the shipped measurements say? One place that joins the catalog, the models and the physics."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

from penstock.catalog import load_accelerator, load_efficiencies, load_measurements, load_withdrawn
from penstock.catalog.measurement import Measurement
from penstock.checkpoint import open_checkpoint
from penstock.model import ModelSpec
from penstock.performance.evidence.accuracy import Pair
from penstock.performance.evidence.efficiencies import Efficiencies, from_document
from penstock.performance.evidence.regression import calibrate
from penstock.performance.evidence.rows import calibration_rows, first_edition, measured_deployment, shape_of
from penstock.performance.evidence.setups import Setups
from penstock.performance.prediction.stack import without_each_load


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


@cache
def shipped_efficiencies() -> Efficiencies:
    """Return what commands predict with: what was fitted, and the rows of a setup to bend to."""
    setups = Setups.of(load_measurements(), shape_of_name)
    return replace(from_document(load_efficiencies()), setups=setups)


def efficiencies_without(left_out: Callable[[Measurement], bool]) -> Efficiencies:
    """Return what commands would predict with had some rows never been measured."""
    seen = [row for measurement, row in measured_pairs() if not left_out(measurement)]
    setups = Setups.of((row for row in load_measurements() if not left_out(row)), shape_of_name)
    return replace(shipped_efficiencies(), calibration=calibrate(seen), setups=setups)


@cache
def shape_of_name(name: str) -> str:
    """Name the shape of a catalog model."""
    return shape_of(model_of(name))


def near_errors() -> Iterator[tuple[Measurement, float]]:
    """Predict every row whose setup was measured at other loads, from those alone: seconds per token."""
    efficiencies = shipped_efficiencies()
    seen = set()
    for rows in efficiencies.setups.by_split.values():
        for row in rows:
            placed = measured_deployment(row, model_of, load_accelerator)
            setup = (row.accelerator, row.engine, placed.parallelism, placed.cache_dtype, row.weights)
            if (shape_of(placed.model), *setup) not in seen:
                seen.add((shape_of(placed.model), *setup))
                yield from without_each_load(placed, row.engine, efficiencies)
