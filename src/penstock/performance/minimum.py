"""What is the smallest thing that makes it fit? Fewest devices, a shorter context, a smaller format."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from penstock.model import CacheDtype
from penstock.model.weight import FP8_CHANNEL
from penstock.performance.deployment import Deployment, Parallelism
from penstock.performance.memory_fit import MemoryFit, fit

MAX_NODES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """One change that alone makes the deployment fit."""

    change: str
    devices: int


def minimum_devices(deployment: Deployment, context_tokens: int) -> MemoryFit | None:
    """Find the smallest replica that fits: tensor parallel within a node, then whole nodes in a pipeline."""
    for parallelism in _layouts(deployment):
        found = fit(replace(deployment, parallelism=parallelism), context_tokens)
        if found.fits:
            return found
        if found.obstacle is not None and found.obstacle.obstacle == "model_limit":
            return None
    return None


def remedies(result: MemoryFit, fewest: MemoryFit | None) -> tuple[Remedy, ...]:
    """List single changes that make it fit, the smallest first."""
    if result.fits:
        return ()
    deployment, context = result.deployment, result.context_tokens
    devices = deployment.parallelism.devices
    found: list[Remedy] = []
    longest = result.capacity.longest_context_tokens if result.capacity else 0
    if longest > 0 and not (result.budget and result.budget.shortfall_bytes):
        found.append(Remedy(change=f"a context of at most {longest:,} tokens", devices=devices))
    if deployment.chosen_cache_dtype is not CacheDtype.FP8:
        smaller_cache = replace(deployment, cache_dtype=CacheDtype.FP8)
        if fit(smaller_cache, context).fits:
            found.append(Remedy(change="--kv fp8", devices=devices))
    widest = max((weight.format.bits for weight in deployment.model.weights if weight.quantisable), default=0)
    if widest > FP8_CHANNEL.bits:
        smaller_weights = replace(deployment, model=deployment.model.stored_as(FP8_CHANNEL))
        if fit(smaller_weights, context).fits:
            found.append(Remedy(change="--precision fp8", devices=devices))
    if fewest is not None:
        layout = fewest.deployment.parallelism
        found.append(Remedy(change=f"{layout.devices} devices ({layout})", devices=layout.devices))
    return tuple(found)


def _layouts(deployment: Deployment) -> Iterator[Parallelism]:
    node = deployment.accelerator.node.devices
    asked = deployment.parallelism
    within = [tp for tp in range(1, node + 1) if deployment.model.query_heads % tp == 0]
    for tp in within:
        yield replace(asked, tp=tp, pp=1, dp=1)
    widest = within[-1]
    for nodes in range(2, MAX_NODES + 1):
        yield replace(asked, tp=widest, pp=nodes, dp=1)


@dataclass(frozen=True, kw_only=True)
class FitReport:
    """Everything `penstock fit` says about one deployment."""

    fit: MemoryFit
    fewest_devices: int | None
    """The smallest replica of the same accelerator that fits, or None within 16 nodes."""
    fewest_split: str | None
    remedies: tuple[Remedy, ...]
    tier: str
    """calibrated where the reserves were fitted to this engine's logs on this vendor, else transferred."""


def report_fit(deployment: Deployment, context_tokens: int) -> FitReport:
    """Answer whether it fits, what would make it fit, and how few devices would do."""
    result = fit(deployment, context_tokens)
    fewest = minimum_devices(deployment, context_tokens)
    calibrated = deployment.engine.name == "vllm" and deployment.accelerator.vendor in {"amd", "nvidia"}
    return FitReport(
        fit=result,
        fewest_devices=fewest.deployment.parallelism.devices if fewest else None,
        fewest_split=str(fewest.deployment.parallelism) if fewest else None,
        remedies=remedies(result, fewest),
        tier="calibrated" if calibrated else "transferred",
    )
