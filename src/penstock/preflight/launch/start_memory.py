"""Computes the memory that an engine needs to start, and a memory fraction and context with which it starts."""

import re
from dataclasses import dataclass, replace
from typing import Final

from penstock.catalog.accelerator import Accelerator
from penstock.errors import ConfigError, UsageError
from penstock.fleet import Deployment, Parallelism
from penstock.fleet.deployment import default_cache_dtype
from penstock.fleet.release import Release
from penstock.fleet.serving_engines import ENGINES, ServingEngine, serving_defaults
from penstock.model import CacheDtype, ModelSpec, cache_dtype
from penstock.performance import MemoryFit, fit, minimum_devices
from penstock.performance.memory.budget import DeviceRoom, usual_context_tokens
from penstock.performance.memory.engine_settings_that_fit import MAX_HUNDREDTHS, TUNABLE, with_room
from penstock.preflight.facts.drafting import drafting_of
from penstock.preflight.facts.situation import Launch
from penstock.preflight.launch.context_ranks import context_ranks
from penstock.preflight.launch.launch_plan import LaunchPlan
from penstock.preflight.launch.setting import Setting
from penstock.preflight.launch.state_blocks import MAX_REQUESTS, safe_requests, too_few_blocks
from penstock.units import GIB, format_gib, parse_tokens

_FEWEST_TOKENS: Final = 1024
_BYTE_SUFFIXES: Final = {"K": 2**10, "M": 2**20, "G": 2**30, "k": 10**3, "m": 10**6, "g": 10**9}
_PADS_SINCE: Final = Release("0.31.0")
"""First release of vLLM that pads slices of FP8 experts for AITER (pad_tp_shard_to_weight_blocks in
fused_moe/oracle/fp8.py)."""
_STEP: Final = "max-num-batched-tokens"
_SMALL_STEP: Final = 2048
"""Tokens per step that vLLM uses on small devices. vLLM's recipes also use this step size if memory is short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CutContext:
    """A shorter context that fits, if the model's full context does not fit."""

    model_tokens: int
    tokens: int
    safe_tokens: int
    """Tokens that fit even if the reserves take their P90. `tokens` may be more."""
    needed_bytes: int
    left_bytes: int


def deployment_of(
    launch: Launch,
    engine: ServingEngine,
    version: Release,
    accelerator: Accelerator,
    split: Parallelism,
    executed: ModelSpec,
) -> Deployment:
    """Build the deployment that a launch describes. Flags that the launch does not set have the engine's defaults."""
    settings = serving_defaults(engine, accelerator, version=str(version), tp=split.tp, pp=split.pp)
    fraction, drafts = launch.flag("gpu-memory-utilization", "mem-fraction-static"), drafting_of(launch)
    return Deployment(
        model=executed,
        accelerator=accelerator,
        engine=replace(
            settings,
            memory_fraction=_fraction(fraction) or settings.memory_fraction,
            max_batched_tokens=_count(launch.flag("max-num-batched-tokens", "chunked-prefill-size", "max-num-tokens"))
            or settings.max_batched_tokens,
            max_sequences=_count(launch.flag("max-num-seqs", "max-batch-size")) or settings.max_sequences,
            graphs=launch.flag("enforce-eager", "disable-cuda-graph") is None,
            kv_cache_bytes=_bytes(launch.flag("kv-cache-memory-bytes")),
            offloaded_bytes=_gib(launch.flag("cpu-offload-gb")),
            hybrid_cache=launch.flag("disable-hybrid-kv-cache-manager") is None,
            redundant_experts=_redundant(launch),
            pads_expert_blocks=(launch.flag("moe-backend") or "").lower() == "aiter" and version >= _PADS_SINCE,
            context_ranks=context_ranks(launch, engine),
            attention_backend=_attention_backend(launch),
            context_limit_tokens=_count(launch.flag("context-length")),
            keeps_stated_fraction=fraction is not None and _keeps_fraction(launch, version),
        ),
        parallelism=split,
        cache_dtype=_cache_dtype(launch.flag("kv-cache-dtype"))
        or default_cache_dtype(executed, accelerator, engine, version),
        speculative=drafts is not None and drafts.own_layers,
    )


def _attention_backend(launch: Launch) -> str | None:
    """Return the attention backend that SGLang's flags name for prefill and decode alike, or None."""
    prefill, decode = launch.flag("prefill-attention-backend"), launch.flag("decode-attention-backend")
    return prefill if prefill is not None and prefill == decode else launch.flag("attention-backend")


def _keeps_fraction(launch: Launch, version: Release) -> bool:
    """Return whether SGLang takes the fraction of the launch as it is, which it can since 0.5.19."""
    stated = launch.environment.get("SGLANG_AITER_HONOR_EXPLICIT_MEM_FRACTION", "").lower()
    return stated in {"1", "true"} and version >= Release("0.5.19")


def start_context(launch: Launch, asked: int | None, deployment: Deployment) -> int:
    """Return the context in tokens that the KV cache should hold for one request at start-up.

    A limit in the launch command comes first, then the context that the user requests. Without either, the result is
    the model's limit, and a usual context if the engine chooses the limit. vLLM refuses to start if the context does
    not fit. SGLang starts, and refuses long requests.
    """
    model = deployment.model
    typed = launch.flag("max-model-len", "context-length", "max-seq-len")
    if typed is not None and (tokens := _tokens(typed)) is not None:
        return tokens
    if asked is not None:
        return asked
    if typed is not None or model.max_context_tokens is None:
        return usual_context_tokens(model)
    return model.max_context_tokens


def with_more_room(plan: LaunchPlan, deployment: Deployment, asked: int | None) -> LaunchPlan:
    """Add the flags of the nearest settings with which a proposed launch fits that does not fit without them.

    The flags set a larger memory fraction or shorter steps. The plan is unchanged if no settings help.
    """
    wanted = asked or usual_context_tokens(deployment.model)
    flags = {setting: flag.replace("_", "-") for setting, flag in ENGINES[plan.engine].tuning_flags.items()}
    free = {name for name in TUNABLE if name in flags and not plan.has(flags[name])}
    engine = with_room(deployment, wanted, free=free).engine
    why = f"the engine's defaults leave no room for {wanted:,} tokens"
    if engine.memory_fraction != deployment.engine.memory_fraction:
        plan = plan.with_flags(Setting(name=flags["memory_fraction"], value=f"{engine.memory_fraction:.2f}", why=why))
    if engine.max_batched_tokens != deployment.engine.max_batched_tokens:
        plan = plan.with_flags(Setting(name=flags["max_batched_tokens"], value=str(engine.max_batched_tokens), why=why))
    return plan


def fit_to_memory(
    plan: LaunchPlan, deployment: Deployment, asked: int | None
) -> tuple[LaunchPlan, CutContext | None, MemoryFit]:
    """Add flags that give a proposed launch room for its context and its requests.

    The flags set shorter steps, then a shorter context, and last fewer requests at once, if there are fewer blocks for
    recurrent states.
    """
    plan, cut, memory = _fit_context(plan, deployment, asked)
    safe = safe_requests(memory)
    if safe is None or too_few_blocks(memory, plan.as_launch()) is None:
        return plan, cut, memory
    plan = plan.with_flags(Setting(name=MAX_REQUESTS, value=str(safe), why="the cache has a block of states for each"))
    engine = replace(memory.deployment.engine, max_sequences=safe)
    return plan, cut, DeviceRoom(replace(memory.deployment, engine=engine)).at(memory.context_tokens)


def _fit_context(
    plan: LaunchPlan, deployment: Deployment, asked: int | None
) -> tuple[LaunchPlan, CutContext | None, MemoryFit]:
    room = DeviceRoom(deployment)
    if asked is not None or ENGINES[plan.engine].server != "vllm":
        return plan, None, served_memory(room, start_context(plan.as_launch(), asked, deployment))
    cut = fitting_context(room)
    if cut is not None and not plan.has(_STEP) and (smaller := _smaller_step(room, cut)) is not None:
        taken = format_gib(step_bytes(room))
        why = f"steps of {room.deployment.engine.max_batched_tokens:,} reserve {taken} GiB for sliding-window layers"
        plan = plan.with_flags(Setting(name=_STEP, value=str(smaller.deployment.engine.max_batched_tokens), why=why))
        room, cut = smaller, fitting_context(smaller)
    if cut is None:
        return plan, None, room.at(start_context(Launch(), None, deployment))
    shorter = Setting(name="max-model-len", value=str(cut.tokens), why=reason_to_cut(cut))
    return plan.with_flags(shorter), cut, room.at(cut.tokens)


def reason_to_cut(cut: CutContext) -> str:
    """Write why a launch needs a shorter context than the model's."""
    return (
        f"the model's {cut.model_tokens:,} need {format_gib(cut.needed_bytes)} GiB of KV cache a device and "
        f"{format_gib(cut.left_bytes)} are left: without it vLLM does not start"
    )


def served_memory(room: DeviceRoom, context_tokens: int) -> MemoryFit:
    """Return the memory with requests of `context_tokens`, or of what SGLang has room for if that is less.

    SGLang takes the context of the config, starts in any case, and refuses the requests that do not fit.
    """
    memory, model = room.at(context_tokens), room.deployment.model
    stated = context_tokens != model.max_context_tokens
    if room.deployment.engine.name != "sglang" or memory.fits or memory.capacity is None or stated:
        return memory
    # Whether the weights fit is asked with a usual context: a long one would make every doubt a refusal.
    longest, usual = memory.capacity.longest_context_tokens or 0, usual_context_tokens(model)
    return room.at(longest if memory.obstacle_is("context") and longest >= usual else usual)


def _smaller_step(room: DeviceRoom, cut: CutContext) -> DeviceRoom | None:
    """Return the memory of the deployment with engine steps of 2,048 tokens, or None if such steps are not worthwhile.

    Steps of 2,048 tokens are worthwhile if they make the full context fit, or a context at least 1.5 times as long.
    """
    engine = room.deployment.engine
    if engine.max_batched_tokens <= _SMALL_STEP:
        return None
    smaller = DeviceRoom(replace(room.deployment, engine=replace(engine, max_batched_tokens=_SMALL_STEP)))
    longer = fitting_context(smaller)
    return smaller if longer is None or longer.tokens >= cut.tokens * 3 // 2 else None


def step_bytes(room: DeviceRoom) -> int:
    """Return the KV bytes that start-up needs for the tokens of a step, in addition to the KV bytes of one request."""
    limit = room.deployment.model.max_context_tokens or usual_context_tokens(room.deployment.model)
    capacity = room.at(limit).capacity
    return 0 if capacity is None else capacity.start_bytes - capacity.request_bytes


def fitting_context(room: DeviceRoom) -> CutContext | None:
    """Return a shorter context that fits in memory.

    Return None if the model's full context fits, or if no context fits.
    """
    limit = room.deployment.model.max_context_tokens
    if limit is None:
        return None
    full = room.at(limit)
    if not full.obstacle_is("context") or full.capacity is None or full.budget is None:
        return None
    # If there is room only with the median estimate of the reserves, a quarter of that room is not used.
    held = max(full.capacity.safe_context_tokens, (full.capacity.longest_context_tokens or 0) * 3 // 4)
    # vLLM reserves one block, the null block.
    held -= room.deployment.engine.block_tokens
    step = 1024 if held >= 8 * 1024 else 256
    tokens = held // step * step
    if tokens < _FEWEST_TOKENS:
        return None
    return CutContext(
        model_tokens=limit,
        tokens=tokens,
        safe_tokens=full.capacity.safe_context_tokens,
        needed_bytes=full.capacity.start_bytes,
        left_bytes=full.budget.kv_bytes,
    )


def keeps_whole_context(deployment: Deployment) -> tuple[str, ...]:
    """List the changes that would each make the full context fit.

    Such changes are a larger memory fraction, a narrower KV cache and more devices.
    """
    limit = deployment.model.max_context_tokens
    if limit is None:
        return ()
    found = []
    share = _share_that_fits(fit(deployment, limit))
    if share is not None and deployment.engine.name == "vllm":
        found.append(f"--gpu-memory-utilization {MAX_HUNDREDTHS / 100:.2f} (tight)")
    narrow = replace(deployment, cache_dtype=CacheDtype.FP8)
    if deployment.chosen_cache_dtype is not CacheDtype.FP8 and fit(narrow, limit).fits:
        found.append("--kv-cache-dtype fp8")
    larger = minimum_devices(deployment, limit)
    if larger is not None and larger.deployment.parallelism.devices > deployment.parallelism.devices:
        split = larger.deployment.parallelism
        found.append(f"{split.devices} devices ({split})")
    return tuple(found)


def _share_that_fits(result: MemoryFit) -> float | None:
    """Return the smallest memory fraction above the current one, in steps of 0.01, with which the context fits.

    Return None if the context already fits, or if no fraction is enough.
    """
    if result.fits or result.obstacle_is("refused") or result.obstacle_is("model_limit"):
        return None
    deployment = result.deployment
    first = int(deployment.engine.memory_fraction * 100) + 1
    for hundredths in range(first, MAX_HUNDREDTHS + 1):
        engine = replace(deployment.engine, memory_fraction=hundredths / 100)
        if fit(replace(deployment, engine=engine), result.context_tokens).fits:
            return hundredths / 100
    return None


def _redundant(launch: Launch) -> int:
    """Return the number of redundant experts that a launch requests, or 0 if the launch requests none."""
    typed = launch.flag("ep-num-redundant-experts")
    if typed is not None:
        return _count(typed) or 0
    found = re.search(r'"num_redundant_experts"\s*:\s*(\d+)', launch.flag("eplb-config") or "")
    return 0 if found is None else _count(found.group(1)) or 0


def _fraction(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else 0.0
    except ValueError:
        return None
    return value if 0 < value <= 1 else None


def _gib(text: str | None) -> int:
    """Convert a size to bytes. Engines call the unit of this size GB, but mean GiB."""
    return int(float(text) * GIB) if text is not None and re.fullmatch(r"\d{1,5}(\.\d{1,6})?", text) else 0


def _count(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and 0 < len(text) < 9 and int(text) else None


def _bytes(text: str | None) -> int | None:
    """Return the bytes in a size such as `4194304`, `4M` (binary) or `4m` (decimal), as vLLM parses them."""
    if text is None or not text:
        return None
    scale = _BYTE_SUFFIXES.get(text[-1])
    number = text if scale is None else text[:-1]
    return int(number) * (scale or 1) if number.isdecimal() and len(number) < 16 else None  # no memory is larger


def _tokens(text: str) -> int | None:
    """Return the tokens in `32768` or `32k`. Return None for `auto` and -1, which let the engine choose the number."""
    try:
        return parse_tokens(text)
    except UsageError:
        return None


def _cache_dtype(asked: str | None) -> CacheDtype | None:
    try:
        return None if asked in {None, "auto"} else cache_dtype(str(asked))
    except ConfigError:
        return None


def uncounted_cache(launch: Launch) -> str | None:
    """Return the KV cache dtype of a launch whose bytes per token are not known, or None."""
    asked = launch.flag("kv-cache-dtype")
    return asked if asked not in {None, "auto"} and _cache_dtype(asked) is None else None
