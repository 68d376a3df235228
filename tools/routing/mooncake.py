"""What do prefixes change? Mooncake's conversations, whose prompts begin alike, as curves over the rate."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np

from penstock.simulation.run import simulate
from penstock.simulation.run_options import Options
from penstock.workload import Requests, Slo, SloClass, read_trace
from routing.cases import FLEETS, TRACES, fleet
from routing.experiments import Row, routing

POLICIES = (
    "penstock",
    "least-request",
    "in-flight-per-capacity",
    "llm-d",
    "llm-d-scorers",
    "dynamo",
    "sglang-cache-aware",
)
SHARES = (0.4, 0.6, 0.8, 1.0, 1.2)
CLASSES = (
    SloClass(name="short", share_fraction=0.5, slo=Slo(ttft_s=5.0, tpot_s=0.1)),
    SloClass(name="long", share_fraction=0.4, slo=Slo(ttft_s=20.0, tpot_s=0.1)),
    SloClass(name="beyond", share_fraction=0.1),
)
"""Below 8k tokens, up to 48k, and those a fleet cannot serve in time even when idle, which are promised nothing."""


@cache
def recorded(count: int = 6000) -> Requests:
    """Read the trace's beginning; a class follows from a prompt's length."""
    block = next(iter(read_trace(TRACES / "mooncake_conversation.jsonl").blocks()))
    block = block.rows(0, min(count, len(block)))
    kinds = np.searchsorted([8192, 49152], block.input_tokens, "right").astype(np.uint8)
    return replace(block, slo_class=kinds)


def curves() -> Iterator[Row]:
    """Attainment of the worse class at shares of the rate whose prompts, uncached, would take half of all seconds."""
    sent = recorded()
    for name in tuple(FLEETS)[:3]:
        pools = fleet(name)
        prompt = float(sent.input_tokens.mean())
        full = sum(pool.replicas / (prompt * pool.replica.cost.prefill_token_s) for pool in pools)
        for share in SHARES:
            rate = share * full
            stretch = (len(sent) - 1) / (sent.arrival_s[-1] - sent.arrival_s[0]) / rate
            block = sent.at((sent.arrival_s - sent.arrival_s[0]) * stretch)
            row: Row = {"fleet": name, "rate": rate, "share": share}
            for policy in POLICIES:
                outcome = simulate(pools, [block], classes=CLASSES, options=Options(routing=routing(policy)))
                row[policy] = min(item.met_fraction or 0.0 for item in outcome.classes if item.slo is not None)
                row[f"{policy} hits"] = sum(pool.hit_tokens for pool in outcome.pools) / max(
                    1, sum(pool.looked_up_tokens for pool in outcome.pools)
                )
            yield row
