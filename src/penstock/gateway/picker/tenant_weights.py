"""Reduces the weight of requests from tenants that use more than their fair share of the served tokens.

Served tokens decay exponentially. Requests of a tenant within its fair share keep the weight 1. Beyond the fair share,
the weight is inversely proportional to the tokens that the tenant used. Under overload, requests of a tenant beyond its
fair share wait or are shed before those of other tenants. If there is room for all requests, the weights have no
effect.
"""

from typing import Final

from penstock.gateway.picker.decayed_sum import DecayedSum

_BUCKETS: Final = 256
"""Number of hash buckets for tenant names. Clients choose the names, so the number of counters must be bounded."""
_HALF_LIFE_S: Final = 60.0
_OUTPUT_WEIGHT: Final = 2.0
"""Cost of an output token relative to a prompt token. llm-d and AIBrix count output tokens in the same way."""
_MIN_TOKENS: Final = 1e-6
"""A tenant counts as inactive if its decayed number of served tokens does not exceed this value."""


class TenantWeights:
    """Weights of tenants, computed from the tokens that this picker's requests used in each tenant bucket."""

    def __init__(self) -> None:
        self._served: dict[int, DecayedSum] = {}

    def weigh(self, name: str, now_s: float) -> tuple[int, float]:
        """Return a tenant's bucket and the current weight of its requests. Anonymous requests share bucket 0.

        Bucket 0 gives clients without a tenant name a common fair share, which they can exceed.
        """
        bucket = 1 + hash(name) % _BUCKETS if name else 0
        return bucket, self.weight(bucket, now_s)

    def weight(self, bucket: int, now_s: float) -> float:
        """Return the weight of a bucket's requests. The fair share is the mean number of tokens of active buckets.

        The weight is 1 within the fair share. Beyond the fair share, the weight is the fair share divided by the
        bucket's tokens.
        """
        if len(self._served) < 2:
            return 1.0
        now = now_s / _HALF_LIFE_S
        tokens = {one: value for one, served in self._served.items() if (value := served.at(now)) > _MIN_TOKENS}
        return min(1.0, sum(tokens.values()) / (len(tokens) * tokens[bucket])) if bucket in tokens else 1.0

    def count(self, bucket: int, input_tokens: int, output_tokens: int, now_s: float) -> None:
        """Count a request that was sent to an endpoint. Shed requests do not count."""
        served = self._served.setdefault(bucket, DecayedSum())
        served.add(input_tokens + _OUTPUT_WEIGHT * output_tokens, now_s / _HALF_LIFE_S)
