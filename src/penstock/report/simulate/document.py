"""JSON document of `simulate --json`: the run in seconds, tokens and fractions."""

from collections.abc import Sequence
from typing import Final

from penstock.report.drawing.plain_json import plain
from penstock.report.model_heading import model_document
from penstock.report.simulate.terminal import e2e_of, tpot_of, ttft_of
from penstock.simulation.outcome import ClassOutcome, Latency, PoolOutcome, Timeline
from penstock.simulation.scenario import HoursOfDay, Scenario
from penstock.workload import Trace, Workload

SCHEMA: Final = "penstock.simulate/3"
"""Schema version. It changes if a field is renamed, removed or redefined; new fields do not change it."""
_QUANTILES = (0.5, 0.9, 0.95, 0.99)


def simulation_document(scenarios: Sequence[Scenario]) -> dict[str, object]:
    """Collect the JSON document of a simulation."""
    question = scenarios[0].question
    workload, deployment = question.workload, scenarios[0].placement.deployment
    return {
        "schema": SCHEMA,
        "model": model_document(deployment.model, deployment.chosen_cache_dtype),
        "workload": workload_values(
            workload,
            requests=question.requests,
            rate_per_s=question.rate_per_s,
            seed=question.seed,
            hours=scenarios[0].hours_of_day,
        ),
        "deployments": [_scenario(scenario) for scenario in scenarios],
    }


def workload_values(
    workload: Workload, *, requests: int, rate_per_s: float | None, seed: int, hours: HoursOfDay | None
) -> dict[str, object]:
    """Return the workload's parameters, sufficient to repeat the run."""
    return {
        "name": workload.name,
        "source": workload.source,
        "requests": requests,
        "rate_per_s": rate_per_s or workload.rate_per_s,
        "users": workload.users,
        "think_s": None if workload.users is None else workload.think_s,
        "seed": seed,
        "hours_of_day": plain(hours),
        "rows_left_out": dict(workload.lengths.dropped) if isinstance(workload.lengths, Trace) else None,
    }


def _scenario(scenario: Scenario) -> dict[str, object]:
    placement, outcome = scenario.placement, scenario.outcome
    deployment = placement.deployment
    document: dict[str, object] = {
        "accelerator": deployment.accelerator.id,
        "parallelism": plain(deployment.parallelism),
        "replicas": scenario.question.replicas,
        "prefill_replicas": scenario.question.prefill_replicas,
        "prefill_parallelism": None if scenario.prefill is None else plain(scenario.prefill.deployment.parallelism),
        "engine": placement.measured_engine,
        "fits": placement.memory.fits,
        "good": scenario.good,
        "tier": placement.stack.tier,
        "speculation": plain(placement.speculation),
        "borrowed_from": list(placement.stack.path),
        "software": None if placement.stack.software is None else str(placement.stack.software),
        "replica": None if placement.replica is None else plain(placement.replica),
    }
    if outcome is None:
        return document | {"obstacle": plain(scenario.obstacle)}
    found = scenario.capacity
    ranges = {"ttft_s": ttft_of, "tpot_s": tpot_of, "e2e_s": e2e_of}
    return document | {
        "requests": outcome.asked,
        "served": outcome.requests,
        "refused": outcome.refused,
        "beyond_context": outcome.beyond_context,
        "arrival_span_s": outcome.arrival_span_s,
        "makespan_s": outcome.makespan_s,
        "output_tokens_per_s": outcome.output_tokens_per_s,
        "goodput_tokens_per_s": outcome.goodput_tokens_per_s,
        "usd": outcome.usd,
        "usd_per_output_mtok": outcome.usd_per_output_mtok,
        "met": outcome.met,
        "saturation": plain(outcome.saturation),
        "latency": {name: latency_values(of(outcome)) for name, of in ranges.items()},
        "p50_ranges": {
            "ttft_s": plain(scenario.first_token(ttft_of, 0.5)),
            "tpot_s": plain(scenario.ranged(tpot_of, 0.5)),
            "e2e_s": plain(scenario.ranged(e2e_of, 0.5)),
        },
        "classes": [class_values(item) for item in outcome.classes],
        "pools": [pool_values(pool) for pool in outcome.pools],
        "timelines": {name: _timeline(line) for name, line in outcome.timelines.items()},
        "capacity": None
        if found is None
        else {
            "rate_per_s": plain(scenario.capacity_range_per_s),
            "saturated_rate_per_s": found.saturated_rate_per_s,
            "requests": found.requests,
            "trials": found.trials,
        },
    }


def latency_values(latency: Latency) -> dict[str, float | None]:
    """Return quantiles, mean and maximum of a latency, in seconds."""
    document = {f"p{fraction * 100:g}": latency.quantile_s(fraction) for fraction in _QUANTILES}
    return document | {"mean": latency.mean_s, "max": latency.max_s if latency.count else None}


def class_values(item: ClassOutcome) -> dict[str, object]:
    """Return the outcome of one request class."""
    return {
        "name": item.name,
        "slo": plain(item.slo),
        "requests": item.asked,
        "served": item.requests,
        "rejected": item.rejected,
        "refused": item.refused,
        "lost": item.lost,
        "unjudged": item.unjudged,
        "met_fraction": item.met_fraction,
        "attained": item.attained,
        "ttft_s": latency_values(item.ttft),
        "tpot_s": latency_values(item.tpot),
        "e2e_s": latency_values(item.e2e),
    }


def pool_values(pool: PoolOutcome) -> dict[str, object]:
    """Return the outcome of one pool; running and waiting requests are means over all replicas and the whole run."""
    document = {name: value for name, value in vars(pool).items() if name != "itl"}
    document |= {"mean_running": pool.mean_in_batches, "mean_batch": pool.mean_running}
    return {**document, "hit_fraction": pool.hit_fraction, "itl_s": latency_values(pool.itl)}


def _timeline(line: Timeline) -> dict[str, object]:
    series = ("busy_fraction", "running", "waiting", "kv_used_fraction", "prefill_tokens_per_s", "output_tokens_per_s")
    document: dict[str, object] = {"width_s": line.width_s}
    return document | {name: [float(f"{value:.5g}") for value in getattr(line, name)] for name in series}
