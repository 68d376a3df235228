"""Weights requests by tenant fairness. Tenants are hashed into buckets, each counted by tokens served."""

from typing import Final

from penstock.routing.fairness import TenantShares

_DRAWERS: Final = 256
"""Number of hash buckets. Clients choose the names, so the number of counters must be bounded."""


class TenantWeights:
    """Tokens this picker has served per tenant bucket."""

    def __init__(self) -> None:
        self._shares = TenantShares()

    def weighed(self, name: str, now_s: float) -> tuple[int, float]:
        """Return a tenant's bucket and the weight of its request now. Anonymous requests share bucket 0.

        Otherwise a client without a name, or with a token that has none, would have no share that it could exceed.
        """
        drawer = 1 + hash(name) % _DRAWERS if name else 0
        return drawer, self._shares.weight(drawer, now_s)

    def served(self, drawer: int, input_tokens: int, output_tokens: int, now_s: float) -> None:
        """Count a request that was sent to an endpoint. Shed requests do not count."""
        self._shares.served(drawer, input_tokens, output_tokens, now_s)
