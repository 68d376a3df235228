"""Where does Envoy send a request, and where next? To endpoints, with questions to the picker in between.

Envoy sends a request to the next place of the list when a try fails, or when it is silent for too long; a silent try
goes on meanwhile, and the first answer wins. The place after an endpoint is its picker's liveness server, which lets
Envoy go on to the next endpoint or has it ask again later. So a slow endpoint is waited for, and a dead one is not.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

QUESTIONS: Final = 4
"""After each endpoint: a living one is waited for until some 30 times the first silence, then another is tried too."""


class DestinationList(NamedTuple):
    """A list of places, and how many tries may follow the first."""

    listed: str
    retries: int


def destinations(endpoints: Sequence[str], liveness: str) -> DestinationList:
    """Write the list for endpoints in order; after the last place Envoy's own weights choose once more."""
    places = [place for endpoint in endpoints for place in (endpoint, *[liveness] * QUESTIONS)]
    return DestinationList(",".join(places), len(places))


def tried(listed: str, attempt: int, liveness: str) -> tuple[list[str], bool]:
    """Return the endpoints before a question in a list, and whether it is the first question about the last of them.

    `attempt` counts from 1 on.
    """
    before = listed.split(",")[: attempt - 1]
    return [place for place in before if place != liveness], bool(before) and before[-1] != liveness
