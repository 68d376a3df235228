"""Proposes a launch command, with a note, for one replica of each pool; `preflight` proposes the same command."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, cast

from penstock.catalog.accelerator import Accelerator
from penstock.fleet.engines import NEWEST, EngineName
from penstock.fleet.pools import Pool
from penstock.model import ModelSpec
from penstock.planning.candidates.deployment_options import CHECKPOINT
from penstock.planning.plan_result import Answer, PlanResult
from penstock.planning.planned_fleet import planned_fleet
from penstock.preflight import LaunchChoices, PreflightQuestion, Subject, check
from penstock.preflight.launch.setting import Setting
from penstock.preflight.rules.knowledge import Knowledge

_CACHE_FLAG: Final = {"fp8": "fp8", "fp8_e4m3": "fp8_e4m3", "fp8_e5m2": "fp8_e5m2"}
"""Maps KV cache format to the value of the engine's flag; formats that the engine selects without a flag are absent."""

SubjectOf = Callable[[str], Subject]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLaunch:
    """One pool and the command that starts one of its replicas."""

    pool: str
    replicas: int
    devices: int
    engine: str
    command: str | None
    """Launch command; None if Penstock knows no launch command for the engine."""
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
    engine_name = pool.engine.name
    command = None
    note = (
        f"see the documentation of {engine_name} for its launch command; to get a command here, restrict the plan to "
        f"`engine: [{', '.join(NEWEST)}]`"
    )
    disaggregated = _disaggregated_note(pool)
    if engine_name in NEWEST:
        engine = cast("EngineName", engine_name)
        subject = _subject(pool, model, subject_of)
        asked = LaunchChoices(
            parallelism=pool.split, cache_dtype=_CACHE_FLAG.get(pool.kv), drafted_tokens=pool.drafted_tokens
        )
        question = PreflightQuestion(
            subject=subject, accelerator=accelerator, engine=engine, version=NEWEST[engine], asked=asked
        )
        answer = check(question, knowledge)
        launch = answer.plan.with_flags(*_role_flags(pool))
        if pool.role != "both":
            answer = check(replace(question, launch=launch.as_launch()), knowledge)
        command, note = launch.bare(), f"{engine_name} {NEWEST[engine]}; preflight: {answer.readiness.value}"
        if pool.weights != CHECKPOINT:
            # How a checkpoint was quantised decides which kernels run, and this checkpoint has no name yet.
            note = (
                f"{engine_name} {NEWEST[engine]}; fill in your {pool.weights} checkpoint and run `penstock preflight` "
                "on it"
            )
    return PoolLaunch(
        pool=pool.name,
        replicas=pool.replicas,
        devices=pool.devices,
        engine=engine_name,
        command=command,
        note=f"{note}; {disaggregated}" if disaggregated else note,
    )


def _role_flags(pool: Pool) -> tuple[Setting, ...]:
    """Return the flags that make an engine prefill only or decode only."""
    if pool.role == "both":
        return ()
    if pool.engine.name == "sglang":
        return (Setting(name="disaggregation-mode", value=pool.role, why=f"this engine runs {pool.role} only"),)
    # Either side of vLLM's connector may send and receive; the router decides which side serves each step of a request.
    value = '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'
    return (Setting(name="kv-transfer-config", value=value, why="transfers KV between the engines"),)


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


def _subject(pool: Pool, model: ModelSpec, subject_of: SubjectOf) -> Subject:
    """Return the checkpoint that preflight checks; for converted weights, the user must fill in its name."""
    subject = subject_of(pool.model)
    if pool.weights == CHECKPOINT:
        return subject
    return replace(subject, model=model, name=f"YOUR-{pool.weights.upper()}-CHECKPOINT")
