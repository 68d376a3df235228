"""Builds the list of places that Envoy tries for a request: endpoints, each followed by liveness questions.

Envoy sends a request to the next place of the list when a try fails or is silent for too long. A silent try continues
meanwhile, and the first response wins. After each endpoint comes its picker's liveness server, which lets Envoy move on
to the next endpoint or makes it ask again later. So Envoy waits for a slow endpoint, but not for a dead one.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

QUESTIONS: Final = 4
"""Number of liveness questions after each endpoint.

With them Envoy waits for a live endpoint up to about 30 times the first silence. Then it also tries the next endpoint.
"""


class DestinationList(NamedTuple):
    """A comma-separated list of places, and the number of tries after the first."""

    text: str
    retries: int


def destinations(endpoints: Sequence[str], liveness: str) -> DestinationList:
    """Return the destinations for endpoints in order. After the last one, Envoy tries once more by its own weights."""
    places = [place for endpoint in endpoints for place in (endpoint, *[liveness] * QUESTIONS)]
    return DestinationList(",".join(places), len(places))


def tried_endpoints(text: str, attempt: int, liveness: str) -> tuple[list[str], bool]:
    """Return the endpoints tried before a liveness question, and whether it is the first question about the last one.

    `attempt` counts from 1.
    """
    before = text.split(",")[: attempt - 1]
    return [place for place in before if place != liveness], bool(before) and before[-1] != liveness
