"""Checks vLLM's decode context parallelism, which divides the cached tokens of a request over tensor parallel ranks."""

from collections.abc import Iterator
from typing import Final

from penstock.fleet import Parallelism
from penstock.fleet.release import Release
from penstock.fleet.serving_engines import ENGINES, ServingEngine
from penstock.model import LatentAttention, ModelSpec
from penstock.model.sequence_mixers import GroupedAttention
from penstock.preflight.facts.situation import Launch

_FLAG: Final = "decode-context-parallel-size"
_READ_SINCE: Final = Release("0.16.0")
"""The first release whose checks were read: verify_with_parallel_config in config/model.py and __post_init__ in
config/parallel.py, the same at v0.16.0, v0.21.0 and v0.33.0."""


def context_ranks(launch: Launch, engine: ServingEngine) -> int:
    """Return the number of ranks over which vLLM divides the tokens of a request, or 1."""
    text = launch.flag(_FLAG) or ""
    return int(text) if ENGINES[engine].server == "vllm" and text.isdecimal() and 0 < int(text[:6]) <= 4096 else 1


def wrong_context_ranks(
    launch: Launch, engine: ServingEngine, version: Release, model: ModelSpec, split: Parallelism
) -> Iterator[str]:
    """Yield why vLLM refuses the number of context ranks of a launch."""
    ranks, tp = context_ranks(launch, engine), split.tp
    if ranks == 1 or version < _READ_SINCE or launch.flag("prefill-context-parallel-size") not in {None, "1"}:
        return
    if tp % ranks:
        yield f"tensor parallel {tp} is not a multiple of --{_FLAG} {ranks}"
        return
    mixers = [layer.mixer for layer in model.layers]
    grouped = [mixer for mixer in mixers if isinstance(mixer, GroupedAttention)]
    if not grouped or any(isinstance(mixer, LatentAttention) for mixer in mixers):
        return
    heads = max(mixer.kv_heads for mixer in grouped)
    queries = max(mixer.query_heads for mixer in grouped) // heads
    if tp <= heads:
        yield f"--{_FLAG} {ranks} needs more tensor parallel ranks than the {heads} KV heads, and there are {tp}"
    elif ranks > tp // heads:
        yield f"--{_FLAG} {ranks} is more than the {tp // heads} copies of each KV head at tensor parallel {tp}"
    elif queries % ranks:
        yield f"--{_FLAG} {ranks} does not divide the {queries} query heads per KV head"
