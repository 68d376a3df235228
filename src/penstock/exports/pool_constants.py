"""Describes the constants of one pool that other programs can use."""

from dataclasses import dataclass

from penstock.fleet.pools import Pool
from penstock.simulation.replica import Replica
from penstock.workload.slo import Slo

_MINUTE_S = 60
_HOUR_S = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolConstants:
    """A pool, and what one of its replicas serves within the SLO."""

    pool: Pool
    requests_per_s: float
    """Requests per second that one replica sustains within the SLO of the fleet's routes."""
    input_tokens: float
    """Mean input tokens of a request."""
    output_tokens: float
    """Mean output tokens of a request."""
    replica: Replica
    """One replica of the pool, with its predicted step times."""
    slo: Slo
    """SLO of the route that sends most requests to the pool."""

    @property
    def setup(self) -> str:
        """Return the facts of the deployment that the constants are about."""
        pool = self.pool
        facts = (pool.model, f"{pool.weights} weights", f"{pool.kv} cache", pool.accelerator, str(pool.split))
        return ", ".join((*facts, f"{pool.engine.name} {pool.engine.version}"))

    @property
    def requests_per_minute(self) -> int:
        """Return the sustained requests per minute of one replica, at least 1."""
        return max(1, int(self.requests_per_s * _MINUTE_S))

    @property
    def usd_per_output_token(self) -> float | None:
        """Return the price of an output token at the sustained rate, or None if the pool has no price."""
        if self.pool.usd_per_hour is None:
            return None
        return self.pool.usd_per_hour / (self.requests_per_s * self.output_tokens * _HOUR_S)

    @property
    def usd_per_request(self) -> float | None:
        """Return the price of a request at the sustained rate, or None if the pool has no price."""
        per_token = self.usd_per_output_token
        return None if per_token is None else per_token * self.output_tokens


def whole_weights(pools: list[PoolConstants], most: int = 100) -> list[int]:
    """Return the weights of one replica of each pool as whole numbers from 1 to `most`, in proportion to its rate."""
    highest = max(one.requests_per_s for one in pools)
    return [max(1, round(most * one.requests_per_s / highest)) for one in pools]
