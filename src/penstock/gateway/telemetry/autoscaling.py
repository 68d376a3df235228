"""Computes the desired replicas per pool for the current load, as metrics for KEDA or an HPA."""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from penstock.gateway.state.routed_fleet import RoutedFleet
from penstock.routing.autoscaler.scaler import CheapestSet, LoadReport, PoolReport, ScaledPool
from penstock.routing.autoscaler.sustained import sustained_requests_per_s
from penstock.routing.records import Records

WISH_EVERY_S: Final = 15.0
"""Seconds between two scaling decisions. A replica takes minutes to load."""
_GAP_S: Final = 4 * WISH_EVERY_S
"""Seconds without a decision after which the scaler starts over, for example after repeated reloads."""
_SECONDS_PER_HOUR: Final = 3600.0


class DesiredReplicas:
    """Desired replicas per pool. Before any load is seen: the current count, or the whole pool if none is up."""

    def __init__(self, fleet: RoutedFleet) -> None:
        self.kinds = fleet.kinds
        self._rates = [
            sustained_requests_per_s(record, fleet.load_of(kind.model))
            for record, kind in zip(fleet.kind_records, fleet.kinds, strict=True)
        ]
        self._wanted: dict[int, int] = {}
        self._scalers = {
            model: (places, CheapestSet(self._pools(fleet, places), gap_s=_GAP_S))
            for model in fleet.models
            # The scaler ignores a pool that cannot meet the SLO at any load.
            if (places := [n for n, kind in enumerate(self.kinds) if kind.model == model and self._rates[n] > 0])
        }
        self._fleet, self._before, self._then_s = fleet, dict.fromkeys(fleet.models, 0.0), -math.inf
        self._shed = 0.0

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

    def begin(self, fleet: RoutedFleet, counts: Records, states: Records, now_s: float) -> None:
        """Continue with a reloaded fleet. Counts of endpoints that left it are dropped."""
        self._fleet, self._then_s = fleet, now_s
        self._before, self._shed = self._picked(counts), float(states["rejected"].sum())

    def _picked(self, counts: Records) -> dict[str, float]:
        """Return the requests sent so far, by model."""
        picked, served = counts["picked"].sum(axis=0), np.array(self._fleet.served)
        return {model: float(picked[served == model].sum()) for model in self._fleet.models}

    def _up(self, reports: Records) -> list[int]:
        """Return the healthy replicas per pool."""
        pools, healthy = np.array(self._fleet.pools), reports["healthy"] != 0
        return [int(healthy[pools == kind.name].sum()) for kind in self.kinds]

    def look(self, reports: Records, counts: Records, states: Records, now_s: float) -> None:
        """Run each model's scaler on the load since the last call. Shed requests are split by each model's share."""
        picked, shed, up = self._picked(counts), float(states["rejected"].sum()), self._up(reports)
        came = {model: max(0.0, count - self._before.get(model, 0.0)) for model, count in picked.items()}
        lost = max(0.0, shed - self._shed) / max(1.0, sum(came.values()))
        elapsed_s, self._then_s, self._before, self._shed = now_s - self._then_s, now_s, picked, shed
        if not 0 < elapsed_s <= 2 * WISH_EVERY_S:  # after a long sleep this is not a current rate
            return
        for model, (places, scaler) in self._scalers.items():
            load = LoadReport(
                now_s=now_s,
                requests_per_s=came[model] * (1.0 + lost) / elapsed_s,
                pools=tuple(
                    PoolReport(up=up[place], coming=0, waiting=0.0, running=0.0, kv_used_fraction=0.0)
                    for place in places
                ),
            )
            self._wanted.update(zip(places, scaler.wanted(load), strict=True))

    def shown(self, reports: Records) -> dict[str, tuple[str, Sequence[float]]]:
        """Return help text and values per pool, by metric name."""
        up = self._up(reports)
        return {
            "penstock_wanted_replicas": (
                "Replicas the cheapest set for the load to come has.",
                [self._wanted.get(place, present) for place, present in enumerate(self._present(up))],
            ),
            "penstock_up_replicas": ("Replicas that answered when they were last asked.", up),
            "penstock_replica_sustained_requests_per_second": (
                "What one replica takes within the promise, by the performance model.",
                self._rates,
            ),
        }

    def _present(self, up: Sequence[int]) -> list[int]:
        """Return the desired replicas before any load: those up, or the whole pools if a model has none up."""
        alive = {kind.model for kind, count in zip(self.kinds, up, strict=True) if count}
        scaled = {place for places, _ in self._scalers.values() for place in places}
        return [
            up[place] if place in scaled and kind.model in alive else kind.most for place, kind in enumerate(self.kinds)
        ]
