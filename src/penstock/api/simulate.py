"""Simulates deployments under load: `penstock.simulate`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from rich.console import RenderableType

from penstock.api.answer import ApiAnswer, Row, spread_over
from penstock.api.arguments.choices import AskedModel, Targets, Tokens, at_least, counted_targets, tokens_choice
from penstock.api.arguments.deployment_argument import RequestedDeployment
from penstock.api.arguments.ignored import refuse_ignored
from penstock.api.arguments.workload_argument import AskedTrace, route_choice, trace_choice, workload_choice
from penstock.api.compile_notice import compile_first
from penstock.api.progress import LOG, ProgressListener
from penstock.catalog import load_prices
from penstock.catalog.accelerator import Accelerator
from penstock.catalog.price import market_price
from penstock.fleet import Deployment
from penstock.model import ModelSpec
from penstock.performance.shipped.shipped_runs import shipped_efficiencies
from penstock.performance.step.step_work import ReplicaWork
from penstock.report.simulate.document import SimulateDocument
from penstock.report.simulate.terminal import e2e_of, name_of, render_simulation, tpot_of, ttft_of
from penstock.simulation.placement import Placement, place, place_on
from penstock.simulation.scenario import Scenario, SimulationQuestion, run_scenario
from penstock.workload import Slo

_TYPICAL_REQUESTS: Final = 20_000
_TYPICAL_USERS: Final = 64
_LOGGED_STEPS: Final = 20_000


@dataclass(frozen=True, kw_only=True, repr=False)
class SimulateAnswer(ApiAnswer):
    """The simulated run of each deployment."""

    document_type = SimulateDocument
    model: ModelSpec
    scenarios: tuple[Scenario, ...]

    @property
    def good(self) -> bool:
        """Whether every deployment fits, keeps up with the load and meets its SLO."""
        return all(scenario.good for scenario in self.scenarios)

    def rows(self) -> list[Row]:
        """Return one row per accelerator."""
        return [_row(scenario) for scenario in self.scenarios]

    def drawn(self, columns: int) -> RenderableType:
        """Draw what `simulate` prints."""
        return render_simulation(self.scenarios, columns)

    def _said(self) -> tuple[str, Sequence[str]]:
        return self.model.name, [f"{name_of(scenario)} {_verdict(scenario)}" for scenario in self.scenarios]


def simulate(
    model: AskedModel,
    on: Targets,
    *,
    replicas: int = 1,
    trace: AskedTrace | None = None,
    columns: str | None = None,
    input_tokens: Tokens = 1024,
    output_tokens: Tokens = 256,
    arrivals: str | None = None,
    rate: float | None = None,
    users: int | None = None,
    think: str = "0s",
    requests: int | None = None,
    system_prompts: str | None = None,
    slo: str | Slo | None = None,
    capacity: bool = False,
    route: str = "least-requests",
    prefill: int = 0,
    prefill_split: str | None = None,
    kv_gbps: float | None = None,
    precision: str | None = None,
    kv: str = "auto",
    engine: str = "best",
    dp: int = 1,
    ep: bool = False,
    mtp: bool = False,
    max_num_seqs: int | None = None,
    max_num_batched_tokens: int | None = None,
    prefix_caching: bool = True,
    seed: int = 0,
    log_steps: bool = False,
    watch: ProgressListener = LOG,
) -> SimulateAnswer:
    """How does it behave under load? As `penstock simulate`: `simulate("llama-3.1-70b", "mi300x,h100:2", rate=4)`.

    `input_tokens` and `output_tokens` are --in and --out; `log_steps` keeps what --perfetto writes.
    """
    at_least(1, replicas=replicas, users=users, requests=requests, dp=dp)
    at_least(1, max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens)
    at_least(0, rate=rate, prefill=prefill, seed=seed)
    refuse_ignored(prefill=prefill, prefill_split=prefill_split, kv_gbps=kv_gbps, mtp=mtp)
    targets, rate_per_s = counted_targets(on), None if rate is None else float(rate)
    workload, count = workload_choice(
        recording=None if trace is None else trace_choice(trace, columns, watch),
        tokens=(tokens_choice(input_tokens), tokens_choice(output_tokens)),
        arrivals=arrivals,
        rate_per_s=rate_per_s,
        users=users,
        think=think,
        system_prompts=system_prompts,
        slo=slo,
    )
    question = SimulationQuestion(
        workload=workload,
        requests=requests or count,
        rate_per_s=rate_per_s,
        replicas=replicas,
        route=route_choice(route),
        prefill_replicas=prefill,
        kv_bytes_per_s=None if kv_gbps is None else kv_gbps * 1e9,
        capacity=capacity,
        seed=seed,
        log_steps=_LOGGED_STEPS if log_steps else 0,
    )
    placing = RequestedDeployment(
        model, precision=precision, kv=kv, engine=engine, dp=dp, ep=ep, mtp=mtp, prefill_split=prefill_split
    )
    settings = _Settings(max_num_seqs, max_num_batched_tokens, prefix_caching)
    return SimulateAnswer(model=placing.spec, scenarios=_answers(placing, settings, targets, question, watch))


@dataclass(frozen=True, slots=True)
class _Settings:
    """The engine settings given as arguments."""

    sequences: int | None
    batched_tokens: int | None
    prefix_caching: bool

    def on(self, deployment: Deployment) -> Deployment:
        """Apply the settings to a deployment's engine."""
        usual = deployment.engine
        chosen = replace(
            usual,
            max_sequences=self.sequences or usual.max_sequences,
            max_batched_tokens=self.batched_tokens or usual.max_batched_tokens,
        )
        return replace(deployment, engine=chosen)


def _answers(
    placing: RequestedDeployment,
    settings: _Settings,
    targets: Sequence[tuple[Accelerator, int | None]],
    question: SimulationQuestion,
    watch: ProgressListener,
) -> tuple[Scenario, ...]:
    """Run the simulation on each accelerator."""
    watch.tell("reading the workload", 0, 0)
    tokens = _typical_tokens(question, placing.spec.max_context_tokens)
    compile_first(watch)
    scenarios = []
    for part, devices in targets:
        apart = _place_apart if question.prefill_replicas else _place
        ahead, placement = apart(placing, settings, (part, devices), tokens, question)
        price = market_price(load_prices(part.id), "rent_on_demand")
        per_hour = None if price is None else price.usd_per_device * placement.deployment.parallelism.devices
        scenarios.append(run_scenario(placement, question, usd_per_hour=per_hour, prefill=ahead, progress=watch.tell))
    return tuple(scenarios)


def _typical_tokens(question: SimulationQuestion, limit: int | None) -> tuple[int, int]:
    """Return the mean prompt and answer tokens at the start of a workload.

    Requests beyond the context limit are left out, unless all are.
    """
    sample = min(question.requests, _TYPICAL_REQUESTS)
    blocks = question.workload.blocks(seed=question.seed, requests=sample, rate_per_s=question.rate_per_s)
    lengths = np.concatenate([np.column_stack([block.input_tokens, block.output_tokens]) for block in blocks])
    allowed = lengths[lengths.sum(axis=1) <= (np.inf if limit is None else limit)]
    inputs, outputs = (allowed if len(allowed) else lengths).mean(axis=0)
    return max(1, round(float(inputs))), max(1, round(float(outputs)))


def _place(
    placing: RequestedDeployment,
    settings: _Settings,
    target: tuple[Accelerator, int | None],
    tokens: tuple[int, int],
    question: SimulationQuestion,
) -> tuple[Placement | None, Placement]:
    """Choose the stack that was measured fastest at a medium load, and place the deployment on it."""
    del question  # replicas are alike
    prediction = placing.predict(*target, (*tokens, _TYPICAL_USERS))
    placement = place(
        settings.on(prediction.deployment),
        prediction.measured_engine,
        shipped_efficiencies(),
        typical_tokens=sum(tokens),
        prefix_caching=settings.prefix_caching,
        speculation=prediction.speculation,
    )
    return None, placement


def _place_apart(
    placing: RequestedDeployment,
    settings: _Settings,
    target: tuple[Accelerator, int | None],
    tokens: tuple[int, int],
    question: SimulationQuestion,
) -> tuple[Placement | None, Placement]:
    """Place a prefill and a decode replica on the engine that was measured fastest at a medium load."""
    rate = question.kv_bytes_per_s
    split = placing.disaggregated_split(
        *target, (question.prefill_replicas, question.replicas), None if rate is None else rate / 1e9
    )
    chosen = placing.predict_disaggregated_deployment(target[0], split, tokens, _TYPICAL_USERS * split.decode_replicas)
    sides = ((chosen.deployed.prefill, chosen.prefill), (chosen.deployed.decode, chosen.decode))
    ahead, after = (
        replace(
            place_on(
                ReplicaWork(settings.on(deployment)),
                stack,
                typical_tokens=sum(tokens),
                measured_engine=chosen.measured_engine,
                prefix_caching=settings.prefix_caching,
            ),
            measured_engine=chosen.measured_engine,
        )
        for deployment, stack in sides
    )
    return ahead, after


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
        at = scenario.first_token if name == "ttft_s" else scenario.ranged
        row |= spread_over(f"{name}_p50", at(of, 0.5)) | {f"{name}_p99": of(outcome).quantile_s(0.99)}
    return row | {
        "requests": outcome.asked,
        "served": outcome.requests,
        "refused": outcome.refused,
        "beyond_context": outcome.beyond_context,
        "met": outcome.met,
        "output_tokens_per_s": outcome.output_tokens_per_s,
        "goodput_tokens_per_s": outcome.goodput_tokens_per_s,
        "busy_fraction": outcome.pools[-1].busy_fraction,
        "kv_peak_fraction": outcome.pools[-1].kv_peak_fraction,
        "preemptions": sum(pool.preemptions for pool in outcome.pools),
        "usd_per_output_mtok": outcome.usd_per_output_mtok,
        **spread_over("capacity_per_s", scenario.capacity_range_per_s),
    }
