"""Blocks of caches with recurrent layers, against figures that vLLM logged."""

from dataclasses import replace

import pytest

from penstock.catalog import load_accelerator
from penstock.checkpoint import open_checkpoint
from penstock.fleet import Deployment, Parallelism
from penstock.fleet.engines import engine_defaults
from penstock.model import CacheDtype
from penstock.performance.memory.budget import MemoryFit, fit
from penstock.preflight.facts.subject import subject_of
from penstock.units import GIB


def fitted(model: str, accelerator: str, version: str, kv_gib: float, cache: CacheDtype, tokens: int) -> MemoryFit:
    part = load_accelerator(accelerator)
    engine = replace(engine_defaults("vllm", part, version=version), kv_cache_bytes=int(kv_gib * GIB))
    deployment = Deployment(
        model=subject_of(open_checkpoint(model), model).model,
        accelerator=part,
        engine=engine,
        parallelism=Parallelism(tp=1),
        cache_dtype=cache,
    )
    return fit(deployment, tokens)


def test_logged_tokens_of_hybrids_equal_vllm() -> None:
    """Qwen3.5-9B with an FP8 cache on L40S, vLLM 0.18.0: 20.27 GiB, "GPU KV cache size: 331,584 tokens"."""
    answer = fitted("qwen3.5-9b", "l40s", "0.18.0", 20.27, CacheDtype.FP8, 131_072)
    assert answer.capacity is not None
    assert answer.capacity.logged_tokens is not None
    assert answer.capacity.logged_tokens == pytest.approx(331_584, rel=0.005)
    assert answer.capacity.tokens > 3 * answer.capacity.logged_tokens


def test_state_blocks_equal_the_reported_error() -> None:
    """Qwen3.6-27B on H100: 41.0 GiB are "available Mamba cache blocks (856)" (recipes#551)."""
    answer = fitted("qwen3.6-27b", "h100_sxm", "0.22.1", 41.0, CacheDtype.BF16, 8192)
    assert answer.state_blocks is not None
    assert answer.state_blocks.median == pytest.approx(856, rel=0.01)


def test_models_without_states_have_no_state_blocks() -> None:
    assert fitted("llama-3.1-8b", "h100_sxm", "0.33.0", 41.0, CacheDtype.BF16, 8192).state_blocks is None
