"""Defaults and memory accounting of vLLM and SGLang, by version."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from penstock.catalog.accelerator import Accelerator
from penstock.errors import DeploymentError
from penstock.fleet.release import Release
from penstock.units import GIB, MIB

EngineName = Literal["vllm", "sglang"]

NEWEST: Final[Mapping[str, Release]] = {
    "vllm": Release("0.32.0"),
    "sglang": Release("0.5.18"),
    "vllm-atom": Release("0.27.1"),
    "sglang-atom": Release("0.5.17"),
    "atom": Release("0.1.6rc0"),
    "trtllm": Release("1.3.0rc18"),
}
"""Newest release of each engine whose source code was examined; this release is the default version.

The release of vllm-atom and sglang-atom is that of the server into which ATOM is plugged.

Start-up logs, which show an engine's own memory use, were examined up to vLLM 0.31; vLLM 0.32 divides memory with the
same code.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """Engine settings that decide how device memory is divided; see docs/methodology/memory.md."""

    name: EngineName
    version: str
    memory_fraction: float
    """Fraction of device memory for the engine: vLLM's gpu_memory_utilization, SGLang's mem_fraction_static."""
    max_batched_tokens: int
    """Maximum tokens per step: vLLM's max_num_batched_tokens, SGLang's chunked_prefill_size."""
    max_sequences: int
    """Maximum requests per step: vLLM's max_num_seqs, or the size of SGLang's largest decode graph."""
    block_tokens: int = 16
    graphs: bool = True
    """Whether CUDA or HIP graphs are captured (off with --enforce-eager)."""
    kv_cache_bytes: int | None = None
    """KV cache size per device in bytes (--kv-cache-memory-bytes); None uses the remaining memory."""
    offloaded_bytes: int = 0
    """Bytes of weights per device that stay in host memory (--cpu-offload-gb)."""
    hybrid_cache: bool = True
    """Whether layers may keep caches of different lengths (off with --disable-hybrid-kv-cache-manager)."""
    redundant_experts: int | None = None
    """Number of redundant copies of routed experts; None means as many as the parallelism needs.

    The setting is --ep-num-redundant-experts in SGLang, and num_redundant_experts in vLLM's --eplb-config.
    """
    pads_expert_blocks: bool = False
    """Whether each device's slice of FP8 experts is padded to whole blocks (vLLM's --moe-backend aiter)."""
    attention_backend: str | None = None
    """Attention backend that the launch names; None means the engine's own choice."""
    context_limit_tokens: int | None = None
    """Maximum tokens of a request that the launch sets (--context-length); None means the model's own limit."""
    keeps_stated_fraction: bool = False
    """Whether SGLang takes a stated memory fraction as it is (SGLANG_AITER_HONOR_EXPLICIT_MEM_FRACTION)."""
    context_ranks: int = 1
    """Number of tensor parallel ranks that share the tokens of a request (--decode-context-parallel-size)."""
    stands_for: str | None = None
    """Engine and release that these settings stand for, if its own memory accounting was not read; otherwise None."""

    def __post_init__(self) -> None:
        if not 0 < self.memory_fraction <= 1:
            raise DeploymentError(f"memory fraction {self.memory_fraction} must be between 0 and 1")
        if self.redundant_experts is not None and self.redundant_experts < 0:
            raise DeploymentError(f"the number of redundant experts must be 0 or more, not {self.redundant_experts}")
        if min(self.max_batched_tokens, self.max_sequences, self.block_tokens, self.context_ranks) < 1:
            raise DeploymentError(
                "max_batched_tokens, max_sequences, block_tokens and context_ranks must each be at least 1"
            )

    @property
    def release(self) -> Release:
        """Version as a comparable release."""
        return Release(self.version)

    @property
    def graphs_inside_fraction(self) -> bool:
        """True if graph memory counts within the memory fraction: vLLM 0.20 to 0.27.

        From 0.28 on, vLLM's second model runner does not count graph memory within the fraction.
        """
        return self.name == "vllm" and self.release.reaches(0, 20) and not self.release.reaches(0, 28)

    @property
    def samples_lean(self) -> bool:
        """True if the sampler holds about 15 bytes per logit instead of 38: vLLM from 0.17."""
        return self.name == "vllm" and self.release.reaches(0, 17)

    @property
    def schedules_ahead(self) -> bool:
        """True if a step is scheduled before the previous tokens are known: vLLM from 0.14 (--async-scheduling)."""
        return self.name == "vllm" and self.release.reaches(0, 14)

    @property
    def frees_windows(self) -> bool:
        """True if KV blocks behind a sliding window are freed.

        SGLang frees such blocks, and so does vLLM's hybrid KV cache manager from 0.9.1 on.
        """
        return self.hybrid_cache and (self.name != "vllm" or self.release.reaches(0, 9, 1))

    @property
    def holds_experts_twice(self) -> bool:
        """True if experts may have redundant copies, which needs SGLang 0.4.7 or later, or vLLM 0.9.2 or later."""
        return self.release.reaches(0, 4, 7) if self.name == "sglang" else self.release.reaches(0, 9, 2)

    def in_flight_tokens(self, pp: int) -> int:
        """Return the maximum number of tokens in flight.

        From 0.26 on, vLLM counts a full step for each overlapping batch.
        """
        if not self.release.reaches(0, 26):
            return self.max_batched_tokens
        overlapping = 2 if pp == 1 else pp + self.release.reaches(0, 28)
        return self.max_batched_tokens * overlapping

    @property
    def states_per_sequence(self) -> int:
        """Copies of a recurrent state per sequence: vLLM from 0.20 has a second copy for prefix caching (`align`)."""
        return 2 if self.name == "vllm" and self.release.reaches(0, 20) else 1


def engine_defaults(
    name: EngineName, accelerator: Accelerator, *, version: str | None = None, tp: int = 1, pp: int = 1
) -> Engine:
    """Return the settings of an engine that is started without flags on this accelerator."""
    release = Release(version) if version else NEWEST[name]
    if name == "vllm":
        return _vllm(release, accelerator)
    return _sglang(release, accelerator, tp=tp, pp=pp)


def _vllm(release: Release, accelerator: Accelerator) -> Engine:
    memory, large = accelerator.usable_hbm_bytes, accelerator.architecture != "Ampere"
    if memory >= 160 * GIB and release.reaches(0, 29):
        tokens, sequences = 16384, 1024
    elif memory >= 70 * GIB and large:
        tokens, sequences = 8192, 1024 if release.reaches(0, 8, 5) else 256
    else:
        tokens, sequences = 2048, 256
    return Engine(
        name="vllm",
        version=release.text,
        memory_fraction=0.92 if release.reaches(0, 20) else 0.90,
        max_batched_tokens=tokens,
        max_sequences=sequences,
    )


def _sglang(release: Release, accelerator: Accelerator, *, tp: int, pp: int) -> Engine:
    memory = accelerator.usable_hbm_bytes
    chunk, graph_batch = _sglang_sizes(memory, tp)
    reserved = (512 + 1.5 * max(chunk, 2048) + tp * pp / 8 * 1024 + 2 * graph_batch) * MIB
    if memory > 60 * GIB:
        reserved = max(reserved, 10 * GIB)
    return Engine(
        name="sglang",
        version=release.text,
        memory_fraction=max(0.1, round((memory - reserved) / memory, 3)),
        max_batched_tokens=chunk,
        max_sequences=graph_batch,
        block_tokens=1,
    )


def _sglang_sizes(memory: int, tp: int) -> tuple[int, int]:
    wide = tp >= 4  # the engine's own threshold
    tiers = ((20, 2048, 8, 8), (35, 2048, 24, 80), (60, 4096, 32, 160), (160, 8192, 256, 512))
    for below_gib, chunk, narrow_batch, wide_batch in tiers:
        if memory < below_gib * GIB:
            return chunk, wide_batch if wide else narrow_batch
    return 16384, 512
