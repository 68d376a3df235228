"""Chooses the loads that matter for a measured setup, and writes the command of the next run."""

import shlex
from dataclasses import dataclass
from datetime import UTC, datetime
from math import log2
from pathlib import Path
from typing import Final
from zlib import crc32

import numpy as np

from penstock.api.arguments.choices import model_choice
from penstock.errors import UsageError
from penstock.own_runs.fit_correction import FittedCorrection
from penstock.own_runs.next_run import NextRun, ProposedRun, RunLoad, propose_run
from penstock.performance.calibration.own_correction import log_loads
from penstock.performance.prediction.serving_stack import independent_rank
from penstock.performance.similarity.cases import shape_of
from penstock.performance.similarity.slowdowns import closed_loop_case
from penstock.performance.step.first_token import LoopLoad
from penstock.performance.step.step_work import Array, ReplicaWork
from penstock.planning.spec.plan_file import parse_plan
from penstock.planning.spec.plan_types import WorkloadPlan
from penstock.reading.text import read_text
from penstock.simulation.placement import Placement

_MAX_USERS: Final = 4096
_RUNS_PER_USER: Final = 5
"""Requests that each user of a proposed run sends, so that most of the run is steady."""


@dataclass(frozen=True, kw_only=True)
class _Loads:
    """Loads of requests of one length on the measured replica, with one, two, four and more users."""

    placement: Placement
    fitted: FittedCorrection
    lengths: tuple[int, int]

    @property
    def possible(self) -> list[RunLoad]:
        """Return the loads that the replica can run without a queue."""
        replica, dp = self.placement.replica, self.placement.deployment.parallelism.dp
        most = _MAX_USERS
        if replica is not None:
            room = replica.kv_blocks * replica.block_tokens // sum(self.lengths)
            most = max(1, min(replica.max_sequences, room) * dp)
        doublings = range(int(np.log2(min(most, _MAX_USERS))) + 1)
        return [RunLoad(2**number, *self.lengths) for number in doublings]

    def times(self) -> tuple[Array, Array]:
        """Return the corrected time to first token and time per token at each possible load, in seconds."""
        rank, ranks = independent_rank(ReplicaWork(self.placement.deployment))
        stack, engine = self.placement.stack, self.placement.measured_engine or ""
        inputs, outputs = map(float, self.lengths)
        users = [max(1.0, load.users / ranks) for load in self.possible]
        today = closed_loop_case(
            rank, engine, tuple((each, inputs, outputs) for each in users), datetime.now(UTC).date()
        )
        logs = log_loads([(log2(each), log2(inputs), log2(outputs)) for each in users])
        loop = LoopLoad(
            users=np.array(users),
            input_tokens=inputs,
            output_tokens=outputs,
            batched_tokens=rank.deployment.batched_tokens,
        )
        first_s = stack.unqueued_first_token_s(rank, loop)
        return first_s, np.exp(stack.curve.log_seconds(today) + self.fitted.steps.mean(logs))


def proposed_run(fitted: FittedCorrection, placement: Placement, plan: Path | str | None) -> ProposedRun | None:
    """Return the run that narrows the interval most: at the measured lengths, or at the loads of a plan."""
    return _at_measured_lengths(fitted, placement) if plan is None else _at_plan(fitted, placement, Path(plan))


def _at_measured_lengths(fitted: FittedCorrection, placement: Placement) -> ProposedRun | None:
    # Lengths of runs with equal settings differ by some tokens.
    lengths = {
        (round(2 * log2(inputs)), round(2 * log2(outputs))): (round(inputs), round(outputs))
        for _, inputs, outputs in (one.load for one in fitted.runs)
    }
    loads = [
        load for each in lengths.values() for load in _Loads(placement=placement, fitted=fitted, lengths=each).possible
    ]
    found = propose_run(fitted.steps, loads, loads, ranks=_ranks(placement))
    if found is None:
        return None
    load = found.load
    served = next((one.run.model for one in fitted.runs if one.run.model), placement.deployment.model.name)
    command = [
        *("vllm", "bench", "serve", "--base-url", "URL", "--model", served),
        *("--dataset-name", "random", "--random-input-len", str(load.input_tokens)),
        *("--random-output-len", str(load.output_tokens), "--ignore-eos", "--max-concurrency", str(load.users)),
        *("--num-prompts", str(_RUNS_PER_USER * load.users), "--seed", str(_fresh_seed(fitted))),
        *("--save-result", "--save-detailed"),
    ]
    matters = f"1 to {max(load.users for load in loads):,} users of the measured lengths"
    return ProposedRun(run=found, matters=matters, command=shlex.join(command))


def _fresh_seed(fitted: FittedCorrection) -> int:
    """Return a seed that earlier runs did not have, so that no prompt is in a prefix cache."""
    return crc32(repr([(one.run.ttft.mean_s, one.run.tpot.mean_s) for one in fitted.runs]).encode())


def _at_plan(fitted: FittedCorrection, placement: Placement, path: Path) -> ProposedRun | None:
    """Return the run of a plan's workload that narrows the interval most at the loads within the workload's SLO."""
    found: list[tuple[NextRun, WorkloadPlan, float, int]] = []
    for workload in _workloads_of(placement, path):
        loads = _Loads(placement=placement, fitted=fitted, lengths=_mean_lengths(workload))
        first_s, token_s = loads.times()
        busy_s = first_s + token_s * (loads.lengths[1] - 1)
        kept = workload.slo.met(ttft_s=first_s, tpot_s=token_s, e2e_s=busy_s)
        usable = [load for load, good in zip(loads.possible, kept, strict=True) if good] or loads.possible[:1]
        run = propose_run(fitted.steps, usable, usable, ranks=_ranks(placement))
        if run is not None:
            at = loads.possible.index(run.load)
            found.append((run, workload, run.load.users / float(busy_s[at]), usable[-1].users))
    if not found:
        return None
    run, workload, rate, most = max(found, key=lambda one: one[0].before[1] - one[0].after[1])
    command = f"penstock bench {shlex.quote(str(path))} --workload {shlex.quote(workload.name)} --rate {rate:.3g}"
    return ProposedRun(
        run=run,
        matters=f"1 to {most:,} users of {workload.name}, which keep its SLO",
        command=f"{command} --repeats 1 --target NAME=URL",
    )


def _workloads_of(placement: Placement, path: Path) -> list[WorkloadPlan]:
    text = read_text(path, "`penstock plan --init > plan.yaml` writes an example")
    workloads = parse_plan(text, path.name, today=datetime.now(UTC).date()).workloads
    shape = shape_of(placement.deployment.model)
    found = [one for one in workloads if one.shares and shape_of(model_choice(one.model, None)) == shape]
    if not found:
        names = ", ".join(sorted({one.model for one in workloads}))
        raise UsageError(
            f"--plan: no workload of {path.name} has lengths and runs {placement.deployment.model.name}; "
            f"its models are {names}"
        )
    return found


def _mean_lengths(workload: WorkloadPlan) -> tuple[int, int]:
    """Return the mean lengths of a workload's requests, which `bench` sends as a mix."""
    shares = workload.shares
    total = sum(one.fraction for one in shares)
    inputs = sum(one.fraction * one.bucket.input_tokens for one in shares) / total
    outputs = sum(one.fraction * one.bucket.output_tokens for one in shares) / total
    return max(1, round(inputs)), max(2, round(outputs))


def _ranks(placement: Placement) -> int:
    return independent_rank(ReplicaWork(placement.deployment))[1]
