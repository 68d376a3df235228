"""Fits the factors of prefill-only and decode-only engines to published runs, and predicts held-out runs."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import exp, log
from statistics import median
from typing import Final, Literal

import numpy as np

from penstock.catalog import load_accelerator, load_disaggregation, load_measurements
from penstock.catalog.measurement import Measurement, Side
from penstock.fleet.disaggregated_replica import NETWORK_BYTES_PER_S, Disaggregated
from penstock.performance.calibration.benchmark_harness import drafted_tokens
from penstock.performance.calibration.measured_runs import measured_deployment
from penstock.performance.disaggregated.disaggregated_prediction import decode_cost, kv_bytes_per_token, observed_s
from penstock.performance.disaggregated.measured_pools import MeasuredPools
from penstock.performance.disaggregated.phase_factors import (
    PHASES,
    Phase,
    PhaseFactors,
    PhaseSpread,
    Residual,
    SharedEffects,
    labels_of,
    phase_factors_from,
    sum_effects,
)
from penstock.performance.disaggregated.steady_state import Columns, PoolsDemand, Steady, TwoPools, steady
from penstock.performance.prediction.drafted_load import drafted_curve
from penstock.performance.prediction.multi_token_prediction import multi_token_prediction
from penstock.performance.prediction.serving_stack import stack_of
from penstock.performance.prediction.speculation import Speculation
from penstock.performance.shipped.shipped_drafts import shipped_drafts
from penstock.performance.shipped.shipped_runs import model_of, shape_of_name, shipped_efficiencies
from penstock.performance.similarity.cases import shape_of, weights_label
from penstock.performance.step.step_cost import StepCost
from penstock.performance.step.step_work import Array, ReplicaWork

HeldOut = Literal["configuration", "model"]
_REQUESTS_PER_USER: Final = 10
DRAINING: Final = 0.5 / _REQUESTS_PER_USER
"""Relative correction of published rates. A published rate is the number of requests, ten per user, divided by the
whole duration of the run. Towards the end of a run, batches become smaller, which costs about half a request per user.
In runs that publish the time to first token, users / rate is 1.05 times the duration of a request."""
_QUEUE_STEPS: Final = 4
"""A prefill worker counts as saturated if the queued prompts fill more than this number of prefill steps."""
_FEW: Final = 16
_SPARE_SEATS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSide:
    """One pool of a run, with the step cost of its stack and the labels that other pools can share."""

    cost: StepCost
    labels: tuple[str, ...]
    batched_tokens: int
    kv_bytes: float
    """KV bytes of one token on one device."""
    ranks: int
    request_s: float
    first_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRun:
    """Published run of a disaggregated deployment, with its prefill pool and its decode pool."""

    row: Measurement
    sides: Mapping[Phase, MeasuredSide]

    @property
    def stack(self) -> tuple[str, str]:
        """Return the run's engine and accelerator."""
        return self.row.engine, self.row.accelerator

    @property
    def configuration(self) -> Hashable:
        """Return the key of the setup. The key does not depend on token lengths and load."""
        row = self.row
        split = (row.prefill, row.decode_workers, row.tp, row.dp, row.ep)
        return (row.model, row.weights, row.accelerator, row.engine, split, row.drafted)

    @property
    def requests_per_s(self) -> float:
        """Return the requests per second during the part of the run in which every user is served."""
        return (self.row.output_tokens_per_s or 0.0) / self.row.output_tokens * (1 + DRAINING)

    @property
    def demand(self) -> PoolsDemand:
        """Return the closed-loop load of the run."""
        row = self.row
        return PoolsDemand(users=row.concurrency, input_tokens=row.input_tokens, output_tokens=row.output_tokens)

    def pools(self, logs: Mapping[Phase, float]) -> TwoPools:
        """Return both pools, with their step times multiplied by factors. The factors are given as logarithms.

        The decode batch limit is set well above the concurrency, because the measured run did serve all its users.
        """
        row, side = self.row, self.row.prefill
        if side is None:
            raise ValueError(f"{row.id}: a disaggregated measurement must describe its prefill pool")
        return TwoPools(
            prefill=self.sides["prefill"].cost.scaled(exp(logs.get("prefill", 0.0))),
            decode=self.sides["decode"].cost.scaled(exp(logs.get("decode", 0.0))),
            prefill_workers=side.workers,
            decode_workers=row.decode_workers,
            batched_tokens=self.sides["prefill"].batched_tokens,
            seats=_SPARE_SEATS * max(1, round(row.concurrency or 1)),
            transfer_token_s=self._transfer_token_s(),
        )

    def _transfer_token_s(self) -> float:
        """Return the seconds for which a link is busy sending the KV of one token.

        If one rack holds both pools, the transfer uses the links of the rack. Otherwise the transfer uses the network.
        Each rank has its own link.
        """
        ahead, link = self.sides["prefill"], load_accelerator(self.row.accelerator).link
        inside = link is not None and self.row.devices <= (link.domain_devices or 0)
        rate = link.per_peer_bytes_per_s_one_way if link is not None and inside else NETWORK_BYTES_PER_S
        return ahead.kv_bytes / ((rate or NETWORK_BYTES_PER_S) * ahead.ranks)


def published_disaggregated() -> tuple[Measurement, ...]:
    """Return the published disaggregated rows.

    If a run is published both as a dated row and as a median over runs, only the dated row is returned.
    """
    return tuple(
        row
        for row in load_measurements()
        if row.scenario == "disaggregated" and not row.twin and row.tpot_s and row.prefill
    )


@cache
def runs() -> tuple[PublishedRun, ...]:
    """Return every published disaggregated row with the step costs of its stack."""
    engines: dict[tuple[object, ...], MeasuredSide] = {}

    def engine(row: Measurement, tp: int, dp: int, ep: bool, drafted: int) -> MeasuredSide:  # noqa: FBT001 - a split's columns
        key = (row.model, row.weights, row.kv, row.accelerator, row.engine, tp, dp, ep, drafted)
        if key not in engines:
            engines[key] = _engine(replace(row, tp=tp, dp=dp, ep=ep), drafted)
        return engines[key]

    found = []
    for row in published_disaggregated():
        side = row.prefill
        if side is not None:
            sides: dict[Phase, MeasuredSide] = {
                "prefill": engine(row, side.tp, side.dp, side.ep, 0),
                "decode": engine(row, row.tp, row.dp, row.ep, drafted_tokens(row) or 0),
            }
            found.append(PublishedRun(row=row, sides=sides))
    return tuple(found)


def _engine(row: Measurement, drafted: int) -> MeasuredSide:
    deployment = measured_deployment(row, model_of, load_accelerator)
    work = ReplicaWork(deployment)
    stack = stack_of(work, row.engine, shipped_efficiencies())
    drafts = None
    if drafted:
        asked = multi_token_prediction(deployment.model, shipped_drafts(), drafted_tokens=drafted)
        curve = drafted_curve(stack, work, row.engine, shipped_efficiencies(), asked)
        drafts = asked if curve is None else curve.at_typical_loads()
    return MeasuredSide(
        cost=decode_cost(work, stack, drafts),
        labels=labels_of(
            deployment, row.engine, seen=stack.novelty == "shape", draft="" if drafts is None else drafts.label
        ),
        batched_tokens=deployment.batched_tokens,
        kv_bytes=kv_bytes_per_token(deployment),
        ranks=deployment.parallelism.dp,
        request_s=stack.request_s,
        first_ratio=stack.first_ratio,
    )


def logs_of(found: Sequence[PublishedRun]) -> dict[Phase, Array]:
    """Return, per phase, the logarithm of each run's measured step time over the step time of its stack.

    The value is NaN if the step time cannot be derived from the run.

    The time per output token is the time of a decode step. The batch of a decode step is computed from the request rate
    and the time per output token. The capacity of a prefill worker can be observed only if prompts queue for the
    worker.
    """
    columns = Columns([(run.pools({}), run.demand) for run in found])
    rate = np.array([run.requests_per_s for run in found])
    tpot_s = np.array([run.row.tpot_s for run in found])
    users = np.array([run.row.concurrency for run in found])
    decoding = rate * columns.outputs * tpot_s / columns.decodes
    queued = (users - decoding * columns.decodes) / columns.prefills > _QUEUE_STEPS * columns.most
    return {
        "decode": np.log(tpot_s / columns.decode_step_s(decoding)),
        "prefill": np.where(queued, np.log(columns.prefill_limit / rate), np.nan),
    }


def residuals(
    found: Sequence[PublishedRun], phase: Phase, group_of: Callable[[PublishedRun], Hashable]
) -> list[Residual]:
    """Return one residual for each configuration: the median over the runs with a finite value."""
    logs, by_configuration = logs_of(found)[phase], defaultdict(list)
    for run, value in zip(found, logs, strict=True):
        if np.isfinite(value):
            by_configuration[run.configuration].append((run, float(value)))
    return [
        Residual(
            labels=told[0][0].sides[phase].labels,
            log_ratio=median(value for _, value in told),
            rows=len(told),
            group=group_of(told[0][0]),
        )
        for told in by_configuration.values()
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """Published run with a prediction for it."""

    run: PublishedRun
    pools: TwoPools
    steady: Steady

    @property
    def log_rate(self) -> float:
        """Return the logarithm of the ratio of measured to predicted output tokens per second."""
        return log(self.run.requests_per_s / self.steady.requests_per_s)

    @property
    def log_tpot(self) -> float:
        """Return the logarithm of the ratio of measured to predicted time per output token."""
        return log((self.run.row.tpot_s or 1.0) / self.steady.tpot_s)

    @property
    def log_ttft(self) -> float | None:
        """Return the logarithm of the ratio of measured to predicted time to first token.

        None if the measured time to first token is not published.
        """
        if self.run.row.ttft_s is None:
            return None
        after = self.run.sides["decode"]
        return log(self.run.row.ttft_s / observed_s(self.steady, after.request_s, after.first_ratio))


def stack_alone(found: Sequence[PublishedRun]) -> list[Guess]:
    """Predict every run only from measurements of engines that both prefill and decode."""
    return _guesses(found, [run.pools({}) for run in found])


def held_out_guesses(found: Sequence[PublishedRun], by: HeldOut) -> list[Guess]:
    """Predict every run with its configuration held out, or with all runs of its model on its stack held out."""
    group_of = _GROUPS[by]
    shared = {phase: SharedEffects(residuals(found, phase, group_of), phase) for phase in PHASES}
    pools, effects = [], {}
    for run in found:
        group = group_of(run)
        if group not in effects:
            effects[group] = {phase: shared[phase].effects_without(group) for phase in PHASES}
        logs = {phase: sum_effects(effects[group][phase], run.sides[phase].labels) for phase in PHASES}
        pools.append(run.pools(logs))
    return _guesses(found, pools)


def _guesses(found: Sequence[PublishedRun], pools: Sequence[TwoPools]) -> list[Guess]:
    solved = steady([(each, run.demand) for run, each in zip(found, pools, strict=True)])
    return [Guess(run=run, pools=each, steady=s) for run, each, s in zip(found, pools, solved, strict=True)]


_GROUPS: Final[Mapping[HeldOut, Callable[[PublishedRun], Hashable]]] = {
    "configuration": lambda run: run.configuration,
    "model": lambda run: (run.stack, run.row.model),
}


def handovers() -> list[tuple[Measurement, float]]:
    """Return published runs, each with the delay of its first token in seconds.

    The delay is the run's time to first token, minus the median time of InferenceX runs on a single engine with the
    split of the prefill workers. Only runs with 16 users or fewer are returned, in which requests rarely wait.
    """
    alone = defaultdict(list)
    for row in load_measurements():
        if row.scenario == "online" and row.source.startswith("inferencex") and row.ttft_s:
            alone[_first_token_setup(row, row.tp, row.dp)].append(row.ttft_s)
    found = []
    for row in load_measurements():
        side = row.prefill
        few = row.source == "inferencex" and (row.concurrency or 0) <= _FEW
        if side is None or row.ttft_s is None or not few or side.dp > 1:
            continue
        same = alone.get(_first_token_setup(row, side.tp, side.dp))
        if same:
            found.append((row, row.ttft_s - median(same)))
    return found


def _first_token_setup(row: Measurement, tp: int, dp: int) -> tuple[object, ...]:
    stack = (row.model, row.weights, row.accelerator, row.engine, row.drafted)
    return (*stack, tp, dp, row.input_tokens, row.concurrency)


def fit_phase_factors(found: Sequence[PublishedRun]) -> PhaseFactors:
    """Fit the shipped factors.

    The effects are fitted to all runs. The errors come from predictions for which a configuration or a model was held
    out.
    """
    return PhaseFactors(
        effects={
            phase: SharedEffects(residuals(found, phase, _GROUPS["configuration"]), phase).all() for phase in PHASES
        },
        **{
            f"{kind}{name}": _guess_spread([guess for guess in guesses if bool(guess.run.row.drafted) == bool(kind)])
            for name, guesses in (
                ("seen", held_out_guesses(found, "configuration")),
                ("unseen", held_out_guesses(found, "model")),
            )
            for kind in ("", "drafting_")
        },
    )


@cache
def shipped_phase_factors() -> PhaseFactors:
    """Return the shipped factors that commands use to predict disaggregated deployments."""
    return phase_factors_from(load_disaggregation())


def measured_pools(deployed: Disaggregated, engine: str, drafts: Speculation | None) -> MeasuredPools | None:
    """Return the published runs of exactly this setup. None if there are none.

    The setup is the model, its format, the accelerator, the engine, both pools and the drafts.
    """
    if drafts is not None and drafts.acceptance_given:
        return None
    model, decode, ahead = deployed.decode.model, deployed.decode.parallelism, deployed.prefill.parallelism
    side = Side(workers=deployed.prefill_replicas, tp=ahead.tp, dp=ahead.dp, ep=ahead.expert_parallel)
    pools = (side, deployed.decode_replicas, decode.tp, decode.dp, decode.expert_parallel)
    draft = "" if drafts is None else drafts.label
    found = [
        row
        for row in load_measurements(deployed.decode.accelerator.id)
        if row.prefill is not None
        and (row.prefill, row.decode_workers, row.tp, row.dp, row.ep) == pools
        and (row.engine, row.weights) == (engine, weights_label(model))
        and draft == (f"{row.drafted}{drafted_tokens(row)}" if row.drafted else "")
        and row.tpot_s
        and row.concurrency
        and not row.twin
        and shape_of_name(row.model) == shape_of(model)
    ]
    return MeasuredPools.of(found) if found else None


def _guess_spread(guesses: Sequence[Guess]) -> PhaseSpread:
    return PhaseSpread(
        tpot=_deciles([guess.log_tpot for guess in guesses]),
        rate=_deciles([guess.log_rate for guess in guesses]),
        ttft=_deciles([guess.log_ttft for guess in guesses if guess.log_ttft is not None]),
    )


def _deciles(logs: Sequence[float]) -> tuple[float, float]:
    low, high = np.quantile(logs, [0.1, 0.9])
    return float(low), float(high)
