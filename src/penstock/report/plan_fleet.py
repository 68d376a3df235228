"""What does `fleet.yaml` say? The winning fleet as the simulator, the emulator and the router read it."""

import yaml

from penstock.planning.make import Answer, PlanResult
from penstock.planning.problem import PoolPeriod
from penstock.planning.verify import ServingFleet, serving_fleet

VERSION = 1


def fleet_yaml(result: PlanResult, answer: Answer) -> str:
    """Write the last period of the winning fleet: pools of replicas, and which lengths go where."""
    mix = answer.winner.mix
    last = max(pool.period for pool in mix.pools)
    fleet = serving_fleet(mix, last, result.problem, result.candidates, result.plan.workloads)
    head = (
        f"# The fleet `penstock plan` chose for: {result.plan.name}\n"
        "# Pools are identical replicas; a route sends requests up to these lengths to pools by weight.\n"
    )
    body: str = yaml.safe_dump(_document(result, fleet), sort_keys=False, allow_unicode=True, width=110)
    return head + body


def _document(result: PlanResult, fleet: ServingFleet) -> dict[str, object]:
    by_id = {f"{entry.id}": entry for entry in result.candidates}
    nodes = {
        (pool.offer.accelerator, pool.offer.site): (pool.nodes, pool.spare_nodes)
        for pool in _answer_pools(result, fleet.period)
    }
    pools = []
    for pool in fleet.pools:
        name, _, site = pool.id.rpartition(" at ")
        entry = by_id[name]
        placed = pool.deployment
        pools.append(
            {
                "name": _slug(pool.id),
                "model": next(w.model for w in result.plan.workloads if w.name == entry.workload),
                "workload": entry.workload,
                "accelerator": placed.accelerator.id,
                "vendor": placed.accelerator.vendor,
                "site": site,
                "replicas": pool.replicas,
                "tp": placed.parallelism.tp,
                "weights": entry.weights,
                "kv": placed.chosen_cache_dtype.value,
                "engine": {
                    "name": placed.engine.name,
                    "version": placed.engine.version,
                    "max_num_batched_tokens": placed.engine.max_batched_tokens,
                    "max_num_seqs": placed.engine.max_sequences,
                    "gpu_memory_utilization": placed.engine.memory_fraction,
                },
            }
        )
    return {
        "version": VERSION,
        "name": result.plan.name,
        "nodes": [
            {"accelerator": accelerator, "site": site, "nodes": count, "spare_nodes": spare}
            for (accelerator, site), (count, spare) in nodes.items()
        ],
        "pools": pools,
        "routes": [
            {
                "workload": stream.workload,
                "input_tokens": stream.bucket.input_tokens,
                "output_tokens": stream.bucket.output_tokens,
                "slo": str(stream.slo),
                "peak_requests_per_s": round(stream.requests_per_s, 6),
                "pools": {_slug(name): round(share, 6) for name, share in stream.shares.items()},
            }
            for stream in fleet.streams
        ],
    }


def _answer_pools(result: PlanResult, period: int) -> list[PoolPeriod]:
    answer = result.answer
    return [pool for pool in answer.winner.mix.pools if pool.period == period] if isinstance(answer, Answer) else []


def _slug(text: str) -> str:
    return text.replace(" at ", "-").replace(" ", "-")
