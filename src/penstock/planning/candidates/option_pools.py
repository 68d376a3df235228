"""Describes a deployment option as the pools of a fleet file."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from penstock.fleet.deployment import Deployment
from penstock.fleet.engine_settings import EngineSetting
from penstock.fleet.engines import NEWEST, Engine
from penstock.fleet.pools import UNSTATED, Pool, PoolEngine
from penstock.fleet.serving_engines import ENGINES, profile_of
from penstock.planning.candidates.replica_capacity import Option

_SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "vllm": {
        "max_num_batched_tokens": "max_batched_tokens",
        "max_num_seqs": "max_sequences",
        "gpu_memory_utilization": "memory_fraction",
    },
    "sglang": {
        "chunked_prefill_size": "max_batched_tokens",
        "max_running_requests": "max_sequences",
        "mem_fraction_static": "memory_fraction",
    },
}
"""Maps server to its names of the settings that a fleet file states, and to the fields of `Engine` that hold them."""


def option_pools(option: Option, *, name: str, model: str, site: str, replicas: int) -> tuple[Pool, ...]:
    """Return one pool of replicas that both prefill and decode, or a prefill pool and a decode pool."""
    unit = option.disaggregated
    if unit is None:
        return (_pool(option, option.deployment, name=name, model=model, site=site, replicas=replicas),)
    ahead, after = (
        _pool(option, deployment, name=f"{name}-{role}", model=model, site=site, replicas=replicas * count)
        for role, deployment, count in (
            ("prefill", unit.prefill, unit.prefill_replicas),
            ("decode", unit.decode, unit.decode_replicas),
        )
    )
    sends = replace(ahead, role="prefill", feeds=after.name, kv_bytes_per_s=unit.sending_bytes_per_s)
    return sends, replace(after, role="decode")


def _pool(option: Option, deployment: Deployment, *, name: str, model: str, site: str, replicas: int) -> Pool:
    accelerator, engine = deployment.accelerator, option.measured_engine
    return Pool(
        name=name,
        model=model,
        weights=option.weights,
        kv=deployment.chosen_cache_dtype.value,
        accelerator=accelerator.id,
        vendor=accelerator.vendor,
        site=site,
        replicas=replicas,
        split=deployment.parallelism,
        drafted_tokens=0 if option.speculation is None else option.speculation.drafted_tokens,
        engine=PoolEngine(
            name=engine,
            version=str(NEWEST.get(engine, UNSTATED)),
            settings=_settings(deployment.engine) if engine in ENGINES else {},
        ),
    )


def _settings(engine: Engine) -> dict[str, EngineSetting]:
    """Return the settings under the names of the engine's server; empty for a server whose names are not known."""
    return {name: getattr(engine, held) for name, held in _SETTINGS.get(profile_of(engine).server, {}).items()}
