"""Small things many tests build: models, deployments, accelerators of any size."""

from dataclasses import replace

from penstock.catalog import load_accelerator
from penstock.catalog.accelerator import Accelerator
from penstock.checkpoint import open_checkpoint
from penstock.fleet import Deployment, Parallelism, engine_defaults
from penstock.fleet.engine import EngineName
from penstock.model import CacheDtype, ModelSpec


def model(name: str) -> ModelSpec:
    return open_checkpoint(name).spec


def accelerator_with(name: str, device_bytes: int) -> Accelerator:
    """A catalog part with another amount of memory."""
    part = load_accelerator(name)
    usable = None if part.memory.usable_hbm_bytes is None else device_bytes
    return replace(part, memory=replace(part.memory, hbm_bytes=device_bytes, usable_hbm_bytes=usable))


def deployment(
    name: str | ModelSpec,
    on: str | Accelerator,
    *,
    tp: int = 1,
    pp: int = 1,
    dp: int = 1,
    ep: bool = False,
    engine: EngineName = "vllm",
    version: str | None = None,
    kv: CacheDtype | None = None,
) -> Deployment:
    part = load_accelerator(on) if isinstance(on, str) else on
    return Deployment(
        model=model(name) if isinstance(name, str) else name,
        accelerator=part,
        engine=engine_defaults(engine, part, version=version, tp=tp, pp=pp),
        parallelism=Parallelism(tp=tp, pp=pp, dp=dp, expert_parallel=ep),
        cache_dtype=kv,
    )
