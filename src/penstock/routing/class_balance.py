"""Weighs the classes of requests so that each class counts alike, and raises the price of a class that fares worse.

If every missed SLO counted alike, an overloaded fleet would give up a rare class first. A picker therefore counts its
requests by class. A missed SLO counts 1 / (classes x share of the class). A class may still fare worse than others,
because its requests need more of the hardware. The price of such a class rises with the gap between its observed
attainment and the best one, and falls back to 1 when the gap closes.
"""

import math

from penstock.compiled.marks import compiled
from penstock.routing.records import CLASSES, Record, Records

_REMEMBERED = 1.0 - 1.0 / 1000.0
"""Share of the counts that is left after another request: the counts remember about a thousand requests."""
_FEW = 10.0
"""Requests that are added to the count of every class, so that the first requests of a class decide little."""
_SEEN = 1e-3
_MAX_FACTOR = 16.0
_OUTCOMES = 200.0
"""Outcomes that the attainment of a class remembers."""
_MAX_PRICE = 8.0
_DAMPING = 0.02
"""Share of the way to its target that a price moves with each outcome of its class."""
_LOGISTIC = 1.7
"""Standard deviations of a normal distribution per unit of a logistic distribution of the same shape."""
_TOLERATED = 0.02
"""Gap of attainment below which classes count as equal."""


@compiled
def class_of(q: Record) -> int:
    """Return the place of a request's class in the records. Further classes share the last place."""
    return int(min(max(q["slo_class"], 0), CLASSES - 1))


@compiled
def count_arrival(request: Records, parameters: Records) -> None:
    """Count a request that arrives, and weigh the classes by their prices and their shares of the requests."""
    p, kind = parameters[0], class_of(request[0])
    total, classes = 0.0, 0.0
    for place in range(CLASSES):
        p["class_admitted"][place] *= _REMEMBERED
        p["class_requests"][place] = p["class_requests"][place] * _REMEMBERED + (1.0 if place == kind else 0.0)
        if p["class_requests"][place] > _SEEN:
            total += p["class_requests"][place] + _FEW
            classes += 1.0
    learned = 1.0 / min(p["class_requests"][kind], _OUTCOMES)
    p["class_output_tokens"][kind] += (request[0]["expected_output_tokens"] - p["class_output_tokens"][kind]) * learned
    for place in range(CLASSES):
        if p["class_requests"][place] > _SEEN:
            p["class_share"][place] = (p["class_requests"][place] + _FEW) / total
            alike = min(_MAX_FACTOR, total / (classes * (p["class_requests"][place] + _FEW)))
            p["class_factor"][place] = alike * p["class_price"][place]


@compiled
def count_outcome(p: Record, kind: int, met: bool) -> None:  # noqa: FBT001 - compiled code takes no keywords
    """Count whether a request met its SLO, and move the price of its class. A refused request did not meet its SLO."""
    p["class_outcomes"][kind] = min(p["class_outcomes"][kind] + 1.0, _OUTCOMES)
    p["class_kept"][kind] += ((1.0 if met else 0.0) - p["class_kept"][kind]) / (p["class_outcomes"][kind] + _FEW)
    best = 0.0
    for place in range(CLASSES):
        if p["class_outcomes"][place] > 0.0 and p["class_requests"][place] > _SEEN:
            best = max(best, p["class_kept"][place])
    gap = max(0.0, best - p["class_kept"][kind] - _TOLERATED)
    wanted = min(p["price_slope"] * gap, math.log(_MAX_PRICE))
    price = math.log(p["class_price"][kind])
    p["class_price"][kind] = math.exp(price + _DAMPING * (wanted - price))


@compiled
def count_length(p: Record, kind: int, expected_tokens: int, output_tokens: int) -> None:
    """Learn how far the answers of a class are from their expected length. `count_outcome` has counted the answer."""
    if expected_tokens > 0 and output_tokens > 0:
        doubt = abs(math.log(output_tokens / expected_tokens)) / _LOGISTIC
        squared = p["class_length_doubt"][kind] ** 2
        squared += (doubt * doubt - squared) / (p["class_outcomes"][kind] + _FEW)
        p["class_length_doubt"][kind] = math.sqrt(squared)
