"""Defines a deployment: one schedulable replica of a model, with its accelerator, parallelism and engine."""

from dataclasses import dataclass

from penstock.catalog.accelerator import Accelerator
from penstock.errors import DeploymentError
from penstock.fleet.engines import Engine
from penstock.fleet.release import Release
from penstock.model import CacheDtype, ModelSpec
from penstock.reading.scalars import Count, Flag


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """Parallelism of one replica: tensor, pipeline and data parallel ranks, and expert parallelism."""

    tp: Count = 1
    pp: Count = 1
    dp: Count = 1
    """Data-parallel attention ranks in the replica; the ranks share the experts, but each rank has its own requests."""
    expert_parallel: Flag = False
    """Expert parallelism: whether each rank holds whole experts, instead of a slice of every expert."""

    def __post_init__(self) -> None:
        for name, ranks in (("tp", self.tp), ("pp", self.pp), ("dp", self.dp)):
            if not 1 <= ranks <= 4096:  # larger than any replica
                raise DeploymentError(f"{name} must be between 1 and 4096, not {ranks}")

    @property
    def devices(self) -> int:
        """Number of devices of the replica."""
        return self.tp * self.pp * self.dp

    def __str__(self) -> str:
        parts = [f"tp{self.tp}"]
        parts += [f"pp{self.pp}"] if self.pp > 1 else []
        parts += [f"dp{self.dp}"] if self.dp > 1 else []
        parts += ["ep"] if self.expert_parallel else []
        return " ".join(parts)


def default_cache_dtype(model: ModelSpec, accelerator: Accelerator, engine: str, release: Release) -> CacheDtype:
    """Return the data type of the KV cache that an engine chooses for `auto`.

    vLLM stores the cache of GlmMoeDsaForCausalLM in FP8 on compute capability 10.x (model_executor/models/config.py
    since 0.32.0). SGLang stores the cache of sparse MLA models in FP8 on compute capability 10.0 and later
    (srt/server_args.py since 0.5.3, srt/arg_groups/overrides.py#L1627 in 0.5.18). Otherwise the checkpoint decides.
    """
    target = accelerator.compute_target or ""
    glm = model.architecture == "GlmMoeDsaForCausalLM" and target.startswith(("sm_100", "sm_103"))
    if engine == "vllm" and glm and release >= Release("0.32.0"):
        return CacheDtype.FP8
    indexed = {"mla", "sparse"} <= set(model.attention_kinds)
    if engine == "sglang" and indexed and target.startswith(("sm_10", "sm_12")):
        return CacheDtype.FP8
    return model.cache_dtype


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """One schedulable replica."""

    model: ModelSpec
    accelerator: Accelerator
    engine: Engine
    parallelism: Parallelism = Parallelism()
    cache_dtype: CacheDtype | None = None
    """Data type of the KV cache; None means the engine's `auto`."""
    speculative: bool = False
    """Whether the checkpoint's own multi-token-prediction layers are loaded as a draft model."""

    @property
    def chosen_cache_dtype(self) -> CacheDtype:
        """Data type in which keys and values are stored."""
        return self.cache_dtype or self.model.cache_dtype

    @property
    def batched_tokens(self) -> int:
        """Maximum number of tokens in one step of the replica, summed over its data-parallel ranks."""
        return self.engine.max_batched_tokens * self.parallelism.dp
