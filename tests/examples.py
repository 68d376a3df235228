"""Small things many tests build: models, deployments, accelerators of any size."""

from dataclasses import replace

import numpy as np

from penstock.catalog import load_accelerator
from penstock.catalog.accelerator import Accelerator
from penstock.checkpoint import open_checkpoint
from penstock.fleet import Deployment, Parallelism
from penstock.fleet.serving_engines import ServingEngine, serving_defaults
from penstock.model import CacheDtype, ModelSpec

SLOWDOWNS = np.array([1.3, 1.5, 1.2, 2.5, 2.2, 1.8, 3.0, 0.5, 40e-6, 30e-6, 20e-6, 3e-6, 2e-6, 5e-6, 9e-6, 2e-3, 50e-6])
"""Of each part of a step, of no stack in particular."""


def model(name: str) -> ModelSpec:
    return open_checkpoint(name).spec


def accelerator_with(name: str, device_bytes: int) -> Accelerator:
    """A catalog accelerator with another amount of memory."""
    accelerator = load_accelerator(name)
    usable = None if accelerator.memory.usable_hbm_bytes is None else device_bytes
    return replace(accelerator, memory=replace(accelerator.memory, hbm_bytes=device_bytes, usable_hbm_bytes=usable))


def deployment(
    name: str | ModelSpec,
    on: str | Accelerator,
    *,
    tp: int = 1,
    pp: int = 1,
    dp: int = 1,
    ep: bool = False,
    engine: ServingEngine = "vllm",
    version: str | None = None,
    kv: CacheDtype | None = None,
) -> Deployment:
    accelerator = load_accelerator(on) if isinstance(on, str) else on
    return Deployment(
        model=model(name) if isinstance(name, str) else name,
        accelerator=accelerator,
        engine=serving_defaults(engine, accelerator, version=version, tp=tp, pp=pp),
        parallelism=Parallelism(tp=tp, pp=pp, dp=dp, expert_parallel=ep),
        cache_dtype=kv,
    )
