"""Chooses vLLM's settings for AMD Instinct:

The settings turn on AITER, and work around features that AITER lacks in a release.
"""

from typing import Final

from penstock.fleet import Parallelism
from penstock.fleet.release import Release
from penstock.model.sequence_mixers import GroupedAttention
from penstock.preflight.facts.derive_facts import expert_width
from penstock.preflight.facts.situation import Subject
from penstock.preflight.launch.setting import Setting

_AITER_CHIPS: Final = ("gfx942", "gfx950")
_SPARSE_MLA: Final = ("DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM")
_UNIFIED: Final = ("Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration")
_FAST_SINCE: Final = Release("0.15.0")
"""First release after the one with which the attention backends were compared; it has the variable of the layout."""
_UNIFIED_SINCE: Final = Release("0.28.0")
"""Oldest release that may be in the image in which ROCM_AITER_UNIFIED_ATTN served Qwen3.5 (September 2026)."""
_FAST_HEADS: Final = (64, 128, 256)
_HAND_WRITTEN_HEADS: Final = (64, 128)
_HAND_WRITTEN_CONTEXT: Final = 131072
"""Head sizes and context for which ROCM_ATTN has its own decode kernel (vllm/platforms/rocm.py)."""
_TILE: Final = 128
_HEADS: Final = 16
"""Number of heads per tile of AITER's MLA kernels."""


FlagsAndVariables = tuple[list[Setting], list[Setting]]


def rocm_settings(subject: Subject, chip: str, version: Release, split: Parallelism) -> FlagsAndVariables:
    """Return vLLM's flags and environment variables for the chip. Both are empty if AITER does not support the chip."""
    if chip not in _AITER_CHIPS:
        return [], []
    variables = [Setting(name="VLLM_ROCM_USE_AITER", value="1", why="AMD's kernels; off by default")]
    return _flags(subject, chip, version), variables + _gaps(subject, chip, version, split)


def settings_without_shape(architecture: str, chip: str) -> FlagsAndVariables:
    """Return vLLM's settings for a model whose shape is not read: AITER, and what the model's recipe on AMD needs."""
    if chip not in _AITER_CHIPS:
        return [], []
    variables = [Setting(name="VLLM_ROCM_USE_AITER", value="1", why="AMD's kernels; off by default")]
    if not architecture.startswith("Glm5Next"):
        return [], variables
    why = "the cache blocks of its recurrent layers on four MI350X (recipes#853)"
    return [Setting(name="max-num-seqs", value="512", why=why)], variables


def fast_attention(subject: Subject, chip: str, version: Release, context_tokens: int | None) -> FlagsAndVariables:
    """Name the fastest attention backend that others ran, if ROCM_ATTN would decode without its hand-written kernel.

    ROCM_ATTN is vLLM's default even with AITER on. ROCM_AITER_FA served Qwen3-235B and GLM-4.7 faster, 1.8 to 4.4 times
    (vLLM's page on ROCm attention, vllm#46596), and ROCM_AITER_UNIFIED_ATTN served Qwen3.5 faster (vllm#56945).
    """
    model, kinds = subject.model, subject.model.attention_kinds
    if chip not in _AITER_CHIPS or version < _FAST_SINCE:
        return [], []
    if "linear" in kinds and model.architecture in _UNIFIED and version >= _UNIFIED_SINCE:
        why = "1.7 to 3.7 times as fast as the default here (vllm#56945)"
        return [Setting(name="attention-backend", value="ROCM_AITER_UNIFIED_ATTN", why=why)], []
    grouped = [layer.mixer for layer in model.layers if isinstance(layer.mixer, GroupedAttention)]
    longest = context_tokens or model.max_context_tokens or 0
    skipped = longest > _HAND_WRITTEN_CONTEXT or any(mixer.key_dim not in _HAND_WRITTEN_HEADS for mixer in grouped)
    if kinds != {"gqa"} or not skipped or any(mixer.key_dim not in _FAST_HEADS for mixer in grouped):
        return [], []
    why = "the default, ROCM_ATTN, decodes here without its own kernel: 1.8 to 4.4 times slower"
    layout = Setting(name="VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT", value="1", why="the cache layout of that backend")
    return [Setting(name="attention-backend", value="ROCM_AITER_FA", why=why)], [layout]


def _flags(subject: Subject, chip: str, version: Release) -> list[Setting]:
    flags: list[Setting] = []
    architecture = subject.model.architecture
    if architecture == "GptOssForCausalLM":
        why = "attention sinks: ROCM_ATTN cannot, the unified backend can (verified recipe)"
        if version >= Release("0.13.0"):
            flags.append(Setting(name="attention-backend", value="ROCM_AITER_UNIFIED_ATTN", why=why))
        flags.append(Setting(name="block-size", value="64", why="the block size that backend prefers"))
    if architecture in _SPARSE_MLA:
        flags.append(Setting(name="block-size", value="1", why="sparse MLA on ROCm (verified recipe)"))
        flags.append(Setting(name="kv-cache-dtype", value="bfloat16", why="the verified recipe; fp8 is the default"))
    if architecture == "DeepseekV4ForCausalLM" and chip == "gfx942" and version < Release("0.27"):
        why = "the only form verified on gfx942 in this release"
        flags.append(Setting(name="moe-backend", value="triton_unfused", why=why))
        flags.append(Setting(name="enforce-eager", value=None, why=why))
    return flags


def _gaps(subject: Subject, chip: str, version: Release, split: Parallelism) -> list[Setting]:
    """Return environment variables that work around features that AITER lacks in a release.

    The variables turn off kernels that AITER lacks, or select an attention backend that supports attention sinks.
    """
    found: list[Setting] = []
    kinds = subject.model.attention_kinds
    mla = "mla" in kinds
    heads = subject.model.query_heads // split.tp
    # Sparse MLA has a separate backend since vLLM 0.18.
    dense = mla and ("sparse" not in kinds or version < Release("0.18.0"))
    if dense and (why := _refused_heads(heads, chip, version)) is not None:
        found.append(
            Setting(name="VLLM_ROCM_USE_AITER_MLA", value="0", why=f"{heads} heads per device: AITER's MLA {why}")
        )
    if mla and chip == "gfx942" and Release("0.15.0") <= version < Release("0.17.0"):
        why = "FP4 projections were on for chips without FP4 before 0.17"
        found.append(Setting(name="VLLM_ROCM_USE_AITER_FP4BMM", value="0", why=why))
    glm = subject.model.architecture == "GlmMoeDsaForCausalLM"
    if glm and chip == "gfx942" and split.tp == 8 and Release("0.26.0") <= version < Release("0.29.0"):
        why = "AITER's all-reduce spoiled GLM-5.2 on 8 devices (aiter#4855)"
        found.append(Setting(name="VLLM_ROCM_USE_AITER_CUSTOM_AR", value="0", why=why))
    if version < Release("0.28") and _width_without_tile(subject, split):
        why = f"the experts' width per device is no multiple of {_TILE}, which AITER's experts did not always take"
        found.append(Setting(name="VLLM_ROCM_USE_AITER_MOE", value="0", why=why))
    if subject.model.architecture == "GptOssForCausalLM":
        if chip == "gfx950" and Release("0.23.0") <= version < Release("0.24.0"):
            why = "AITER's experts spoil gpt-oss on this chip in this release"
            found.append(Setting(name="VLLM_ROCM_USE_AITER_MOE", value="0", why=why))
        why = "attention sinks: ROCM_ATTN cannot, the unified backend can"
        if Release("0.11.1") <= version < Release("0.13.0"):
            found.append(Setting(name="VLLM_ATTENTION_BACKEND", value="ROCM_AITER_UNIFIED_ATTN", why=why))
        elif version < Release("0.11.1"):
            found.append(Setting(name="VLLM_USE_AITER_UNIFIED_ATTENTION", value="1", why=why))
    return found


def _refused_heads(heads: int, chip: str, version: Release) -> str | None:
    """Return the reason why AITER's MLA does not support a number of heads in a release, or None if it does."""
    if version < Release("0.18.0"):
        return None if heads in {16, 128} else "took 16 or 128 before 0.18"
    if heads < _HEADS and version < Release("0.27.0"):
        return "took divisors and multiples of 16 before 0.27" if _HEADS % heads else None
    if heads < _HEADS:
        gluon = chip == "gfx942" and version < Release("0.28.0")
        return "decodes few heads with a kernel of gfx950 in 0.27" if gluon else None
    return "takes multiples of 16 before 0.29" if heads % _HEADS and version < Release("0.29.0") else None


def _width_without_tile(subject: Subject, split: Parallelism) -> bool:
    width = expert_width(subject.model)
    narrow = any(name in subject.model.formats for name in ("mxfp4", "nvfp4", "int4"))
    if width is None or narrow:
        return False
    return bool((width if split.expert_parallel else width // (split.tp * split.dp)) % _TILE)
