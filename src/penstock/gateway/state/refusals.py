"""Defines the answers by which one endpoint turns away requests that its peers may serve."""

from typing import Final

REFUSED: Final = (301, 302, 303, 307, 308, 401, 403, 429)
"""Statuses of a redirect, a wrong key and a full queue. Envoy asks another endpoint then.

No client causes them: the gateway checks the client's credentials, and sends the engine's key.
"""
WRONG: Final = (400, 422)
"""Statuses that are the client's fault, unless only one endpoint answers so."""


def is_refusal(status: int) -> bool:
    """Return whether an endpoint refused a request that others may serve."""
    return status in REFUSED
