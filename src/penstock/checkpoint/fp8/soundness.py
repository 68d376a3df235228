"""Checks FP8 tensors and scales for defects, using the summaries that a scan keeps."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Final, Literal

from penstock.checkpoint.fp8.byte_counts import Tally
from penstock.checkpoint.fp8.numerics import DIALECT_OF, Dialect
from penstock.checkpoint.fp8.scale_summary import MIN_GROUP, ScaleSummary
from penstock.checkpoint.fp8.scales import (
    is_cache_scale,
    is_input_scale,
)
from penstock.checkpoint.safetensors.header import StoredTensor
from penstock.checkpoint.safetensors.pairing import Block, covering_blocks, fits_shape, scale_names, usual_block

Level = Literal["damage", "suspicious"]

_KINDS: Final[Mapping[str, tuple[Level, str]]] = {
    "nan_codes": ("damage", "NaN codes in an FP8 tensor; an FNUZ chip reads them as its largest value"),
    "missing_scale": ("damage", "an FP8 weight without a scale"),
    "orphan_scale": ("suspicious", "a scale whose weight is not stored"),
    "scale_nan": ("damage", "a scale that is not a number"),
    "scale_infinite": ("damage", "a scale that is infinite"),
    "scale_zero": ("damage", "a scale of zero, which makes all its weights zero"),
    "scale_negative": ("damage", "a negative scale"),
    "scale_shape": ("damage", "a scale whose shape cannot cover its weight"),
    "scale_dtype": ("damage", "a scale stored as integers"),
    "scale_outlier": ("suspicious", "a scale 12 times larger or smaller than the same scale of other layers"),
    "scale_peak": ("suspicious", "one scale is over 100 times its tensor's median and 10 times the next largest"),
    "scale_magnitude": ("damage", "weights in the tens of thousands; was the reciprocal of the scale stored?"),
    "declared_block": ("damage", "scales that do not match the block size that the config declares"),
    "e8m0_top": ("damage", "a power-of-two scale at the top of its range, which cannot be doubled for an FNUZ chip"),
    "input_scale_missing": ("suspicious", "a weight without the static input scale that its siblings have"),
    "kv_pair": ("damage", "a k_scale without its v_scale, or the reverse"),
    "kv_layers": ("suspicious", "KV scales in only some of the layers"),
    "kv_placeholder": ("suspicious", "KV scales that are all exactly 1.0, so probably not calibrated"),
    "looks_fnuz": (
        "suspicious",
        "labelled OCP, but has tiny negative values and no negative zero; were the bytes converted to FNUZ?",
    ),
    "saturated": (
        "suspicious",
        "more than 1% of the codes have the largest value: the scale is too small and clips weights",
    ),
    "unused_range": (
        "suspicious",
        "the largest code is below 1/16 of the range: the scale is at least 16 times too large",
    ),
    "all_zero": ("suspicious", "a tensor of zeros"),
    "zero_filled": ("damage", "whole chunks of zeros inside a tensor: the file was not written completely"),
    "mixed_dialects": ("suspicious", "tensors of one group in different dialects"),
    "stored_twice": ("suspicious", "a tensor stored in two files"),
    "zero_block": (
        "damage",
        "blocks of zeros whose scales are not near zero: the weights were lost after quantisation",
    ),
    "zero_rows": (
        "suspicious",
        "rows or blocks of zeros inside a tensor that its scales do not explain",
    ),
    "twins": ("suspicious", "two tensors with the same bytes; was one copied over the other?"),
    "scale_constant": ("suspicious", "block scales that are all exactly equal, so probably not calibrated"),
    "layer_gap": ("damage", "a layer without a tensor that the layers around it have"),
    "shape_differs": ("suspicious", "a tensor whose shape differs from the same tensor in other layers"),
    "not_stored": ("damage", "a tensor that the index names but no file holds"),
    "unclaimed_bytes": ("suspicious", "bytes in a file that belong to no tensor"),
}
_OUTLIER: Final = 12.0
_PEAK: Final = 100.0
_ABSURD: Final = 1e4
"""Magnitude that no trained weight reaches. Even before scaling, the largest FP8 code has the value 448."""
_MX_BLOCK: Final = (1, 32)
"""Block of MXFP8, whose elements share one power-of-two scale. The scales are bytes, labelled F8_E8M0 or U8."""
_SATURATED: Final = 0.01
_BLOCK_CODES: Final = 128 * 128
_ENOUGH_CODES: Final = 4096
ENOUGH_TINY: Final = 24
"""Minimum number of codes with the smallest negative value that the FNUZ check needs. In OCP data, rounding would
produce about half as many codes 0x80 (negative zero) as codes with the smallest negative value."""
_FEWEST_LAYERS: Final = 3
_NUMBER: Final = re.compile(r"(?<=\.)\d+(?=\.)")
_CACHING: Final = re.compile(r"\.(k_proj|qkv_proj|qkv|kv_b_proj|wkv_b|c_attn)\.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanFinding:
    """A defect or anomaly of one tensor."""

    kind: str
    tensor: str
    detail: str = ""

    @property
    def level(self) -> Level:
        """Return the level of the finding: damage or suspicious."""
        return _KINDS[self.kind][0]

    @property
    def meaning(self) -> str:
        """Return the description of this kind of finding."""
        return _KINDS[self.kind][1]


def group_of(name: str) -> str:
    """Return a tensor's group: its name with layer and expert numbers replaced."""
    return _NUMBER.sub("*", name)


def pair_scales(weights: Mapping[str, StoredTensor], scales: Mapping[str, ScaleSummary]) -> dict[str, str]:
    """Map the name of each weight that has a scale to the name of the scale."""
    found = {}
    for name in weights:
        held = next((candidate for candidate in scale_names(name) if candidate in scales), None)
        if held is not None:
            found[name] = held
    return found


def code_findings(codes: Mapping[str, tuple[StoredTensor, Tally]]) -> Iterable[ScanFinding]:
    """Check the FP8 codes of tensors without their scales."""
    for name, (tensor, seen) in codes.items():
        dialect = DIALECT_OF[tensor.dtype]
        if seen.nan_codes:
            yield ScanFinding(kind="nan_codes", tensor=name, detail=f"{seen.nan_codes:,} of {seen.codes:,}")
        histogram = seen.histogram
        if seen.codes and seen.largest_code == 0 and not seen.has_negative_zero:
            yield ScanFinding(kind="all_zero", tensor=name)
            continue
        if seen.zero_chunks:
            yield ScanFinding(kind="zero_filled", tensor=name, detail=f"{seen.zero_chunks} of {seen.chunks} chunks")
        if seen.codes < _ENOUGH_CODES:
            continue
        top = 0x7E if dialect is Dialect.E4M3FN else 0x7F
        at_top = int(histogram[top] + histogram[top | 0x80])
        if at_top > _SATURATED * seen.sampled:
            yield ScanFinding(kind="saturated", tensor=name, detail=f"{at_top / seen.sampled:.1%} of the sample")
        full = top - (4 << 3)
        if dialect in {Dialect.E4M3FN, Dialect.E4M3FNUZ} and seen.largest_code < full:
            detail = f"largest value {seen.largest_value(dialect):g}"
            yield ScanFinding(kind="unused_range", tensor=name, detail=detail)


def magnitude_findings(
    codes: Mapping[str, tuple[StoredTensor, Tally]], scales: Mapping[str, ScaleSummary], paired: Mapping[str, str]
) -> Iterable[ScanFinding]:
    """Check that the largest code times the typical scale is a plausible weight. Trained weights are small numbers."""
    for name, (tensor, seen) in codes.items():
        scale = scales.get(paired.get(name, ""))
        if scale is None or scale.typical is None:
            continue
        largest = seen.largest_value(DIALECT_OF[tensor.dtype]) * scale.typical
        if largest > _ABSURD:
            yield ScanFinding(kind="scale_magnitude", tensor=name, detail=f"weights up to about {largest:.2g}")


def declared_findings(
    weights: Mapping[str, StoredTensor],
    scales: Mapping[str, ScaleSummary],
    paired: Mapping[str, str],
    declared: Block | None,
) -> Iterable[ScanFinding]:
    """Check the shapes of stored scales against the scale block that the config declares.

    Engines use the declared scale block.
    """
    for name, held in paired.items() if declared is not None else ():
        blocks = covering_blocks(scales[held].tensor.shape, weights[name].shape)
        if blocks and declared not in blocks:
            detail = (
                f"{list(scales[held].tensor.shape)} for {list(weights[name].shape)}, declared {list(declared or ())}"
            )
            yield ScanFinding(kind="declared_block", tensor=held, detail=detail)


def zero_block_findings(
    codes: Mapping[str, tuple[StoredTensor, Tally]], scales: Mapping[str, ScaleSummary], paired: Mapping[str, str]
) -> Iterable[ScanFinding]:
    """Check blocks of zeros.

    A block of zeros is sound only if its scale is near zero too, because quantisers write scales near zero for blocks
    of zeros.
    """
    for name, (tensor, seen) in codes.items():
        scale = scales.get(paired.get(name, ""))
        if seen.largest_code == 0:
            continue
        if not seen.zero_blocks:
            if seen.zero_rows > (0 if scale is None else scale.dead):
                detail = f"{seen.zero_rows:,} rows of {tensor.elements // (tensor.shape[-1] or 1):,}"
                yield ScanFinding(kind="zero_rows", tensor=name, detail=detail)
            continue
        detail = f"{seen.zero_blocks:,} blocks of {tensor.elements // _BLOCK_CODES or 1:,}"
        if scale is not None and scale.tensor.elements > 1:
            if seen.zero_blocks > scale.dead:
                yield ScanFinding(kind="zero_block", tensor=name, detail=detail)
        else:
            yield ScanFinding(kind="zero_rows", tensor=name, detail=detail)


def twin_findings(
    codes: Mapping[str, tuple[StoredTensor, Tally]], names: Collection[str] = ()
) -> Iterable[ScanFinding]:
    """Find layers that lack a tensor or store it in an unequal shape, and tensors that are copies of another tensor."""
    groups: dict[str, dict[str, tuple[StoredTensor, Tally]]] = {}
    for name, held in codes.items():
        groups.setdefault(group_of(name), {})[name] = held
    prints: dict[tuple[int, int], str] = {}
    for group, members in groups.items():
        yield from _gaps(group, members, names)
        shapes = Counter(tensor.shape for tensor, _ in members.values())
        usual, count = shapes.most_common(1)[0]
        for name, (tensor, seen) in members.items():
            if tensor.shape != usual and count >= MIN_GROUP:
                detail = f"{list(tensor.shape)}, others {list(usual)}"
                yield ScanFinding(kind="shape_differs", tensor=name, detail=detail)
            key = (seen.fingerprint, seen.codes)
            if seen.largest_code and seen.codes >= _ENOUGH_CODES and key in prints:
                yield ScanFinding(kind="twins", tensor=name, detail=f"the same as {prints[key]}")
            prints.setdefault(key, name)


def _gaps(group: str, members: Iterable[str], names: Collection[str]) -> Iterable[ScanFinding]:
    """Find layers that lack a tensor that most other layers have.

    Layers are reported if at most a tenth of the layers between the first and the last lack the tensor. If more layers
    lack the tensor, the model alternates between kinds of layers. A layer that stores the tensor in another dtype
    counts as having it.
    """
    found = {name: int(match[0]) for name in members if (match := _NUMBER.search(name))}
    layers = set(found.values())
    if len(layers) < _FEWEST_LAYERS:
        return
    one = next(iter(found))
    absent = [
        layer
        for layer in sorted(set(range(min(layers), max(layers))) - layers)
        if _NUMBER.sub(str(layer), one, count=1) not in names
    ]
    if absent and len(absent) <= max(1, len(layers) // 10):
        detail = f"layer {', '.join(str(layer) for layer in absent[:4])}"
        yield ScanFinding(kind="layer_gap", tensor=group, detail=detail)


def scale_findings(
    weights: Mapping[str, StoredTensor], scales: Mapping[str, ScaleSummary], paired: Mapping[str, str]
) -> Iterable[ScanFinding]:
    """Check that every weight has a scale, and that every scale is valid."""
    block = usual_block((scales[held].tensor.shape, weights[name].shape) for name, held in paired.items())
    for name, tensor in weights.items():
        held = paired.get(name)
        if held is None:
            yield ScanFinding(kind="missing_scale", tensor=name)
        elif not fits_shape(scales[held].tensor.shape, tensor.shape, block):
            detail = f"{list(scales[held].tensor.shape)} for {list(tensor.shape)}"
            yield ScanFinding(kind="scale_shape", tensor=held, detail=detail)
    shapes = {held: weights[name].shape for name, held in paired.items()}
    for name, scale in scales.items():
        yield from _of_scale(name, scale, shapes.get(name))
    yield from _orphans(weights, scales, set(shapes))
    yield from _outliers(
        {name: scale for name, scale in scales.items() if scale.tensor.dtype != "U8" or name in shapes}
    )


def _of_scale(name: str, scale: ScaleSummary, weight: tuple[int, ...] | None) -> Iterable[ScanFinding]:
    """Check the values of one scale tensor.

    `weight` is the shape of the FP8 weight to which the scale belongs, or None if there is no such weight.
    """
    unlabelled = scale.kinds == ("scale_dtype",) or scale.tensor.dtype == "U8"
    if unlabelled and weight is None:
        # Packed formats also name integer tensors `scales`.
        return
    if scale.tensor.dtype == "U8" and _MX_BLOCK not in (covering_blocks(scale.tensor.shape, weight or ()) or ()):
        yield ScanFinding(kind="scale_dtype", tensor=name)
        return
    for kind in scale.kinds:
        yield ScanFinding(kind=kind, tensor=name)
    if scale.top:
        yield ScanFinding(kind="e8m0_top", tensor=name)
    # Power-of-two scales are often equal without a defect.
    if scale.constant and weight is not None and not scale.powers:
        yield ScanFinding(kind="scale_constant", tensor=name)
    if scale.peak > _PEAK:
        yield ScanFinding(kind="scale_peak", tensor=name, detail=f"{scale.peak:,.0f} times the median")


def _orphans(
    weights: Mapping[str, StoredTensor], scales: Mapping[str, ScaleSummary], of_weights: set[str]
) -> Iterable[ScanFinding]:
    """Find scales without a weight.

    Only names with `weight_scale_inv` are checked, because packed formats use the other scale names.
    """
    if not weights:
        return
    for name in scales:
        if name.endswith("weight_scale_inv") and name not in of_weights:
            yield ScanFinding(kind="orphan_scale", tensor=name)


def _outliers(scales: Mapping[str, ScaleSummary]) -> Iterable[ScanFinding]:
    """Compare each scale with the scales of the same group in other layers and experts."""
    groups: dict[str, list[tuple[str, float]]] = {}
    for name, scale in scales.items():
        if scale.typical is not None:
            groups.setdefault(group_of(name), []).append((name, scale.typical))
    for members in groups.values():
        if len(members) < MIN_GROUP:
            continue
        middle = median(value for _, value in members)
        for name, value in members:
            ratio = value / middle
            if not 1 / _OUTLIER < ratio < _OUTLIER:
                yield ScanFinding(kind="scale_outlier", tensor=name, detail=f"{ratio:.3g} times the median")


def input_findings(weights: Mapping[str, StoredTensor], scales: Mapping[str, ScaleSummary]) -> Iterable[ScanFinding]:
    """Check that static activation scales exist either for all weights or for none."""
    stems = {name.rsplit(".", 1)[0] for name in scales if is_input_scale(name)}
    if not stems:
        return
    for name in weights:
        stem = name.removesuffix(".weight")
        if name.endswith(".weight") and stem not in stems:
            yield ScanFinding(kind="input_scale_missing", tensor=name)


def cache_findings(scales: Mapping[str, ScaleSummary], names: Iterable[str]) -> Iterable[ScanFinding]:
    """Check that every layer with a KV cache has a pair of KV scales, and that the KV scales are not all exactly 1."""
    held = {name: scale for name, scale in scales.items() if is_cache_scale(name)}
    keys = {_layer(name) for name in held if name.endswith("k_scale")}
    values = {_layer(name) for name in held if name.endswith("v_scale")}
    for layer in sorted(keys ^ values):
        yield ScanFinding(kind="kv_pair", tensor=f"layer {layer}", detail="k" if layer in keys else "v")
    caching = {_layer(name) for name in names if _CACHING.search(name)}
    if keys & values and (missing := caching - keys - values):
        detail = f"{len(missing)} of {len(caching)} layers without"
        yield ScanFinding(kind="kv_layers", tensor=f"layer {min(missing)}", detail=detail)
    if held and all(scale.ones for scale in held.values()):
        yield ScanFinding(kind="kv_placeholder", tensor=next(iter(held)), detail=f"{len(held)} scales")


def _layer(name: str) -> str:
    found = _NUMBER.search(name)
    return found[0] if found else name
