"""Proposes a launch command, with a note, for one replica of each pool; `preflight` proposes the same command."""

from dataclasses import dataclass

from penstock.catalog.accelerator import Accelerator
from penstock.fleet.pools import Pool
from penstock.model import ModelSpec
from penstock.planning.candidates.launch_obstacles import SubjectOf
from penstock.planning.plan_result import Answer, PlanResult
from penstock.planning.planned_fleet import planned_fleet
from penstock.preflight.pool_check import check_pool, quantised_at_load, stores_own_format
from penstock.preflight.rules.knowledge import Knowledge


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLaunch:
    """One pool and the command that starts one of its replicas."""

    pool: str
    replicas: int
    devices: int
    engine: str
    command: str
    note: str


def pool_launches(
    result: PlanResult, answer: Answer, subject_of: SubjectOf, knowledge: Knowledge
) -> tuple[PoolLaunch, ...]:
    """Propose a launch for every pool of the chosen fleet in its last period."""
    models = {workload.name: workload.model for workload in result.plan.workloads}
    specs = {
        (models[entry.workload], entry.accelerator.id, entry.weights): entry.deployment.model
        for entry in result.candidates
    }
    return tuple(
        _launch(
            pool,
            result.resolved.accelerators[pool.accelerator],
            specs[pool.model, pool.accelerator, pool.weights],
            subject_of,
            knowledge,
        )
        for pool in planned_fleet(result, answer).pools
    )


def _launch(
    pool: Pool, accelerator: Accelerator, model: ModelSpec, subject_of: SubjectOf, knowledge: Knowledge
) -> PoolLaunch:
    subject = subject_of(pool.model)
    answer = check_pool(pool, accelerator, subject, model, knowledge)
    note = f"{pool.engine.name} {answer.question.version}; preflight: {answer.readiness.value}"
    if quantised_at_load(pool, subject) is not None:
        note += f"; converts the published weights to {pool.weights} at load"
    elif not stores_own_format(pool, subject):
        # How a checkpoint was quantised decides which kernels run, and this checkpoint has no name yet.
        note = (
            f"{pool.engine.name} {answer.question.version}; fill in your {pool.weights} checkpoint and run "
            "`penstock preflight` on it"
        )
    disaggregated = _disaggregated_note(pool)
    return PoolLaunch(
        pool=pool.name,
        replicas=pool.replicas,
        devices=pool.devices,
        engine=pool.engine.name,
        command=answer.plan.bare(),
        note=f"{note}; {disaggregated}" if disaggregated else note,
    )


def _disaggregated_note(pool: Pool) -> str:
    """Return a note on the components of a disaggregated deployment that the command does not start."""
    if pool.role == "both":
        return ""
    library = {"vllm": " (NIXL; VLLM_NIXL_SIDE_CHANNEL_HOST is its address)", "sglang": " (Mooncake or NIXL)"}
    kv = "" if pool.kv_bytes_per_s is None else f" at {pool.kv_bytes_per_s / 1e9:g} GB/s per replica"
    sends = f"prefills and sends KV to {pool.feeds}{kv}"
    does = sends if pool.role == "prefill" else "decodes requests that the prefill pool has prefilled"
    return (
        f"{does}; needs a KV transfer library on every node{library.get(pool.engine.name, '')} and the engine's own "
        "router, which sends each request to both pools; `penstock route` does not do that"
    )
