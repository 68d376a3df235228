"""Checks the launch of one replica of a pool, as `plan` prints it and `preflight --fleet` checks it."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from penstock.catalog.accelerator import Accelerator
from penstock.errors import DeploymentError, UsageError
from penstock.fleet.engine_settings import ENGINE_FIELDS, caches_prefixes, context_limit
from penstock.fleet.engines import NEWEST
from penstock.fleet.pools import UNSTATED, Pool
from penstock.fleet.release import Release
from penstock.fleet.serving_engines import ENGINES, Server, ServingEngine, serving_defaults, serving_engine
from penstock.model import CacheDtype, ModelSpec
from penstock.preflight.check import check
from penstock.preflight.facts.published_format import published_format
from penstock.preflight.facts.quantisation_scheme import read_scheme
from penstock.preflight.facts.situation import Subject
from penstock.preflight.launch.launch_choices import LaunchChoices
from penstock.preflight.launch.launch_plan import ReplicaPlace
from penstock.preflight.launch.server_program import program_of
from penstock.preflight.launch.setting import Setting
from penstock.preflight.preflight_result import Preflight, PreflightQuestion
from penstock.preflight.rules.knowledge import Knowledge

_UNFLAGGED: Final = frozenset({CacheDtype.BF16, CacheDtype.FP16, CacheDtype.FP32})
"""KV cache formats that the engine selects without a flag."""
_CACHE_FLAG: Final = {name: name for name in (*CacheDtype, "fp8_e4m3", "fp8_e5m2") if name not in _UNFLAGGED}
"""Maps KV cache format to the value of the engine's flag."""
_NAMES_MODELS: Final[frozenset[Server]] = frozenset({"vllm", "sglang"})
"""Servers with a flag for the name of the model."""


def stores_own_format(pool: Pool, subject: Subject) -> bool:
    """Return whether the pool serves the checkpoint in the format in which it is published."""
    return pool.weights == next(iter(subject.model.formats), pool.weights)


def quantised_at_load(pool: Pool, subject: Subject) -> str | None:
    """Return the method with which the engine makes the pool's weight format from the published weights, or None.

    vLLM and SGLang convert 16-bit weights to FP8. Whether they do with ATOM plugged in was not read.
    """
    converts = pool.weights == "fp8" and subject.scheme.method == "none" and pool.engine.name in {"vllm", "sglang"}
    return "fp8" if converts else None


def launched_checkpoint(pool: Pool, subject: Subject) -> Subject | None:
    """Return the checkpoint with which a pool is launched; None if none is published in its weight format.

    This is the published checkpoint if the engine serves or converts it, or else a published checkpoint of the same
    weights in the pool's format.
    """
    if quantised_at_load(pool, subject) is not None or stores_own_format(pool, subject):
        return subject
    return published_format(pool.model, pool.weights)


def check_pool(
    pool: Pool, accelerator: Accelerator, subject: Subject, converted: ModelSpec, knowledge: Knowledge
) -> Preflight:
    """Check the proposed launch of one replica. `converted` is the model in the pool's weight format.

    The engine quantises the published weights at load if it can. Otherwise the pool is launched with a published
    checkpoint in its weight format, or needs a checkpoint that has no name yet.
    """
    if pool.kv not in _CACHE_FLAG and pool.kv not in set(CacheDtype):
        known = ", ".join(dict.fromkeys((*CacheDtype, *_CACHE_FLAG)))
        raise UsageError(f"pool '{pool.name}': kv is '{pool.kv[:40]}'; write one of {known}")
    method, launched = quantised_at_load(pool, subject), launched_checkpoint(pool, subject)
    if launched is None:
        unnamed = f"YOUR-{pool.weights.upper()}-CHECKPOINT"
        launched = replace(subject, model=converted, scheme=read_scheme(converted, None, None), name=unnamed)
    engine = serving_engine(pool.engine.name)
    question = PreflightQuestion(
        subject=launched,
        accelerator=accelerator,
        engine=engine,
        version=_release(pool, engine),
        asked=LaunchChoices(
            parallelism=pool.split,
            cache_dtype=_CACHE_FLAG.get(pool.kv),
            context_tokens=context_limit(pool.engine.settings),
            drafted_tokens=pool.drafted_tokens,
            quantization=method,
        ),
    )
    answer = check(question, knowledge)
    added = (*_role_flags(pool), *_stated_settings(pool, question))
    return _with_served_name(add_flags(answer, added, knowledge) if added else answer, pool)


def _with_served_name(answer: Preflight, pool: Pool) -> Preflight:
    """Return the launch with the pool's model name, by which routers and load tools ask for it.

    The engine would otherwise answer to the name of the repository only. Servers of ATOM and TensorRT-LLM have no such
    flag in the releases that were read.
    """
    plan = answer.plan
    if ENGINES[plan.engine].server not in _NAMES_MODELS or plan.model == pool.model:
        return answer
    named = Setting(name="served-model-name", value=pool.model, why="clients ask for the model by this name")
    return replace(answer, plan=plan.with_flags(named))


def place_replica(answer: Preflight, pool: Pool, machine_devices: int | None) -> Preflight:
    """Return the launch of a pool's first replica, with its own devices and the port of its endpoint.

    A replica that shares its machine with others would otherwise take all devices and the same port as the others.
    `machine_devices` is None for machines of the usual size.
    """
    devices, node = pool.split.devices, machine_devices or answer.question.accelerator.node.devices
    together = min(pool.replicas, node // devices) if devices < node else 1
    stated = next((address.rpartition(":")[2] for address in pool.endpoints), None)
    if answer.plan.nodes > 1 or (together < 2 and stated is None):
        return answer
    usual = program_of(answer.plan.engine).port
    place = ReplicaPlace(
        devices=tuple(range(devices)) if together > 1 else (),
        port=usual if stated is None else int(stated),
        replicas=together,
    )
    return replace(answer, plan=replace(answer.plan, place=place))


def add_flags(answer: Preflight, added: tuple[Setting, ...], knowledge: Knowledge) -> Preflight:
    """Check the proposed launch again with the flags that the pool adds."""
    plan = replace(answer.plan, flags=()).with_flags(*added, *answer.plan.flags)
    checked = check(replace(answer.question, launch=plan.as_launch()), knowledge)
    return replace(checked, plan=plan)


def _release(pool: Pool, engine: ServingEngine) -> Release:
    if pool.engine.version == UNSTATED:
        return NEWEST[engine]
    try:
        return Release(pool.engine.version)
    except DeploymentError as error:
        raise UsageError(f"pool '{pool.name}': {error}, or {UNSTATED}") from None


def _role_flags(pool: Pool) -> Iterator[Setting]:
    """Yield the flags that make an engine prefill only or decode only."""
    if pool.role == "both" or pool.engine.name in {"atom", "trtllm"}:
        return
    if pool.engine.name.startswith("sglang"):
        yield Setting(name="disaggregation-mode", value=pool.role, why=f"this engine runs {pool.role} only")
        return
    # Either side of vLLM's connector may send and receive; the router decides which side serves each step of a request.
    value = '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'
    yield Setting(name="kv-transfer-config", value=value, why="transfers KV between the engines")


def _stated_settings(pool: Pool, question: PreflightQuestion) -> Iterator[Setting]:
    """Yield flags for the settings of the fleet file that differ from the engine's defaults."""
    split, why = pool.split, "the fleet file sets it"
    usual = serving_defaults(
        question.engine, question.accelerator, version=str(question.version), tp=split.tp, pp=split.pp
    )
    for name, value in pool.engine.settings.items():
        field = ENGINE_FIELDS.get(name)
        if field is not None and getattr(usual, field) != value:
            yield Setting(name=name.replace("_", "-"), value=str(value), why=why)
    if not caches_prefixes(pool.engine.settings):
        name = "disable-radix-cache" if question.profile.server == "sglang" else "no-enable-prefix-caching"
        yield Setting(name=name, value=None, why=why)
