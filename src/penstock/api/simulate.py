"""Simulates deployments under load: `penstock.simulate`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from rich.console import RenderableType

from penstock.api.answer import ApiAnswer, Row, spread_over
from penstock.api.arguments.choices import counted_targets, tokens_choice
from penstock.api.arguments.deployment_argument import RequestedDeployment
from penstock.api.arguments.ignored import refuse_ignored
from penstock.api.arguments.own_corrections import require_used
from penstock.api.arguments.workload_argument import route_choice, workload_choice
from penstock.api.compile_notice import compile_first
from penstock.api.options.option_fields import takes
from penstock.api.options.simulate_options import SimulateOptions
from penstock.catalog.accelerator import Accelerator
from penstock.catalog.device_prices import DevicePrice, rent_of
from penstock.fleet import Deployment
from penstock.model import ModelSpec
from penstock.performance.calibration.own_correction import fingerprint_of
from penstock.performance.step.step_work import ReplicaWork
from penstock.report.simulate.document import SimulateDocument
from penstock.report.simulate.terminal import e2e_of, name_of, render_simulation, tpot_of, ttft_of
from penstock.simulation.placement import Placement, place, place_on
from penstock.simulation.scenario import Scenario, SimulationQuestion, run_scenario

_TYPICAL_REQUESTS: Final = 20_000
_TYPICAL_USERS: Final = 64
_LOGGED_STEPS: Final = 20_000


@dataclass(frozen=True, kw_only=True, repr=False)
class SimulateAnswer(ApiAnswer):
    """Simulated runs, one for each deployment."""

    document_type = SimulateDocument
    model: ModelSpec
    scenarios: tuple[Scenario, ...]
    rents: tuple[DevicePrice, ...]
    """Rents by the hour of the accelerators that have a price in the catalog."""

    @property
    def good(self) -> bool:
        """Return whether every deployment fits, keeps up with the load and meets its SLO."""
        return all(scenario.good for scenario in self.scenarios)

    def rows(self) -> list[Row]:
        """Return one row per accelerator."""
        return [_row(scenario) for scenario in self.scenarios]

    def render(self, columns: int) -> RenderableType:
        """Return what `simulate` prints."""
        return render_simulation(self.scenarios, self.rents, columns)

    def _summary(self) -> tuple[str, Sequence[str]]:
        return self.model.name, [f"{name_of(scenario)} {_verdict(scenario)}" for scenario in self.scenarios]


@takes(SimulateOptions)
def simulate(options: SimulateOptions) -> SimulateAnswer:
    """Simulate a load, as `penstock simulate` does: `simulate("llama-3.1-70b", "mi300x,h100:2", rate=4)`.

    `input_tokens` and `output_tokens` are the flags --in and --out. `log_steps` keeps the engine steps that --perfetto
    writes.
    """
    refuse_ignored(options, simulated=True)
    targets = counted_targets(options.on)
    rate_per_s = None if options.rate is None else float(options.rate)
    tokens = tokens_choice(options.input_tokens), tokens_choice(options.output_tokens)
    workload, count = workload_choice(
        options, tokens=tokens, rate_per_s=rate_per_s, users=options.users, think=options.think
    )
    question = SimulationQuestion(
        workload=workload,
        requests=options.requests or count,
        rate_per_s=rate_per_s,
        replicas=options.replicas,
        route=route_choice(options.route),
        prefill_replicas=options.prefill,
        kv_bytes_per_s=None if options.kv_gbps is None else options.kv_gbps * 1e9,
        capacity=options.capacity,
        seed=options.seed,
        log_steps=_LOGGED_STEPS if options.log_steps else 0,
    )
    placing = RequestedDeployment(options)
    found = (rent_of(one) for one in {accelerator.id: accelerator for accelerator, _ in targets}.values())
    rents = {rent.accelerator: rent for rent in found if rent is not None}
    return SimulateAnswer(
        model=placing.spec,
        scenarios=_scenarios(options, placing, targets, question, rents),
        rents=tuple(rents.values()),
    )


def _scenarios(
    options: SimulateOptions,
    placing: RequestedDeployment,
    targets: Sequence[tuple[Accelerator, int | None]],
    question: SimulationQuestion,
    rents: Mapping[str, DevicePrice],
) -> tuple[Scenario, ...]:
    """Run the simulation on each accelerator."""
    options.watch.progress("reading the workload", 0, 0)
    tokens = _typical_tokens(question, placing.spec.max_context_tokens)
    compile_first(options.watch)
    place_replicas = _place_disaggregated if options.prefill else _place
    scenarios = []
    for accelerator, devices in targets:
        prefill, placement = place_replicas(options, placing, (accelerator, devices), tokens)
        rent = rents.get(accelerator.id)
        per_hour = None if rent is None else rent.usd_per_device * placement.deployment.parallelism.devices
        scenarios.append(
            run_scenario(placement, question, usd_per_hour=per_hour, prefill=prefill, progress=options.watch.progress)
        )
    placed = [(one.placement.deployment, one.placement.measured_engine) for one in scenarios]
    require_used(placing.efficiencies, (fingerprint_of(one, engine) for one, engine in placed if engine is not None))
    return tuple(scenarios)


def _with_settings(options: SimulateOptions, deployment: Deployment) -> Deployment:
    """Apply the engine settings in the options to a deployment."""
    usual = deployment.engine
    chosen = replace(
        usual,
        max_sequences=options.max_num_seqs or usual.max_sequences,
        max_batched_tokens=options.max_num_batched_tokens or usual.max_batched_tokens,
    )
    return replace(deployment, engine=chosen)


def _typical_tokens(question: SimulationQuestion, limit: int | None) -> tuple[int, int]:
    """Return the mean prompt and answer tokens of the first requests of a workload.

    Requests beyond the context limit are left out, unless all requests are beyond the limit.
    """
    sample = min(question.requests, _TYPICAL_REQUESTS)
    blocks = question.workload.blocks(seed=question.seed, requests=sample, rate_per_s=question.rate_per_s)
    lengths = np.concatenate([np.column_stack([block.input_tokens, block.output_tokens]) for block in blocks])
    allowed = lengths[lengths.sum(axis=1) <= (np.inf if limit is None else limit)]
    inputs, outputs = (allowed if len(allowed) else lengths).mean(axis=0)
    return max(1, round(float(inputs))), max(1, round(float(outputs)))


def _place(
    options: SimulateOptions,
    placing: RequestedDeployment,
    target: tuple[Accelerator, int | None],
    tokens: tuple[int, int],
) -> tuple[Placement | None, Placement]:
    """Place a deployment on the stack that was measured fastest at a medium load."""
    prediction = placing.predict(*target, (*tokens, _TYPICAL_USERS))
    placement = place(
        _with_settings(options, prediction.deployment),
        prediction.measured_engine,
        placing.efficiencies,
        typical_lengths=tokens,
        prefix_caching=options.prefix_caching,
        speculation=prediction.speculation,
    )
    return None, placement


def _place_disaggregated(
    options: SimulateOptions,
    placing: RequestedDeployment,
    target: tuple[Accelerator, int | None],
    tokens: tuple[int, int],
) -> tuple[Placement | None, Placement]:
    """Place a prefill replica and a decode replica on the engine that was measured fastest at a medium load."""
    split = placing.disaggregated_split(*target, options.replicas)
    chosen = placing.predict_disaggregated_deployment(target[0], split, tokens, _TYPICAL_USERS * split.decode_replicas)
    sides = ((chosen.deployed.prefill, chosen.prefill), (chosen.deployed.decode, chosen.decode))
    prefill, decode = (
        replace(
            place_on(
                ReplicaWork(_with_settings(options, deployment)),
                stack,
                typical_lengths=tokens,
                measured_engine=chosen.measured_engine,
                prefix_caching=options.prefix_caching,
            ),
            measured_engine=chosen.measured_engine,
        )
        for deployment, stack in sides
    )
    return prefill, decode


def _verdict(scenario: Scenario) -> str:
    outcome = scenario.outcome
    if outcome is None:
        return "does not fit"
    if outcome.saturation is not None:
        return "is saturated"
    if not any(item.slo for item in outcome.classes):
        return "keeps up"
    return "meets the SLO" if outcome.met else "misses the SLO"


def _row(scenario: Scenario) -> Row:
    outcome, placed = scenario.outcome, scenario.placement.deployment
    row: Row = {
        "accelerator": placed.accelerator.id,
        "devices": placed.parallelism.devices,
        "split": str(placed.parallelism),
        "replicas": scenario.question.replicas,
        "prefill_replicas": scenario.question.prefill_replicas,
        "engine": scenario.placement.measured_engine,
        "tier": scenario.placement.stack.tier,
        "fits": outcome is not None,
        "verdict": _verdict(scenario),
    }
    if outcome is None:
        return row
    for name, of in (("ttft_s", ttft_of), ("tpot_s", tpot_of), ("e2e_s", e2e_of)):
        at = scenario.first_token if name == "ttft_s" else scenario.quantile_range
        row |= spread_over(f"{name}_p50", at(of, 0.5)) | {f"{name}_p99": of(outcome).quantile_s(0.99)}
    return row | {
        "requests": outcome.asked,
        "served": outcome.requests,
        "oversized": outcome.oversized,
        "beyond_context": outcome.beyond_context,
        "met": outcome.met,
        "output_tokens_per_s": outcome.output_tokens_per_s,
        "goodput_tokens_per_s": outcome.goodput_tokens_per_s,
        "busy_fraction": outcome.pools[-1].busy_fraction,
        "kv_peak_fraction": outcome.pools[-1].kv_peak_fraction,
        "preemptions": sum(pool.preemptions for pool in outcome.pools),
        "usd_per_output_mtok": outcome.usd_per_output_mtok,
        "usd_per_output_mtok_at_capacity": scenario.usd_per_output_mtok_at_capacity,
        **spread_over("capacity_per_s", scenario.capacity_range_per_s),
    }
