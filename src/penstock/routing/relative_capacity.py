"""Compares the endpoints of a fleet: how many requests each one can keep within their SLO.

In overload one endpoint is given up to save the others. It should be the one that could have kept the least.
"""

from functools import lru_cache
from typing import Final

import numpy as np

from penstock.routing.autoscaler.sustained import LoadKind, weights_by_capacity
from penstock.routing.records import ENDPOINT, USUAL_TPOT_S, USUAL_TTFT_S, Records

_USUAL: Final = LoadKind(share=1.0, input_tokens=1024, output_tokens=256, ttft_s=USUAL_TTFT_S, tpot_s=USUAL_TPOT_S)

_KNOWN_DIFFERENCE: Final = 1.2
"""Ratio of two capacities up to which they count as equal, because predicted rates are about that uncertain."""


def set_relative_capacities(endpoints: Records) -> None:
    """Write into each record its sustained rate of usual requests, relative to the weakest endpoint with its model."""
    endpoints["relative_capacity"] = 1.0
    alike = endpoints.copy()
    for name in ("pool", "vendor", "whose", "usd_per_s", "saved_usd_per_s", "accepts"):
        alike[name] = 0
    records = [record.tobytes() for record in alike]
    kinds = tuple(dict.fromkeys(records))
    kind_of = np.array([kinds.index(record) for record in records])
    if len(kinds) == 1:
        return
    for serves, decodes in np.unique(endpoints[["serves", "decodes"]]):
        same_work = endpoints["decodes"] == decodes
        rivals = same_work & ((endpoints["serves"] & serves) != 0)
        numbers = np.unique(kind_of[rivals])
        rates = np.zeros(len(kinds))
        rates[numbers] = _rates(tuple(kinds[number] for number in numbers))
        own = same_work & (endpoints["serves"] == serves)
        ratios = rates[kind_of[own]] / rates[numbers].min()
        endpoints["relative_capacity"][own] = np.where(ratios > _KNOWN_DIFFERENCE, ratios, 1.0)


@lru_cache(maxsize=256)
def _rates(records: tuple[bytes, ...]) -> tuple[float, ...]:
    rivals = [np.frombuffer(record, ENDPOINT)[0] for record in records]
    return weights_by_capacity(rivals, [[_USUAL]] * len(rivals))
