"""What was measured of the very setup? Its rows, and slowdowns that bend to them."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from penstock.catalog.measurement import Measurement
from penstock.fleet.deployment import Deployment
from penstock.model import CacheDtype
from penstock.performance.evidence.rows import batched_tokens, shape_of, weights_label
from penstock.performance.step.work import PARTS, PHYSICAL, Array, Load, ReplicaWork

_LEAST_LOADS: Final = 3
"""Loads and lengths that make a curve."""
_FADES_DAYS: Final = 120.0
"""Software moves: a row counts by a third after so long beside the newest."""
_UNDATED_WEIGHT: Final = 0.3
"""Of a median over months, whose software nobody knows."""
_MOST_WEIGHT: Final = 12.0
"""Repeats of a curve say no more than so many rows."""
_NOISE: Final = 0.05
_FREEDOM: Final = np.array([0.25] * PHYSICAL + [0.7] * (len(PARTS) - PHYSICAL))
"""How far, as logarithms, a setup's own slowdowns may be from those of its kin: bandwidths little, launches more."""
_TOGETHER: Final = 0.4
"""How far all of them together."""
_PULL: Final = np.linalg.inv(np.diag(_FREEDOM**2) + _TOGETHER**2)
_FARTHEST: Final = 2.5

Split = tuple[str, str, str, int, int, bool]
"""Accelerator, engine, weights, and the ranks."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Setups:
    """Plain serving rows by what exactly served."""

    by_split: Mapping[Split, tuple[Measurement, ...]] = field(default_factory=dict)
    shape_of_name: Callable[[str], str] = str
    """The shape of a model by its catalog name: fine-tunes of one shape are one setup."""

    @staticmethod
    def of(measurements: Iterable[Measurement], shape_of_name: Callable[[str], str]) -> "Setups":
        """Index what was measured in a closed loop of one engine that drafts nothing."""
        found: dict[Split, list[Measurement]] = defaultdict(list)
        for row in measurements:
            if row.plain and row.scenario == "online" and row.tpot_s and row.concurrency:
                found[row.accelerator, row.engine, row.weights, row.tp, row.dp, row.ep].append(row)
        return Setups(by_split={key: tuple(rows) for key, rows in found.items()}, shape_of_name=shape_of_name)

    def engines(self, accelerator: str) -> frozenset[str]:
        """The engines an accelerator was measured with."""
        return frozenset(engine for part, engine, *_ in self.by_split if part == accelerator)

    def rows(self, deployment: Deployment, measured_engine: str) -> tuple[Measurement, ...]:
        """Rows of this very setup; none where they are too few to be a curve."""
        split, weights = deployment.parallelism, weights_label(deployment.model)
        key = (deployment.accelerator.id, measured_engine, weights, split.tp, split.dp, split.expert_parallel)
        if split.pp > 1 or key not in self.by_split:
            return ()
        shape = shape_of(deployment.model)
        found = tuple(
            row
            for row in self.by_split[key]
            if _cached_alike(row, deployment) and self.shape_of_name(row.model) == shape
        )
        return found if len({load_of(row) for row in found}) >= _LEAST_LOADS else ()


def load_of(row: Measurement) -> tuple[float, int, int]:
    """Users and lengths."""
    return row.concurrency or 1.0, round(row.input_tokens), round(row.output_tokens)


def _cached_alike(row: Measurement, deployment: Deployment) -> bool:
    """Whether the cache was stored as asked, where the row says how."""
    return not row.kv or (row.kv == "fp8") == (deployment.chosen_cache_dtype is CacheDtype.FP8)


def bent(slowdowns: Array, work: ReplicaWork, rows: Sequence[Measurement]) -> Array:
    """Move slowdowns as little as it takes to pass near the rows of a setup, the newest most.

    A ridge on logarithms around the slowdowns of the kin, so that loads and lengths nobody measured follow the physics
    of those that were.
    """
    light = np.vstack([work.light(closed_loop(row)) for row in rows])
    measured = np.log([row.tpot_s or 1.0 for row in rows])
    weight = _weights(rows)[:, None]
    shift = np.zeros_like(slowdowns)
    for _ in range(4):
        here = slowdowns * np.exp(shift)
        seconds = light @ here
        shares = light * here / seconds[:, None]
        left = measured - np.log(seconds) + shares @ shift
        gram = (shares * weight).T @ shares / _NOISE**2 + _PULL
        shift = np.clip(np.linalg.solve(gram, (shares * weight).T @ left / _NOISE**2), -_FARTHEST, _FARTHEST)
    return np.asarray(slowdowns * np.exp(shift))


def closed_loop(row: Measurement) -> Load:
    """The average step of the loop a row was measured under."""
    lengths = np.array([row.input_tokens]), np.array([row.output_tokens])
    return Load.closed_loop(np.array([row.concurrency or 1.0]), *lengths, batched_tokens(row))


def _weights(rows: Sequence[Measurement]) -> Array:
    days = np.array([row.date.toordinal() for row in rows], np.float64)
    undated = np.array([row.dated == "up_to" for row in rows])
    newest = days[~undated].max(initial=0.0)
    weights = np.where(undated, _UNDATED_WEIGHT, np.exp(-np.maximum(0.0, newest - days) / _FADES_DAYS))
    return np.asarray(weights * min(1.0, _MOST_WEIGHT / weights.sum()))
