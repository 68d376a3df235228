"""Computes the desired number of replicas of each pool for the current load.

KEDA or an HPA reads the desired number as a metric.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from penstock.gateway.state.routed_fleet import RoutedFleet
from penstock.routing.autoscaler.scaler import CheapestSet, LoadReport, PoolReport, ScaledPool
from penstock.routing.autoscaler.sustained import sustained_requests_per_s
from penstock.routing.records import Records

DECIDE_EVERY_S: Final = 15.0
"""Seconds between two scaling decisions.

A shorter interval is of no use, because a new replica takes minutes to load its model.
"""
_GAP_S: Final = 4 * DECIDE_EVERY_S
"""Seconds without a decision after which the scaler forgets its history.

Repeated reloads can cause a gap of this length.
"""
_SECONDS_PER_HOUR: Final = 3600.0


class DesiredReplicas:
    """Desired number of replicas of each pool.

    Before the first decision, the desired number is the number of replicas that are up. If no replica of the pool's
    model is up, the whole pool is desired.
    """

    def __init__(self, fleet: RoutedFleet) -> None:
        self.kinds = fleet.kinds
        self._rates = [
            sustained_requests_per_s(record, fleet.load_of(kind.model))
            for record, kind in zip(fleet.kind_records, fleet.kinds, strict=True)
        ]
        self._desired: dict[int, int] = {}
        self._scalers = {
            model: (places, CheapestSet(self._pools(fleet, places), gap_s=_GAP_S))
            for model in fleet.models
            # The scaler ignores a pool that cannot meet the SLO at any load.
            if (places := [n for n, kind in enumerate(self.kinds) if kind.model == model and self._rates[n] > 0])
        }
        self._fleet, self._picked_before, self._decided_s = fleet, dict.fromkeys(fleet.models, 0.0), -math.inf
        self._shed_before = 0.0

    def _pools(self, fleet: RoutedFleet, places: Sequence[int]) -> tuple[ScaledPool, ...]:
        return tuple(
            ScaledPool(
                name=self.kinds[place].name,
                requests_per_s=self._rates[place],
                usd_per_hour=float(fleet.kind_records[place]["usd_per_s"]) * _SECONDS_PER_HOUR,
                max_replicas=self.kinds[place].most,
            )
            for place in places
        )

    def begin(self, fleet: RoutedFleet, counts: Records, states: Records, now_s: float) -> None:
        """Continue with a reloaded fleet. The next decision counts only requests after this call."""
        self._fleet, self._decided_s = fleet, now_s
        self._picked_before, self._shed_before = self._picks_by_model(counts), float(states["refused"].sum())

    def _picks_by_model(self, counts: Records) -> dict[str, float]:
        """Return the number of requests sent so far for each model."""
        picked, served = counts["picked"].sum(axis=0), np.array(self._fleet.served)
        return {model: float(picked[served == model].sum()) for model in self._fleet.models}

    def _up(self, reports: Records) -> list[int]:
        """Return the number of healthy replicas of each pool."""
        pools, healthy = np.array(self._fleet.pools), reports["healthy"] != 0
        return [int(healthy[pools == kind.name].sum()) for kind in self.kinds]

    def decide(self, reports: Records, counts: Records, states: Records, now_s: float) -> None:
        """Update the desired replicas of each model from the requests since the last call.

        Shed requests are counted only for the whole fleet. The shed requests are divided among the models in proportion
        to the requests that were sent.
        """
        picked, shed, up = self._picks_by_model(counts), float(states["refused"].sum()), self._up(reports)
        arrivals = {model: max(0.0, count - self._picked_before.get(model, 0.0)) for model, count in picked.items()}
        shed_ratio = max(0.0, shed - self._shed_before) / max(1.0, sum(arrivals.values()))
        elapsed_s, self._decided_s, self._picked_before, self._shed_before = (
            now_s - self._decided_s,
            now_s,
            picked,
            shed,
        )
        if not 0 < elapsed_s <= 2 * DECIDE_EVERY_S:  # after a long sleep, the counts do not give the current rate
            return
        for model, (places, scaler) in self._scalers.items():
            load = LoadReport(
                now_s=now_s,
                requests_per_s=arrivals[model] * (1.0 + shed_ratio) / elapsed_s,
                pools=tuple(
                    PoolReport(up=up[place], coming=0, waiting=0.0, running=0.0, kv_used_fraction=0.0)
                    for place in places
                ),
            )
            self._desired.update(zip(places, scaler.desired_replicas(load), strict=True))

    def metrics(self, reports: Records) -> dict[str, tuple[str, Sequence[float]]]:
        """Return, for each metric name, the help text and one value per pool."""
        up = self._up(reports)
        return {
            "penstock_desired_replicas": (
                "Desired replicas: the cheapest set for the predicted load.",
                [self._desired.get(place, initial) for place, initial in enumerate(self._initial(up))],
            ),
            "penstock_up_replicas": ("Replicas that answered their last scrape.", up),
            "penstock_replica_sustained_requests_per_second": (
                "Predicted requests per second that one replica serves within the SLO.",
                self._rates,
            ),
        }

    def _initial(self, up: Sequence[int]) -> list[int]:
        """Return the desired number of replicas of each pool before the first decision.

        The initial number is the number of replicas that are up. The whole pool is desired if no replica of the pool's
        model is up, or if the pool cannot meet the SLO at any load.
        """
        alive = {kind.model for kind, count in zip(self.kinds, up, strict=True) if count}
        scaled = {place for places, _ in self._scalers.values() for place in places}
        return [
            up[place] if place in scaled and kind.model in alive else kind.most for place, kind in enumerate(self.kinds)
        ]
