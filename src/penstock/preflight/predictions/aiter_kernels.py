"""Looks up AITER's assembly kernels for MLA decode by chip, number of heads and KV cache type."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

from penstock.fleet.release import Release
from penstock.preflight.rules.condition import Facts

_TILE = 16
_PADS_FROM = Release("0.18.0")


@dataclass(frozen=True, slots=True, kw_only=True)
class AiterLookup:
    """The keys of a kernel lookup, and its result."""

    heads: int
    padded_heads: int
    """Number of heads per rank after vLLM's padding."""
    kv: str
    query_tokens: int
    found: bool
    available_heads: tuple[int, ...]
    """Numbers of heads for which a kernel exists with this KV cache type and number of query tokens."""


def lookup_mla(facts: Facts, table: Mapping[str, Any]) -> AiterLookup | None:
    """Look up AITER's decode kernel for an MLA model.

    Return None if the model has no MLA, if the table lacks the chip, or if AITER's MLA is turned off.
    """
    chip, heads, kinds = facts.get("chip"), facts.get("model.heads_per_rank"), facts.get("model.attention")
    if not isinstance(chip, str) or chip not in table or not isinstance(heads, int):
        return None
    on = facts.get("env.VLLM_ROCM_USE_AITER") == "1" and facts.get("env.VLLM_ROCM_USE_AITER_MLA") != "0"
    if not isinstance(kinds, frozenset) or "mla" not in kinds or not on:
        return None
    version, drafts = facts.get("version"), facts.get("launch.speculative_tokens")
    kv = "fp8" if facts.get("kv.stored") == "fp8" else "bf16"
    tokens = 1 + (drafts if isinstance(drafts, int) else 0)
    padded = ceil(heads / _TILE) * _TILE if isinstance(version, Release) and version >= _PADS_FROM else heads
    kernels = [kernel for kernel in table[chip]["mla_decode"] if kernel["kv"] == kv]
    fitting = {int(kernel["heads"]) for kernel in kernels if not kernel["tokens"] or int(kernel["tokens"]) >= tokens}
    return AiterLookup(
        heads=heads,
        padded_heads=padded,
        kv=kv,
        query_tokens=tokens,
        found=heads in fitting or padded in fitting,
        available_heads=tuple(sorted(fitting)),
    )
