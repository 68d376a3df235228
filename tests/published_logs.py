"""Published start-up logs of real servers, and what we would have predicted; docs and tests read both."""

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

from examples import accelerator_with, deployment, model
from penstock.catalog import load_accelerator
from penstock.model import CacheDtype
from penstock.model.weight import FP8_CHANNEL, INT4
from penstock.performance import MemoryFit, fit
from penstock.units import GIB

LOGS: list[dict[str, Any]] = tomllib.loads(
    (Path(__file__).parent / "data" / "kv_cache_logs.toml").read_text(encoding="utf-8")
)["log"]


def predicted(log: dict[str, Any]) -> MemoryFit:
    spec = model(log["model"])
    if "weights" in log:
        spec = spec.stored_as({"fp8": FP8_CHANNEL, "int4": INT4}[log["weights"]])
    part = load_accelerator(log["accelerator"])
    if "device_gib" in log:
        part = accelerator_with(log["accelerator"], int(log["device_gib"] * GIB))
    asked = deployment(
        spec,
        part,
        tp=log["tp"],
        pp=log.get("pp", 1),
        dp=log.get("dp", 1),
        ep=log.get("ep", False),
        engine=log["engine"],
        version=log["version"],
        kv=CacheDtype.FP8 if log.get("kv") == "fp8" else None,
    )
    settings = replace(
        asked.engine,
        memory_fraction=log.get("memory_fraction", asked.engine.memory_fraction),
        max_batched_tokens=log.get("batched_tokens", asked.engine.max_batched_tokens),
        max_sequences=log.get("sequences", asked.engine.max_sequences),
    )
    context = min(log.get("context", 8192), spec.max_context_tokens or 8192)
    return fit(replace(asked, engine=settings), context)


def tokens_as_logged(result: MemoryFit) -> int:
    assert result.capacity is not None
    logged = result.capacity.logged_tokens
    return result.capacity.tokens if logged is None else logged * result.deployment.parallelism.dp


def error(log: dict[str, Any]) -> float:
    """Predicted over logged, minus one."""
    return tokens_as_logged(predicted(log)) / float(log["kv_tokens"]) - 1
