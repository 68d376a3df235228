"""Weighs the requests of tenants by their share of the served tokens, in a table of plain records.

`gateway.picker.tenant_weights` describes the rule. A test holds both equal.
"""

from typing import Annotated, Any, Final, NamedTuple

import numpy as np

from penstock.compiled.interface import exported_short
from penstock.compiled.marks import compiled
from penstock.compiled.tables import ArrayOf
from penstock.routing.records import Record

TENANT: Final = np.dtype([("tokens", "f8"), ("since", "f8")], align=True)
"""Decayed served tokens of a tenant bucket, and the time of the last change as a multiple of the half-life."""
TENANT_BUCKETS: Final = 257
"""Number of tenant buckets. Anonymous requests share bucket 0."""
_HALF_LIFE_S: Final = 60.0
_OUTPUT_WEIGHT: Final = 2.0
_MIN_TOKENS: Final = 1e-6


class TenantTable(NamedTuple):
    """The buckets of all tenants."""

    tenants: Annotated[Any, ArrayOf(TENANT)]


@exported_short
def tenant_weight(t: TenantTable, bucket: int, now_s: float) -> float:
    """Return the weight of a bucket's requests: 1 within its fair share, and less beyond."""
    now, total, own, active = now_s / _HALF_LIFE_S, 0.0, 0.0, 0.0
    for place in range(len(t.tenants)):
        if t.tenants[place]["tokens"] > 0.0:
            tokens = _tokens_at(t.tenants[place], now)
            if tokens > _MIN_TOKENS:
                total += tokens
                active += 1.0
                if place == bucket:
                    own = tokens
    return min(1.0, total / (active * own)) if own > 0.0 else 1.0


@exported_short
def count_tenant(t: TenantTable, bucket: int, input_tokens: int, output_tokens: int, now_s: float) -> None:
    """Count a request that was sent to an endpoint."""
    e, now = t.tenants[bucket], now_s / _HALF_LIFE_S
    e["tokens"] = _tokens_at(e, now) + input_tokens + _OUTPUT_WEIGHT * output_tokens
    e["since"] = now


@compiled
def _tokens_at(e: Record, now: float) -> float:
    return float(e["tokens"] * 0.5 ** max(0.0, now - e["since"]))
