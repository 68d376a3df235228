"""Weighs requests by tenant fairness, from the exponentially decayed tokens served to each tenant.

A tenant within its share keeps its weight. A tenant beyond it weighs proportionally less, so that under overload its
own requests wait and are shed first. If there is room for all, nothing changes.
"""

from dataclasses import dataclass, field
from typing import Final

_ANSWER_WEIGHT: Final = 2.0
"""Cost of an output token relative to a prompt token; llm-d and AIBrix account for it the same way."""


@dataclass(slots=True)
class TenantShares:
    """Exponentially decayed service per tenant."""

    half_life_s: float = 60.0
    shares: dict[int, float] = field(default_factory=dict)
    """Share of a tenant relative to the others; 1 if not given."""
    _served: dict[int, float] = field(default_factory=dict)
    _since_s: float = 0.0

    def served(self, tenant: int, input_tokens: int, output_tokens: int, now_s: float) -> None:
        """Count the tokens that a tenant was served."""
        self._fade(now_s)
        work = input_tokens + _ANSWER_WEIGHT * output_tokens
        self._served[tenant] = self._served.get(tenant, 0.0) + work

    def weight(self, tenant: int, now_s: float) -> float:
        """Return the weight of a tenant's request: 1 within its share, less beyond it."""
        self._fade(now_s)
        total = sum(self._served.values())
        mine = self._served.get(tenant, 0.0)
        if len(self._served) < 2 or not mine:  # fairness needs at least two tenants
            return 1.0
        entitled = self.shares.get(tenant, 1.0) / sum(self.shares.get(other, 1.0) for other in self._served)
        return min(1.0, entitled * total / mine)

    def _fade(self, now_s: float) -> None:
        if now_s <= self._since_s:
            return
        kept = 0.5 ** ((now_s - self._since_s) / self.half_life_s)
        # A tenant without service for twenty half-lives is removed, so that memory does not grow with past tenants.
        self._served = {tenant: work * kept for tenant, work in self._served.items() if work * kept > 1e-6 * (1 + work)}
        self._since_s = now_s
