"""Finds the smallest change that makes a deployment fit: more devices, a shorter context, or a smaller format."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, floor

from penstock.catalog.accelerator import Precision
from penstock.fleet.deployment import Deployment, Parallelism
from penstock.fleet.serving_engines import usual_settings
from penstock.model import CacheDtype
from penstock.model.sequence_mixers import CompressedAttention
from penstock.model.weight import FP8_CHANNEL
from penstock.performance.memory.budget import MemoryFit, Obstacle, fit
from penstock.performance.memory.engine_settings_that_fit import MAX_HUNDREDTHS, engine_flags, with_room
from penstock.performance.memory.sharding import redundant_experts, refusal
from penstock.units import format_gib

MAX_NODES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """One change that alone makes the deployment fit."""

    change: str
    devices: int


def minimum_devices(deployment: Deployment, context_tokens: int) -> MemoryFit | None:
    """Return the smallest replica that fits: tensor parallel within a node, or a pipeline of whole nodes.

    None if no replica of at most 16 nodes fits.
    """
    for layout in _layouts(deployment):
        found = fit(_with_split(deployment, layout), context_tokens)
        if found.fits:
            return found
        if found.obstacle_is("model_limit"):
            return None
    return None


def remedies(result: MemoryFit, fewest: MemoryFit | None) -> tuple[Remedy, ...]:
    """List the changes that each make the deployment fit on their own.

    Changes of settings come first, then fp8 weights, then a different number of devices.
    """
    if result.obstacle is None:
        return ()
    deployment = result.deployment
    devices = deployment.parallelism.devices
    changes = [_other_fraction(result) or _smaller_steps(result)]
    if result.obstacle.longest_context_tokens is not None:
        changes.append(f"a context of at most {result.obstacle.longest_context_tokens:,} tokens")
    if deployment.chosen_cache_dtype is not CacheDtype.FP8:
        changes.append("--kv fp8" if _fits(result, replace(deployment, cache_dtype=CacheDtype.FP8)) else None)
    if result.obstacle_is("refused"):
        spread = replace(deployment, parallelism=replace(deployment.parallelism, expert_parallel=True))
        changes.append("--ep" if _fits(result, spread) else None)
    found = [Remedy(change=change, devices=devices) for change in changes if change is not None]
    found += _smaller_weights(result, fewest)
    if fewest is not None:
        layout = fewest.deployment.parallelism
        found.append(Remedy(change=_replica(layout), devices=layout.devices))
    return tuple(found)


def _fits(result: MemoryFit, changed: Deployment) -> bool:
    return fit(changed, result.context_tokens).fits


def _other_fraction(result: MemoryFit) -> str | None:
    """Return the flag with the nearest memory fraction, in hundredths, at which the deployment fits.

    The fraction is lowered if the memory outside the fraction is too small. The fraction is raised if the memory for
    weights or cache is too small. The
    result is None if no fraction leaves enough of both.
    """
    less, deployment = result.obstacle_is("fraction"), result.deployment
    stated = deployment.engine.memory_fraction * 100
    tried = range(ceil(stated) - 1, 0, -1) if less else range(floor(stated) + 1, MAX_HUNDREDTHS + 1)
    cured: tuple[Obstacle, ...] = ("fraction",) if less else ("weights", "context")
    for hundredths in tried:
        if not any(result.obstacle_is(kind) for kind in cured):
            return None
        engine = replace(deployment.engine, memory_fraction=hundredths / 100)
        result = fit(replace(deployment, engine=engine), result.context_tokens)
        if result.fits:
            return f"--memory-fraction {hundredths / 100:.2f}"
    return None


def _smaller_steps(result: MemoryFit) -> str | None:
    """Return the flags of the nearest tokens per step, and memory fraction, at which the deployment fits."""
    deployment = result.deployment
    tuned = with_room(deployment, result.context_tokens)
    if not _fits(result, tuned):
        return None
    engine, flags = tuned.engine, []
    if engine.memory_fraction != deployment.engine.memory_fraction:
        flags.append(f"--memory-fraction {engine.memory_fraction:.2f}")
    return " ".join([*flags, f"--batched-tokens {engine.max_batched_tokens}"])


def _smaller_weights(result: MemoryFit, fewest: MemoryFit | None) -> list[Remedy]:
    """Suggest fp8 weights if the accelerator computes in fp8 and the fp8 weights fit.

    The fp8 weights must fit on the given devices, or need fewer devices than the present weights.
    """
    deployment = result.deployment
    widest = max((weight.format.bits for weight in deployment.model.weights if weight.quantisable), default=0)
    if widest <= FP8_CHANNEL.bits or Precision.FP8 not in deployment.accelerator.dense_flops_per_s:
        return []
    smaller = replace(deployment, model=deployment.model.stored_as(FP8_CHANNEL))
    if _fits(result, smaller):
        return [Remedy(change="--precision fp8", devices=deployment.parallelism.devices)]
    found = minimum_devices(smaller, result.context_tokens)
    if found is None or (fewest is not None and _devices(found) >= _devices(fewest)):
        return []
    layout = found.deployment.parallelism
    return [Remedy(change=f"--precision fp8 with {_replica(layout)}", devices=layout.devices)]


def _devices(result: MemoryFit) -> int:
    return result.deployment.parallelism.devices


def _replica(layout: Parallelism) -> str:
    return f"{layout.devices} device{'s' if layout.devices > 1 else ''} ({layout})"


def _layouts(deployment: Deployment) -> Iterator[Parallelism]:
    """Yield the splits that the engine accepts, in increasing order of the number of devices."""
    asked = replace(deployment.parallelism, pp=1, dp=1)
    within = [replace(asked, tp=tp) for tp in range(1, deployment.accelerator.node.devices + 1)]
    within = [layout for layout in within if refusal(replace(deployment, parallelism=layout)) is None]
    yield from within
    for layout in within[-1:]:
        yield from (replace(layout, pp=nodes) for nodes in range(2, MAX_NODES + 1))


def _with_split(deployment: Deployment, layout: Parallelism) -> Deployment:
    """Return the deployment with the given split.

    If the deployment has the default engine settings, the result has the defaults of the new split.
    """
    engine, accelerator, asked = deployment.engine, deployment.accelerator, deployment.parallelism
    if engine == usual_settings(engine, accelerator, tp=asked.tp, pp=asked.pp):
        engine = usual_settings(engine, accelerator, tp=layout.tp, pp=layout.pp)
    return replace(deployment, parallelism=layout, engine=engine)


@dataclass(frozen=True, kw_only=True)
class FitReport:
    """Full result of `penstock fit` for one deployment."""

    fit: MemoryFit
    """Result with the requested settings, and the engine's defaults for the others."""
    flags: tuple[str, ...]
    """Flags with which the engine must be started to use the settings of `fit`, under the engine's own flag names.
    Empty if the deployment does not fit."""
    fewest_devices: int | None
    """Number of devices of the smallest replica that fits, on the same accelerator. The replica is tensor parallel
    within a node, or a pipeline of whole nodes. None if no replica of at most 16 nodes fits."""
    fewest_split: str | None
    remedies: tuple[Remedy, ...]
    tier: str
    """`calibrated` if the reserves were fitted to logs of this engine on this vendor's accelerators, else
    `transferred`. DeepSeek-V4 is always `transferred`."""
    notes: tuple[str, ...] = ()
    """Caveats, such as a format without a datapath, an unverified accelerator, or ranks in several nodes."""


def report_fit(deployment: Deployment, context_tokens: int) -> FitReport:
    """Report whether a deployment fits, which changes would make it fit, and the fewest devices that it needs."""
    result = fit(deployment, context_tokens)
    fewest = minimum_devices(deployment, context_tokens)
    if result.fits and (fewest is None or _devices(fewest) > _devices(result)):
        fewest = result
    calibrated = (
        deployment.engine.name == "vllm"
        and deployment.engine.stands_for is None
        and deployment.accelerator.vendor in {"amd", "nvidia"}
    )
    calibrated = calibrated and not _has_compressed_attention(deployment)
    return FitReport(
        fit=result,
        flags=engine_flags(deployment) if result.fits else (),
        fewest_devices=_devices(fewest) if fewest else None,
        fewest_split=str(fewest.deployment.parallelism) if fewest else None,
        remedies=remedies(result, fewest),
        tier="calibrated" if calibrated else "transferred",
        notes=(*_notes(deployment), *_compression_notes(result)),
    )


def _has_compressed_attention(deployment: Deployment) -> bool:
    return any(isinstance(layer.mixer, CompressedAttention) for layer in deployment.model.layers)


def _compression_notes(result: MemoryFit) -> Iterator[str]:
    """Yield notes on the memory of DeepSeek-V4: the limited evidence, and the bytes that a start takes."""
    if result.budget is None or result.capacity is None or not _has_compressed_attention(result.deployment):
        return
    if result.deployment.engine.name != "vllm":
        yield "SGLang divides memory between DeepSeek-V4's caches in an unknown way, so its tokens are unknown"
        return
    yield "the memory of DeepSeek-V4 besides its weights is known from four published logs, on Hopper and B200"
    capacity = result.capacity
    if capacity.cached_requests and capacity.start_bytes > capacity.request_bytes:
        yield (
            f"to start a request, vLLM needs {format_gib(capacity.start_bytes)} GiB free; a decoding request takes "
            f"{format_gib(capacity.request_bytes)} GiB"
        )


def _notes(deployment: Deployment) -> Iterator[str]:
    accelerator, tp = deployment.accelerator, deployment.parallelism.tp
    emulated = accelerator.emulated_formats(deployment.model.formats)
    copies, experts, ranks = redundant_experts(deployment), deployment.model.experts, tp * deployment.parallelism.dp
    if copies and experts is not None:
        yield (
            f"needs --ep-num-redundant-experts {copies}: {experts.routed} routed experts and {copies} copies make "
            f"{(experts.routed + copies) // ranks} on each of {ranks} ranks"
        )
    yield from (f"stored in {name}, which {accelerator.id} does not compute natively" for name in emulated)
    together = max(accelerator.node.largest, (accelerator.link.domain_devices if accelerator.link else None) or 0)
    if tp > together:
        yield f"tp {tp} spans nodes: the scale-up link joins only {together} {accelerator.id}"
    if not accelerator.recommendable:
        status = "announced" if accelerator.status == "announced" else "not verified"
        yield f"{accelerator.id} is {status}: its figures may change, and it is kept out of recommendations"
