"""Proposes a launch command, with a note, for one replica of each pool; `preflight` proposes the same command."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from penstock.fleet.pools import Fleet, Pool
from penstock.planning.candidates.launch_obstacles import SubjectOf
from penstock.planning.plan_result import Answer, PlanResult
from penstock.planning.planned_fleet import planned_fleet
from penstock.preflight import Preflight, Subject
from penstock.preflight.pool_check import check_pool, launched_checkpoint, quantised_at_load
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
    """Propose a launch for every pool of the chosen fleet in its first period."""
    checked = _checked_pools(result, planned_fleet(result, answer), subject_of, knowledge)
    return tuple(_launch(pool, subject_of(pool.model), check) for pool, check in checked)


def launched_fleet(
    result: PlanResult, answer: Answer, period: int, subject_of: SubjectOf, knowledge: Knowledge
) -> Fleet:
    """Describe the chosen fleet in a period, with the image and the launch of every pool's engine."""
    fleet = planned_fleet(result, answer, period)
    pools = []
    for pool, check in _checked_pools(result, fleet, subject_of, knowledge):
        # A version that the file leaves open is the version of the launch that the file states.
        engine = replace(
            pool.engine,
            version=str(check.question.version),
            image=check.plan.image,
            launch=check.plan.bare() if check.passes else None,
        )
        pools.append(replace(pool, engine=engine))
    return replace(fleet, pools=tuple(pools))


def _checked_pools(
    result: PlanResult, fleet: Fleet, subject_of: SubjectOf, knowledge: Knowledge
) -> Iterator[tuple[Pool, Preflight]]:
    """Yield the pools of a planned fleet with the preflight of one replica."""
    models = {workload.name: workload.model for workload in result.plan.workloads}
    specs = {
        (models[entry.workload], entry.accelerator.id, entry.weights): entry.deployment.model
        for entry in result.candidates
    }
    for pool in fleet.pools:
        accelerator = result.resolved.accelerators[pool.accelerator]
        spec = specs[pool.model, pool.accelerator, pool.weights]
        yield pool, check_pool(pool, accelerator, subject_of(pool.model), spec, knowledge)


def _launch(pool: Pool, subject: Subject, answer: Preflight) -> PoolLaunch:
    note = f"{pool.engine.name} {answer.question.version}; preflight: {answer.readiness.value}"
    if quantised_at_load(pool, subject) is not None:
        note += f"; converts the published weights to {pool.weights} at load"
    elif (launched := launched_checkpoint(pool, subject)) is not None:
        note += "" if launched is subject else f"; {pool.weights} weights of {launched.name}"
    else:
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
