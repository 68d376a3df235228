"""What does a request weigh for who asks? Tenants by drawers, each counted for what it was served."""

from typing import Final

from penstock.routing.fairness import TenantShares

_DRAWERS: Final = 256
"""Names come from clients, so they are counted in so many drawers and not one by one."""


class TenantWeights:
    """What this picker has served to whom."""

    def __init__(self) -> None:
        self._shares = TenantShares()

    def weighed(self, name: str, now_s: float) -> tuple[int, float]:
        """Return a tenant's drawer and what its request weighs now; all that are nobody's are one tenant's, drawer 0.

        Whoever leaves out the name, or has a token without one, would else have no share to be beyond.
        """
        drawer = 1 + hash(name) % _DRAWERS if name else 0
        return drawer, self._shares.weight(drawer, now_s)

    def served(self, drawer: int, input_tokens: int, output_tokens: int, now_s: float) -> None:
        """Count a request that is sent somewhere; one that is shed was not served."""
        self._shares.served(drawer, input_tokens, output_tokens, now_s)
