"""JSON document of `simulate --fleet --json`: every policy's run as plain values."""

from collections.abc import Sequence
from typing import Final

from penstock.fleet.pools import Fleet
from penstock.report.drawing.plain_json import plain
from penstock.report.simulate.document import class_values, latency_values, pool_values, workload_values
from penstock.report.simulate.terminal import e2e_of, tpot_of, ttft_of
from penstock.simulation.compare_policies import PolicyRun, SharedLoad
from penstock.simulation.outcome import PoolOutcome
from penstock.simulation.replica import ReplicaPool
from penstock.simulation.scenario import hours_covered

SCHEMA: Final = "penstock.simulate-fleet/4"


def fleet_document(
    fleet: Fleet, pools: Sequence[ReplicaPool], load: SharedLoad, events: Sequence[str], runs: Sequence[PolicyRun]
) -> dict[str, object]:
    """Collect the JSON document of a fleet simulation."""
    return {
        "schema": SCHEMA,
        "fleet": fleet.name,
        "model": fleet.pools[0].model,
        "pools": [
            {
                "name": pool.name,
                "vendor": pool.vendor,
                "role": pool.role,
                "replicas": pool.replicas,
                "usd_per_hour": pool.usd_per_hour,
                "elastic": pool.elastic,
                "kv_tokens": pool.replica.kv_tokens,
                "most_tokens": pool.replica.most_tokens,
            }
            for pool in pools
        ],
        "workload": workload_values(
            load.workload,
            requests=load.requests,
            rate_per_s=load.rate_per_s,
            seed=load.seed,
            hours=hours_covered(load.workload, runs[0].outcome.arrival_span_s),
        ),
        "events": list(events),
        "policies": [_run(run) for run in runs],
    }


def _run(run: PolicyRun) -> dict[str, object]:
    outcome = run.outcome
    return {
        "policy": run.policy.name,
        "source": run.policy.source,
        "met": outcome.met,
        "worst_met_fraction": run.worst_met_fraction,
        "requests": outcome.asked,
        "served": outcome.requests,
        "rejected": outcome.rejected,
        "refused": outcome.refused,
        "lost": outcome.lost,
        "beyond_context": outcome.beyond_context,
        "span_s": outcome.makespan_s,
        "good_tokens": run.good_tokens,
        "goodput_tokens_per_s": outcome.goodput_tokens_per_s,
        "output_tokens_per_s": outcome.output_tokens_per_s,
        "usd": run.usd,
        "usd_per_good_mtok": run.usd_per_good_mtok,
        "ttft_s": latency_values(ttft_of(outcome)),
        "tpot_s": latency_values(tpot_of(outcome)),
        "e2e_s": latency_values(e2e_of(outcome)),
        "classes": [class_values(item) for item in outcome.classes],
        "pools": [_pool_values(pool) for pool in outcome.pools],
        "replicas": [plain(replica) for replica in outcome.replicas],
        "destinations": [plain(row) for row in run.destinations],
    }


def _pool_values(pool: PoolOutcome) -> dict[str, object]:
    return pool_values(pool) | {"idle_fraction": pool.idle_fraction}
