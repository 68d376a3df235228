"""Builds the list of destinations that Envoy tries for a request. Liveness questions follow each endpoint.

Envoy sends a request to the next destination of the list when a try fails or is silent for too long. A silent try
continues meanwhile, and Envoy uses the first response from any try. The destination after an endpoint is the liveness
server of the picker. The liveness server's reply makes Envoy try the next endpoint, or ask again later. By these
replies, Envoy waits for a slow endpoint, but not for a dead endpoint.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

QUESTIONS: Final = 4
"""Maximum number of liveness questions after each endpoint.

With this maximum, Envoy waits for a live endpoint for up to about 30 times the first period of silence. After the last
question, Envoy also tries the next endpoint.
"""


class DestinationList(NamedTuple):
    """Comma-separated list of destinations, and the number of tries after the first try."""

    text: str
    retries: int


def destinations(endpoints: Sequence[str], liveness: str) -> DestinationList:
    """Return the destinations for a list of endpoints, in the order of the list.

    After the last destination, Envoy tries one more endpoint, chosen by weight.
    """
    places = [place for endpoint in endpoints for place in (endpoint, *[liveness] * QUESTIONS)]
    return DestinationList(",".join(places), len(places))


def tried_endpoints(text: str, attempt: int, liveness: str) -> tuple[list[str], bool]:
    """Return the endpoints that were tried before a liveness question, and whether it is the first after a try.

    A liveness question is the first one if it directly follows the last tried endpoint. `text` is the list of
    destinations. `attempt` is the question's position among all tries, counted from 1.
    """
    before = text.split(",")[: attempt - 1]
    return [place for place in before if place != liveness], bool(before) and before[-1] != liveness
