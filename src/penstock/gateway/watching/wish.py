"""How many replicas should be up? The scaler's answer for the load that comes, as metrics KEDA or an HPA can follow."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from penstock.gateway.state.fleet import RoutedFleet
from penstock.routing.endpoint import Records
from penstock.routing.scaling.scaler import CheapestSet, LoadReport, PoolReport, ScaledPool
from penstock.routing.scaling.sustained import sustained_requests_per_s

WISH_EVERY_S: Final = 15.0
"""Between two answers; a replica takes minutes to load."""
_SECONDS_PER_HOUR: Final = 3600.0


class ReplicaWish:
    """What is wanted of each pool; all of it until a load has been seen."""

    def __init__(self, fleet: RoutedFleet) -> None:
        self.kinds = fleet.kinds
        self._rates = [
            sustained_requests_per_s(record, fleet.load_of(kind.model))
            for record, kind in zip(fleet.kind_records, fleet.kinds, strict=True)
        ]
        self._wanted = [kind.most for kind in self.kinds]
        self._up = [0] * len(self.kinds)
        self._scalers = {
            model: (places, CheapestSet(self._pools(fleet, places)))
            for model in fleet.models
            # A pool that keeps its promise for nobody is not for scaling to decide about.
            if (places := [n for n, kind in enumerate(self.kinds) if kind.model == model and self._rates[n] > 0])
        }
        self._fleet, self._before, self._then_s = fleet, dict.fromkeys(fleet.models, 0.0), 0.0

    def _pools(self, fleet: RoutedFleet, places: Sequence[int]) -> tuple[ScaledPool, ...]:
        return tuple(
            ScaledPool(
                name=self.kinds[place].name,
                requests_per_s=self._rates[place],
                usd_per_hour=float(fleet.kind_records[place]["usd_per_s"]) * _SECONDS_PER_HOUR,
                most=self.kinds[place].most,
            )
            for place in places
        )

    def begin(self, fleet: RoutedFleet, counts: Records, states: Records) -> None:
        """Go on with a fleet that was read again."""
        self._fleet, self._before, self._then_s = fleet, self._seen(counts, states), 0.0

    def _seen(self, counts: Records, states: Records) -> dict[str, float]:
        """Requests of each model so far, those that were shed among them by its share."""
        picked = counts["picked"].sum(axis=0)
        served = np.array(self._fleet.served)
        by_model = {model: float(picked[served == model].sum()) for model in self._fleet.models}
        whole = max(1.0, sum(by_model.values()))
        shed = float(states["rejected"].sum())
        return {model: count * (1.0 + shed / whole) for model, count in by_model.items()}

    def look(self, reports: Records, counts: Records, states: Records, now_s: float) -> None:
        """Ask the scaler of each model, by what came since the last time."""
        seen, pools, healthy = self._seen(counts, states), np.array(self._fleet.pools), reports["healthy"] != 0
        self._up = [int(healthy[pools == kind.name].sum()) for kind in self.kinds]
        elapsed_s, self._then_s = now_s - self._then_s, now_s
        before, self._before = self._before, seen
        if elapsed_s > 2 * WISH_EVERY_S:  # the first look, or one after a long sleep: no rate yet
            return
        for model, (places, scaler) in self._scalers.items():
            rate = (seen[model] - before.get(model, 0.0)) / elapsed_s
            if rate >= 0:
                load = LoadReport(
                    now_s=now_s,
                    requests_per_s=rate,
                    pools=tuple(
                        PoolReport(up=self._up[place], coming=0, waiting=0.0, running=0.0, kv_used_fraction=0.0)
                        for place in places
                    ),
                )
                for place, count in zip(places, scaler.wanted(load), strict=True):
                    self._wanted[place] = count

    def shown(self) -> dict[str, tuple[str, Sequence[float]]]:
        """What is said of it, by pool."""
        return {
            "penstock_wanted_replicas": ("Replicas the cheapest set for the load to come has.", self._wanted),
            "penstock_up_replicas": ("Replicas that answered when they were last asked.", self._up),
            "penstock_replica_sustained_requests_per_second": (
                "What one replica takes within the promise, by the performance model.",
                self._rates,
            ),
        }
