"""Weights requests by tenant fairness. Tenants are hashed into buckets, each counted by tokens served."""

from typing import Final

from penstock.routing.fairness import TenantShares

_BUCKETS: Final = 256
"""Number of hash buckets. Clients choose the names, so the number of counters must be bounded."""


class TenantWeights:
    """Tokens this picker has served per tenant bucket."""

    def __init__(self) -> None:
        self._shares = TenantShares()

    def weigh(self, name: str, now_s: float) -> tuple[int, float]:
        """Return a tenant's bucket and the weight of its request now. Anonymous requests share bucket 0.

        Otherwise a client without a name, or with a token that has none, would have no share that it could exceed.
        """
        bucket = 1 + hash(name) % _BUCKETS if name else 0
        return bucket, self._shares.weight(bucket, now_s)

    def count(self, bucket: int, input_tokens: int, output_tokens: int, now_s: float) -> None:
        """Count a request that was sent to an endpoint. Shed requests do not count."""
        self._shares.served(bucket, input_tokens, output_tokens, now_s)
