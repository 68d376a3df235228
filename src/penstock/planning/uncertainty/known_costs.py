"""Keeps the costs of fleets at values of inputs: each round of a search for flips asks for most of them again."""

from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.planning.optimizer.problem import Mix, Problem
from penstock.planning.optimizer.refill_nodes import Array
from penstock.planning.optimizer.resize_fleet import Worlds, resized_usd

Place = tuple[object, ...]
"""Names the changed inputs: the id of an input with its value, or with all values that are priced at once."""


@dataclass(slots=True)
class KnownCosts:
    """Costs of resized fleets around the inputs of one world. They do not depend on the other fleets of a family."""

    _built: dict[Place, tuple[Problem, Worlds]] = field(default_factory=dict)
    _usd: dict[tuple[int, Place], tuple[Mix, Array]] = field(default_factory=dict)
    """Maps the identity of a fleet and a place to the fleet, which stays alive so that no other gets its identity, and
    its costs."""

    def usd(self, mix: Mix, place: Place, build: Callable[[], tuple[Problem, Worlds]]) -> Array:
        """Return the costs of a fleet at a place; `build` returns the problem and the draws there."""
        key = id(mix), place
        if key not in self._usd:
            if place not in self._built:
                self._built[place] = build()
            self._usd[key] = mix, resized_usd(mix, *self._built[place])
        return self._usd[key][1]
