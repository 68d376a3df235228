"""Predicts the attention backend, its limits, and how CUDA or HIP graphs are captured."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Final

from penstock.fleet.release import Release, ReleaseRange
from penstock.fleet.sglang_attention import rocm_backend
from penstock.preflight.rules.condition import Facts


class GraphSupport(IntEnum):
    """The steps that a backend allows to be captured as CUDA or HIP graphs.

    A model is limited by the least capable backend of its layers.
    """

    NEVER = 0
    SINGLE_TOKEN = 1
    UNIFORM_BATCH = 2
    ALWAYS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """The attention backend that the engine chooses, its limits, and why earlier candidates were rejected."""

    name: str | None
    """Name of the backend. The name is None if no backend works, or if the engine's selection code was not read."""
    determined: bool
    block: str
    graphs: GraphSupport | None
    rejected: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphMode:
    """How CUDA or HIP graphs are captured for decode steps and for mixed steps, and the reason."""

    decode: str
    mixed: str
    why: str


_AITER_BY_NAME: Final = Release("0.16.0")
"""First release read in which a launch may name AITER's backends without VLLM_ROCM_USE_AITER: the platform then only
validates the backend, which does not ask for the variable (vllm@v0.16.0:vllm/_aiter_ops.py, vllm/platforms/rocm.py)."""
_BLOCK_OF_ONE: Final = ReleaseRange.parse(">=0.11.1, <0.18.0")
"""Releases in which `--block-size 1` makes ROCm take ROCM_AITER_MLA for MLA, and refuse TRITON_MLA
(vllm@v0.11.1:vllm/platforms/rocm.py#L227-L242, the same up to v0.17.0)."""
_BLOCK_IS_ASKED: Final = Release("0.19.0")
"""First release in which every backend is asked whether it takes --block-size (validate_configuration, and
vllm@v0.19.0:vllm/v1/attention/selector.py#L74-L77). ROCm's platform drops the number in 0.18.0."""
_UNREAD: Final = Backend(name=None, determined=False, block="", graphs=None, rejected={})
_ROCM_CHIPS_READ: Final = frozenset({"gfx942", "gfx950"})


def predict_backend(facts: Facts, table: Mapping[str, Any]) -> Backend:
    """Return the attention backend that the engine chooses.

    vLLM chooses the first backend without an obstacle, in its order of preference for this chip and model.
    """
    if facts.get("engine") == "sglang":
        return _sglang_backend(facts, table["sglang"])
    order = _order(facts, table["order"])
    if facts.get("engine") != "vllm" or order is None or not _reads_cache(facts, table["backends"]):
        return _UNREAD
    rejected: dict[str, str] = {}
    asked = facts.get("launch.attention_backend")
    if isinstance(asked, str) and asked in table["backends"]:
        # MLA and sparse MLA have separate backends. vLLM refuses any other backend that the launch names.
        if _kinds(facts) & {"mla"} and asked not in order:
            sparse = " sparse" if "sparse" in _kinds(facts) else ""
            return Backend(name=None, determined=True, block="", graphs=None, rejected={asked: f"no{sparse} MLA"})
        order = [asked]
    elif order[0] == "ROCM_AITER_MLA" and _chooses_by_block_of_one(facts):
        order = order[:1]
    elif (forced := table["forced"].get(facts.get("model.architecture"))) is not None and facts.get(
        "platform"
    ) == "rocm":
        order = [forced]
    for name in order:
        entry = table["backends"][name]
        obstacle = _obstacle(entry, facts)
        if obstacle is None:
            support = _graph_support(name, entry, facts)
            return Backend(name=name, determined=True, block=entry["block"], graphs=support, rejected=rejected)
        rejected[name] = obstacle
    return Backend(name=None, determined=True, block="", graphs=None, rejected=rejected)


def _reads_cache(facts: Facts, backends: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether the table lists at least one backend for this KV cache type."""
    wanted = _cache_type(facts)
    return any(wanted in entry["kv"] for entry in backends.values())


def _cache_type(facts: Facts) -> object:
    """Return the KV cache type by which backends are chosen.

    Some types share the byte size of FP8, and backends that take FP8 (E4M3) refuse them.
    """
    asked = facts.get("kv.dtype")
    apart = isinstance(asked, str) and asked.startswith("fp8_") and asked != "fp8_e4m3"
    return asked if apart else facts.get("kv.stored")


def _sglang_backend(facts: Facts, table: Mapping[str, Any]) -> Backend:
    """Return the attention backend that the launch names, or SGLang's default backend if the launch names none."""
    asked, version, chip = facts.get("launch.attention_backend"), facts.get("version"), facts.get("chip")
    if isinstance(asked, str) and asked != "auto":
        return replace(_UNREAD, name=asked, determined=True)
    kind = _kind(_kinds(facts))
    if kind is None or not isinstance(version, Release) or version < Release(table["since"]) or chip is None:
        return _UNREAD
    if chip in _ROCM_CHIPS_READ:
        name = rocm_backend(_kinds(facts), str(facts.get("model.architecture")), _heads_of_replica(facts))
        return replace(_UNREAD, name=name, determined=True)
    # In the tables, "else" means any other CUDA chip. For other ROCm chips, no code was read.
    keys = (chip, "else") if facts.get("platform") == "cuda" else ()
    tables = (table["models"].get(facts.get("model.architecture"), {}), table["kinds"][kind])
    name = next((found[key] for found in tables for key in keys if key in found), "?")
    return _UNREAD if name == "?" else replace(_UNREAD, name=name, determined=True)


def _heads_of_replica(facts: Facts) -> int:
    """Return the query heads of a device if all ranks of the replica shared them, by which SGLang chooses."""
    heads, ranks = facts.get("model.heads_per_rank"), facts.get("parallel.dp")
    return heads // ranks if isinstance(heads, int) and isinstance(ranks, int) else 0


def _kind(kinds: frozenset[str]) -> str | None:
    """Return the kind of attention by which an engine chooses a backend.

    Return None if all attention is linear or unknown.
    """
    if not kinds - {"linear"}:
        return None
    if "compressed" in kinds:
        return "compressed"
    if "mla" in kinds:
        return "sparse_mla" if "sparse" in kinds else "mla"
    if "sparse" in kinds:
        return "sparse_gqa"
    return "sinks" if "sinks" in kinds else "standard"


def _kinds(facts: Facts) -> frozenset[str]:
    kinds = facts.get("model.attention")
    return kinds if isinstance(kinds, frozenset) else frozenset()


def _order(facts: Facts, orders: Mapping[str, list[str]]) -> list[str] | None:
    kind, chip, platform = _kind(_kinds(facts)), facts.get("chip"), facts.get("platform")
    if platform not in {"rocm", "cuda"} or not isinstance(chip, str) or kind is None:
        return None
    if kind == "sparse_gqa":
        return list(orders[kind])
    kind = "standard" if kind == "sinks" else kind
    suffix = "_10" if chip in {"sm_100", "sm_103"} else ""
    hopper = "_9" if chip == "sm_90" else suffix
    first = orders.get(f"{platform}_mm_prefix{hopper}", []) if facts.get("model.mm_prefix") is True else []
    return [*first, *(orders.get(f"{platform}_{kind}{suffix}") or orders[f"{platform}_{kind}"])]


def _obstacle(entry: Mapping[str, Any], facts: Facts) -> str | None:
    chip, kv, head = facts.get("chip"), _cache_type(facts), facts.get("model.head_dim")
    if not _in_range(entry.get("releases"), facts.get("version")):
        return "not in this release"
    if "chips" in entry and chip not in entry["chips"]:
        return f"not for {chip}"
    if not _takes_cache(entry, facts):
        return f"no {facts.get('kv.dtype') if kv == 'fp8' else kv} cache"
    if (missing := _aiter_obstacle(entry.get("aiter"), facts)) is not None:
        return missing
    if (refused := _block_obstacle(entry, facts)) is not None:
        return refused
    if entry["heads"] and head not in entry["heads"]:
        return f"no head size {head}"
    takes_sinks = entry["sinks"] and ("sink_chips" not in entry or chip in entry["sink_chips"])
    if "sinks" in _kinds(facts) and not takes_sinks:
        return "no attention sinks"
    if facts.get("launch.kv_connector") is True and not entry["connector"]:
        return "no KV connector"
    if facts.get("model.mm_prefix") is True and not _takes_mm_prefix(entry, facts.get("version")):
        return "no attention to image tokens in both directions"
    return None


def _takes_cache(entry: Mapping[str, Any], facts: Facts) -> bool:
    """Return whether a backend of this release takes the KV cache type on this chip, with this model's heads."""
    kv, chip, version = _cache_type(facts), facts.get("chip"), facts.get("version")
    if kv not in entry["kv"] or not _in_range(entry.get("kv_names", {}).get(facts.get("kv.dtype")), version):
        return False
    if (chips := entry.get("kv_chips", {}).get(kv)) is not None:
        span = chips.get(chip) or chips.get("any")
        if span is None or not isinstance(version, Release) or not ReleaseRange.parse(span).holds(version):
            return False
    limits = {} if chip in {"sm_100", "sm_103"} else entry.get("kv_not", {}).get(kv, {})
    by_sinks = limits.get("sinks", False) and "sinks" in _kinds(facts)
    return not by_sinks and facts.get("model.head_dim") not in limits.get("heads", ())


def _in_range(span: str | None, version: object) -> bool:
    """Return whether a release is in a range. No range holds every release."""
    return span is None or (isinstance(version, Release) and ReleaseRange.parse(span).holds(version))


def _block_obstacle(entry: Mapping[str, Any], facts: Facts) -> str | None:
    block, version = facts.get("launch.block_size"), facts.get("version")
    if not isinstance(block, int) or not isinstance(version, Release):
        return None
    refused = version >= _BLOCK_IS_ASKED and block % entry["multiple"] != 0
    if not refused and not (entry["multiple"] > 1 and "mla" in _kinds(facts) and _chooses_by_block_of_one(facts)):
        return None
    return f"no block size {block}"


def _chooses_by_block_of_one(facts: Facts) -> bool:
    version, rocm = facts.get("version"), facts.get("platform") == "rocm"
    return (
        rocm and facts.get("launch.block_size") == 1 and isinstance(version, Release) and _BLOCK_OF_ONE.holds(version)
    )


def _takes_mm_prefix(entry: Mapping[str, Any], version: object) -> bool:
    span = entry.get("mm_prefix")
    return span is not None and isinstance(version, Release) and ReleaseRange.parse(span).holds(version)


def _aiter_obstacle(needed: str | None, facts: Facts) -> str | None:
    on, version = facts.get("env.VLLM_ROCM_USE_AITER") == "1", facts.get("version")
    named = facts.get("launch.attention_backend") not in {None, "auto"}
    if needed in {"on", "mla"} and named and isinstance(version, Release) and version >= _AITER_BY_NAME:
        return None
    if needed == "mla" and _chooses_by_block_of_one(facts):
        return None
    if needed in {"on", "mla"} and not on:
        return "AITER is off"
    if needed == "mla" and facts.get("env.VLLM_ROCM_USE_AITER_MLA") == "0":
        return "AITER's MLA is off"
    return None


def _graph_support(name: str, entry: Mapping[str, Any], facts: Facts) -> GraphSupport:
    support = GraphSupport[str(entry["graphs"]).upper()]
    version = facts.get("version")
    # TRITON_MLA supports uniform batches before 0.26 and from 0.32 on, but not between these releases.
    outside = isinstance(version, Release) and not Release("0.26.0") <= version < Release("0.32.0")
    if name == "TRITON_MLA" and outside:
        support = GraphSupport.UNIFORM_BATCH
    if "chunked" in _kinds(facts):
        return GraphSupport.NEVER
    return min(support, GraphSupport.UNIFORM_BATCH) if "linear" in _kinds(facts) else support


def predict_graphs(facts: Facts, backend: Backend) -> GraphMode | None:
    """Return how the engine captures CUDA or HIP graphs by default.

    Return None if the engine's code for this decision was not read for the release. In vLLM, the compilation config
    decides how graphs are captured.
    """
    version = facts.get("version")
    if facts.get("launch.graphs") is False:
        return GraphMode(decode="none", mixed="none", why="the launch turns graphs off")
    if facts.get("engine") == "sglang":
        mixed = "piecewise" if facts.get("platform") == "cuda" else "none"
        return GraphMode(decode="full", mixed=mixed, why="SGLang captures decode; prefill graphs are CUDA only")
    if not isinstance(version, Release) or version < Release("0.11.0") or backend.graphs is None:
        return None
    if backend.graphs is GraphSupport.NEVER:
        return GraphMode(decode="piecewise", mixed="piecewise", why="its attention can never be captured")
    if facts.get("platform") == "rocm" and any(_above_one(facts, name) for name in ("parallel.dcp", "parallel.pcp")):
        return GraphMode(decode="piecewise", mixed="piecewise", why="context parallelism on ROCm")
    drafts = facts.get("launch.speculative_tokens")
    if isinstance(drafts, int) and drafts > 0 and backend.graphs < GraphSupport.UNIFORM_BATCH:
        return GraphMode(decode="piecewise", mixed="piecewise", why=f"{backend.name} captures single tokens only")
    return GraphMode(decode="full", mixed="piecewise", why="the default, FULL_AND_PIECEWISE")


def _above_one(facts: Facts, name: str) -> bool:
    value = facts.get(name)
    return isinstance(value, int) and value > 1
