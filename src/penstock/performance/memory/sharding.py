"""Computes which part of each weight one device holds under tensor, expert and pipeline parallelism."""

from collections import Counter
from collections.abc import Mapping
from math import ceil, gcd

from penstock.fleet.deployment import Deployment, Parallelism
from penstock.model import ModelSpec, Part, Split, Weight
from penstock.model.sequence_mixers import GroupedAttention

_VOCAB_MULTIPLE = 64
"""Engines pad the vocabulary to a multiple of this number before they split it. The value is DEFAULT_VOCAB_PADDING_SIZE
in vLLM and SGLang."""
_FINEST_BLOCK = 32
"""The smallest block size for which vLLM's Triton experts accept refined scales."""
_FEED_FORWARD = {Part.DENSE_FFN, Part.SHARED_EXPERTS, Part.ROUTED_EXPERTS}


def stage_of_layers(layers: int, pp: int) -> tuple[int, ...]:
    """Return each layer's pipeline stage.

    All stages get equal numbers of layers. Any extra layers go to the stages before the last stage.
    """
    share, left = divmod(layers, pp)
    counts = [share] * pp
    for extra in range(left):
        # Extra layers go to the last stage but one and backwards, because the last stage also holds the head.
        counts[(pp - 2 - extra) % pp] += 1
    return tuple(stage for stage, count in enumerate(counts) for _ in range(count))


def weight_bytes_by_part(deployment: Deployment, stage: int) -> dict[Part, int]:
    """Return the bytes of weights that one device of a pipeline stage holds, for each part of the model."""
    model, totals = deployment.model, dict[Part, int]()
    for kind, count in _held_kinds(model, deployment.parallelism.pp, stage).items():
        weight = model.weight_kinds[0][kind]
        if weight.part is Part.MTP and not deployment.speculative:
            continue
        totals[weight.part] = totals.get(weight.part, 0) + count * device_bytes(weight, deployment)
    return totals


def _held_kinds(model: ModelSpec, pp: int, stage: int) -> Counter[int]:
    """Return the number of weights of each kind that a pipeline stage holds."""
    kinds, kind_of = model.weight_kinds
    if pp == 1:
        return Counter(kind_of)
    stages, tied = stage_of_layers(len(model.layers), pp), all(kind.part is not Part.LM_HEAD for kind in kinds)
    every = zip(model.weights, kind_of, strict=True)
    return Counter(kind for weight, kind in every if stage in _stages_holding(weight, stages, pp, tied=tied))


def device_bytes(weight: Weight, deployment: Deployment) -> int:
    """Return the bytes that one weight takes on one device, including all copies that the device holds."""
    parallelism = deployment.parallelism
    if weight.copies > 1:
        return _expert_bytes(weight, deployment)
    return weight.format.bytes_of(_shard_shape(weight, parallelism.tp))


def _expert_bytes(weight: Weight, deployment: Deployment) -> int:
    """Return the bytes of routed experts on one device.

    Experts are spread over all tensor and data ranks. With expert parallelism, each rank holds whole experts. Without
    expert parallelism, each rank holds a slice of every expert.
    """
    ranks = deployment.parallelism.tp * deployment.parallelism.dp
    if deployment.parallelism.expert_parallel:
        held = ceil((weight.copies + redundant_experts(deployment)) / ranks)
        return weight.format.bytes_of(_pad_experts(weight, weight.shape, deployment)) * held
    return weight.format.bytes_of(_pad_experts(weight, _shard_shape(weight, ranks), deployment)) * weight.copies


def redundant_experts(deployment: Deployment) -> int:
    """Return the number of redundant copies of routed experts in a replica.

    SGLang asserts that every rank has the same number of experts (eplb/expert_location.py). So a number of ranks that
    does not divide the number of experts needs copies. Instead of copies, vLLM gives the first ranks one more expert
    (determine_expert_map).
    """
    experts, split, engine = deployment.model.experts, deployment.parallelism, deployment.engine
    if experts is None or not split.expert_parallel:
        return 0
    if engine.redundant_experts is not None:
        return engine.redundant_experts
    pads = engine.name == "sglang" and engine.holds_experts_twice
    return experts.copies_to_divide(split.tp * split.dp) if pads else 0


def _shard_shape(weight: Weight, ranks: int) -> tuple[int, ...]:
    rows, *rest = weight.shape
    if weight.split is Split.REPLICATED or ranks == 1:
        # One device still pads the vocabulary.
        return (_pad(rows, _VOCAB_MULTIPLE), *rest) if weight.split is Split.VOCAB else weight.shape
    if weight.split is Split.VOCAB:
        return (ceil(_pad(rows, _VOCAB_MULTIPLE) / ranks), *rest)
    held = max(1, ceil(weight.units / ranks))
    if weight.split is Split.ROW and rest:
        return (rows, ceil(rest[0] * held / weight.units), *rest[1:])
    return (ceil(rows * held / weight.units), *rest)


def _pad_experts(weight: Weight, shape: tuple[int, ...], deployment: Deployment) -> tuple[int, ...]:
    """Round both dimensions of the experts up, as vLLM's expert kernels for gpt-oss do.

    The hidden size is rounded up to a multiple of 256. The width per device is rounded up to a multiple of 128 (256 on
    AMD). If the engine pads slices of FP8 experts to whole blocks, the width is rounded up to a multiple of the block.
    """
    block = _block(weight) if deployment.engine.pads_expert_blocks and weight.format.name == "fp8" else 1
    if block > 1 and len(shape) == 2:
        return (shape[0], _pad(shape[1], block)) if weight.split is Split.ROW else (_pad(shape[0], block), shape[1])
    if deployment.model.quantisation != "mxfp4" or deployment.engine.name != "vllm" or len(shape) != 2:
        return shape
    width_multiple = 256 if deployment.accelerator.vendor == "amd" else 128
    if weight.split is Split.ROW:
        return (_pad(shape[0], 256), _pad(shape[1], width_multiple))
    return (_pad(shape[0], width_multiple), _pad(shape[1], 256))


def _pad(size: int, multiple: int) -> int:
    return ceil(size / multiple) * multiple


def _stages_holding(weight: Weight, stages: tuple[int, ...], pp: int, *, tied: bool) -> tuple[int, ...]:
    if weight.layer is not None:
        return (stages[weight.layer],)
    if weight.part is Part.EMBEDDING:
        # A tied head is a second copy of the embedding table, on the last stage.
        return (0, pp - 1) if tied and pp > 1 else (0,)
    return (0,) if weight.part is Part.VISION else (pp - 1,)


def bytes_left_on_device(weights: Mapping[Part, int], offloaded_bytes: int) -> dict[Part, int]:
    """Subtract the bytes offloaded to host memory from each part of the weights, in proportion to its size.

    Engines offload whole layers, so every part loses the same proportion of its bytes.
    """
    total = sum(weights.values())
    kept = max(0, total - offloaded_bytes) / total if total else 1.0
    return {part: int(held * kept) for part, held in weights.items()} if offloaded_bytes else dict(weights)


def refusal(deployment: Deployment) -> str | None:
    """Return the reason why the engine would refuse this split. None if the engine accepts the split."""
    model, split = deployment.model, deployment.parallelism
    if split.pp > max(1, len(model.layers)):
        return f"{len(model.layers)} layers are too few for {split.pp} pipeline stages"
    return _refused_heads(model, split) or _refused_experts(deployment) or _refused_widths(deployment)


def _refused_heads(model: ModelSpec, split: Parallelism) -> str | None:
    if model.query_heads % split.tp:
        return f"{model.query_heads} attention heads do not divide over tp {split.tp}"
    mixers = {layer.mixer for layer in model.layers}
    for heads in sorted({mixer.kv_heads for mixer in mixers if isinstance(mixer, GroupedAttention)}):
        if heads % split.tp and split.tp % heads:
            return f"{heads} key-value heads neither divide over tp {split.tp} nor repeat evenly on it"
    return None


def _refused_experts(deployment: Deployment) -> str | None:
    experts, split = deployment.model.experts, deployment.parallelism
    if not split.expert_parallel:
        return None
    if experts is None:
        return "expert parallelism needs a mixture of experts, but this model is dense"
    ranks = split.tp * split.dp
    if ranks > experts.routed:
        return f"{experts.routed} routed experts are too few for tp x dp = {ranks} ranks"
    copies = redundant_experts(deployment)
    if deployment.engine.name == "sglang" and (experts.routed + copies) % ranks:
        added = f" and {copies} copies" if copies else ""
        needed = experts.copies_to_divide(ranks)
        return f"{experts.routed} routed experts{added} do not divide over tp x dp = {ranks}" + (
            f"; with --ep-num-redundant-experts {needed} they do" if deployment.engine.holds_experts_twice else ""
        )
    return None


def _refused_widths(deployment: Deployment) -> str | None:
    """Return the reason why the engine would refuse the width of a weight. None if the engine accepts all widths.

    Each kind of split weight is checked once, because many layers have weights of the same kind.
    """
    kinds = {
        (weight.part, weight.split, _cut_size(weight), weight.units, _block(weight), weight.copies > 1)
        for weight in deployment.model.weight_kinds[0]
        if weight.split in {Split.COLUMN, Split.ROW} and weight.part is not Part.VISION
    }
    for part, _, size, units, block, routed in sorted(kinds, key=str):
        ranks = _ranks_cutting(deployment.parallelism, routed=routed)
        if ranks == 1 or (part is Part.MTP and not deployment.speculative):
            continue
        if part in _FEED_FORWARD and size % ranks:
            return f"{part.replace('_', ' ')} width {size:,} does not divide over {_over(ranks, routed=routed)}"
        held = ceil(size * max(1, ceil(units / ranks)) / units)
        if held % block and not (routed and _refines(deployment, block, held)):
            fix = "; spread whole experts with --ep" if routed else ""
            slice_of = f"{part.replace('_', ' ')} width {size:,} over {_over(ranks, routed=routed)}"
            return (
                f"{slice_of} leaves {held:,} per device, which is not a multiple of the quantisation block {block}{fix}"
            )
    return None


def _refines(deployment: Deployment, block: int, held: int) -> bool:
    """Return whether vLLM refines the scales of FP8 experts to smaller blocks that fit into a slice.

    The refined blocks have at least 32 channels.

    vLLM 0.28 refuses a slice that ends inside a block, and 0.29 refines the scales (fused_moe/oracle/fp8.py). AMD's
    AITER does not take refined scales: preflight has a rule for launches that turn it on.
    """
    engine = deployment.engine
    reads = engine.name == "vllm" and engine.release.reaches(0, 29)
    return reads and gcd(block, held, deployment.model.hidden_size) >= _FINEST_BLOCK


def _cut_size(weight: Weight) -> int:
    return weight.shape[1] if weight.split is Split.ROW and len(weight.shape) > 1 else weight.shape[0]


def _block(weight: Weight) -> int:
    """Return the number of channels, along the split dimension, that share one scale.

    The result is 1 if a slice may end inside a block that shares a scale.
    """
    stored, routed = weight.format, weight.copies > 1
    padded = routed and stored.name == "mxfp4"
    # Dense columns are fused with their neighbours. In fused columns, vLLM allows a slice to end inside a block.
    fused = weight.split is Split.COLUMN and not routed
    if not stored.scale_bits or padded or fused:
        return 1
    return (stored.scale_columns if weight.split is Split.ROW else stored.scale_rows) or 1


def _ranks_cutting(split: Parallelism, *, routed: bool) -> int:
    if not routed:
        return split.tp
    return 1 if split.expert_parallel else split.tp * split.dp


def _over(ranks: int, *, routed: bool) -> str:
    return f"tp x dp = {ranks}" if routed else f"tp {ranks}"
