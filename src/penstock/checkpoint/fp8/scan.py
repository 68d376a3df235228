"""Scans all FP8 tensors and scales of a checkpoint for defects.

The scan also computes the error that results if a dialect is misread.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from penstock.checkpoint.fp8.byte_counts import Tally, tally
from penstock.checkpoint.fp8.numerics import DIALECT_OF, Dialect, Misreading, misread, unrepresentable_codes
from penstock.checkpoint.fp8.scale_summary import ScaleSummary, summarise
from penstock.checkpoint.fp8.scales import ScaleValues, decode_scale, is_scale
from penstock.checkpoint.fp8.soundness import (
    ENOUGH_TINY,
    ScanFinding,
    cache_findings,
    code_findings,
    declared_findings,
    group_of,
    input_findings,
    magnitude_findings,
    pair_scales,
    scale_findings,
    twin_findings,
    zero_block_findings,
)
from penstock.checkpoint.safetensors.header import StoredTensor
from penstock.checkpoint.safetensors.pairing import Block
from penstock.checkpoint.safetensors.stream import Codes, Shard, ShardReader, open_shard
from penstock.checkpoint.shards import declared_block, indexed_tensors, shards_of
from penstock.errors import CheckpointError

_SCALE_LIMIT: Final = 1 << 26
"""Maximum size of a scale tensor. 64 MiB of block scales cover 10^12 weights, which is more than any published tensor
has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupScan:
    """Group of FP8 tensors whose names differ only in layer and expert number."""

    name: str
    dialect: Dialect
    tensors: int
    stored_bytes: int
    largest_value: float
    """Largest value before scaling, read in the dialect of the group."""
    other_largest_value: float
    """Value that the code of `largest_value` has in the other E4M3 dialect."""
    nan_codes: int
    unrepresentable_fraction: float
    """Fraction of the sampled codes whose value the other dialect cannot represent."""
    scales: str
    """Granularity of the group's scales: none, tensor, channel or block."""
    misreading: Misreading
    tiny_negatives: int
    """Number of sampled codes with the smallest negative value."""
    has_negative_zero: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Fp8Scan:
    """Result of the scan of a whole checkpoint."""

    groups: tuple[GroupScan, ...]
    findings: tuple[ScanFinding, ...]
    scanned_bytes: int
    tensors: int
    scales: int

    @property
    def sound(self) -> bool:
        """Return whether the scan has no findings."""
        return not self.findings

    @property
    def has_nan_codes(self) -> bool:
        """Return whether FP8 weights contain NaN codes. Preflight uses this."""
        return any(finding.kind == "nan_codes" for finding in self.findings)

    @property
    def has_e8m0_top(self) -> bool:
        """Return whether power-of-two scales contain the byte 254 or 255. Preflight uses this."""
        return any(finding.kind == "e8m0_top" for finding in self.findings)


def scan_fp8(folder: Path, progress: Callable[[int], None] | None = None) -> Fp8Scan:
    """Scan a checkpoint directory or one safetensors file.

    `progress` is called after each read with the number of bytes that were read.
    """
    files = (folder,) if folder.is_file() else shards_of(folder)
    if not files:
        raise CheckpointError(
            f"{folder} has no safetensors files; give a directory with a checkpoint, or one safetensors file"
        )
    shards = [open_shard(path) for path in files]
    scan = _Scan(progress or (lambda _: None), declared=declared_block(folder))
    for shard in shards:
        scan.read(shard)
    if folder.is_dir():
        scan.compare(indexed_tensors(folder))
    return scan.result()


def scan_bytes(folder: Path) -> int:
    """Return the number of bytes that a scan will read, which are the bytes of FP8 tensors and scales."""
    files = (folder,) if folder.is_file() else shards_of(folder)
    tensors = (tensor for path in files for tensor in open_shard(path).tensors)
    return sum(tensor.stored_bytes for tensor in tensors if _is_codes(tensor) or is_scale(tensor.name))


def _is_codes(tensor: StoredTensor) -> bool:
    """Return whether a tensor holds FP8 weights.

    FP8 scales are excluded, because NVFP4 stores its block scales as FP8.
    """
    return tensor.dtype in DIALECT_OF and tensor.dtype != "F8_E8M0" and not is_scale(tensor.name)


@dataclass(slots=True)
class _Scan:
    """State that a scan keeps between tensors.

    The state has counts of codes and summaries of scales, but no weights.
    """

    progress: Callable[[int], None]
    declared: Block | None = None
    """Scale block that config.json declares."""
    codes: dict[str, tuple[StoredTensor, Tally]] = field(default_factory=dict)
    scales: dict[str, ScaleSummary] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    findings: list[ScanFinding] = field(default_factory=list)
    scanned_bytes: int = 0

    def read(self, shard: Shard) -> None:
        if (spare := shard.spare_bytes) > 0:
            detail = f"{spare:,} bytes belong to no tensor"
            self.findings.append(ScanFinding(kind="unclaimed_bytes", tensor=shard.path.name, detail=detail))
        with ShardReader(shard) as reader:
            for tensor in shard.tensors:
                if tensor.name in self.names:
                    self.findings.append(ScanFinding(kind="stored_twice", tensor=tensor.name, detail=shard.path.name))
                self.names.add(tensor.name)
                if _is_codes(tensor):
                    self._read_codes(reader, tensor)
                elif is_scale(tensor.name):
                    self._read_scale(reader, tensor)

    def _read_codes(self, reader: ShardReader, tensor: StoredTensor) -> None:
        columns = tensor.shape[-1] if len(tensor.shape) > 1 else 0
        counted = tally(self._count_chunks(reader, tensor), DIALECT_OF[tensor.dtype], columns)
        self.codes[tensor.name] = (tensor, counted)

    def _count_chunks(self, reader: ShardReader, tensor: StoredTensor) -> Iterable[Codes]:
        for chunk in reader.chunks(tensor):
            self.scanned_bytes += chunk.size
            self.progress(chunk.size)
            yield chunk

    def _read_scale(self, reader: ShardReader, tensor: StoredTensor) -> None:
        raw = reader.whole(tensor, _SCALE_LIMIT)
        self.scanned_bytes += raw.size
        self.progress(raw.size)
        values = decode_scale(tensor, raw)
        if values is None:
            # Packed formats also name integer tensors `scales`; only a scale of FP8 weights must be a float.
            self.scales[tensor.name] = ScaleSummary(
                tensor=tensor, kinds=("scale_dtype",), typical=None, top=False, ones=False, dead=0, constant=False
            )
            return
        self.scales[tensor.name] = summarise(ScaleValues(tensor, values), raw)

    def compare(self, indexed: Mapping[str, str]) -> None:
        """Compare the tensors in the index with the tensors in the shards."""
        for name, file in indexed.items():
            if name not in self.names:
                self.findings.append(ScanFinding(kind="not_stored", tensor=name, detail=f"{file} does not hold it"))

    def result(self) -> Fp8Scan:
        weights = {name: tensor for name, (tensor, _) in self.codes.items()}
        paired = pair_scales(weights, self.scales)
        self.findings += code_findings(self.codes)
        self.findings += zero_block_findings(self.codes, self.scales, paired)
        self.findings += magnitude_findings(self.codes, self.scales, paired)
        self.findings += declared_findings(weights, self.scales, paired, self.declared)
        self.findings += twin_findings(self.codes, self.names)
        self.findings += scale_findings(weights, self.scales, paired)
        self.findings += input_findings(weights, self.scales)
        self.findings += cache_findings(self.scales, self.names)
        groups = _groups(self.codes, self.scales, paired)
        self.findings += _group_findings(groups)
        order = {"damage": 0, "suspicious": 1}
        self.findings.sort(key=lambda finding: (order[finding.level], finding.kind, finding.tensor))
        return Fp8Scan(
            groups=groups,
            findings=tuple(self.findings),
            scanned_bytes=self.scanned_bytes,
            tensors=len(self.codes),
            scales=len(self.scales),
        )


def _groups(
    codes: Mapping[str, tuple[StoredTensor, Tally]], scales: Mapping[str, ScaleSummary], paired: Mapping[str, str]
) -> tuple[GroupScan, ...]:
    merged: dict[tuple[str, Dialect], tuple[Tally, int, str]] = {}
    for name, (tensor, seen) in codes.items():
        key = (group_of(name), DIALECT_OF[tensor.dtype])
        total, count, reach = merged.get(key) or (Tally(), 0, _reach(tensor, scales, paired.get(name)))
        total.add(seen)
        merged[key] = (total, count + 1, reach)
    found = [_group(name, dialect, *entry) for (name, dialect), entry in merged.items()]
    return tuple(sorted(found, key=lambda group: -group.stored_bytes))


def _group(name: str, dialect: Dialect, seen: Tally, count: int, reach: str) -> GroupScan:
    other = {Dialect.E4M3FN: Dialect.E4M3FNUZ, Dialect.E4M3FNUZ: Dialect.E4M3FN, Dialect.E5M2: Dialect.E5M2FNUZ}
    target = other.get(dialect, Dialect.E5M2)
    lost = list(unrepresentable_codes(dialect, target))
    histogram = seen.scaled_histogram.copy()
    if seen.nan_codes:
        # Damage counts come from every byte; the sample would only estimate them.
        special = 0x80 if dialect in {Dialect.E4M3FNUZ, Dialect.E5M2FNUZ} else 0x7F
        histogram[0xFF if special == 0x7F else 0x80] = 0  # the positive NaN of E4M3FN
        histogram[special] = seen.nan_codes
    return GroupScan(
        name=name,
        dialect=dialect,
        tensors=count,
        stored_bytes=seen.codes,
        largest_value=seen.largest_value(dialect),
        other_largest_value=seen.largest_value(target),
        nan_codes=seen.nan_codes,
        unrepresentable_fraction=float(seen.histogram[lost].sum() / seen.sampled) if seen.sampled else 0.0,
        scales=reach,
        misreading=misread(histogram, dialect, target),
        tiny_negatives=int(seen.histogram[0x81]),
        has_negative_zero=seen.has_negative_zero,
    )


def _reach(tensor: StoredTensor, scales: Mapping[str, ScaleSummary], held: str | None) -> str:
    if held is None:
        return "none"
    scale = scales[held].tensor
    if scale.elements == 1:
        return "tensor"
    rows = tensor.shape[0] if tensor.shape else 1
    return "channel" if scale.elements == rows else "block"


def _group_findings(groups: tuple[GroupScan, ...]) -> Iterable[ScanFinding]:
    seen: dict[str, Dialect] = {}
    for group in groups:
        if group.name in seen and seen[group.name] is not group.dialect:
            detail = f"{seen[group.name]} and {group.dialect}"
            yield ScanFinding(kind="mixed_dialects", tensor=group.name, detail=detail)
        seen[group.name] = group.dialect
        rounded = group.dialect is Dialect.E4M3FN and group.tiny_negatives >= ENOUGH_TINY
        if rounded and not group.has_negative_zero:
            detail = f"{group.tiny_negatives:,} codes 0x81 in the sample, no 0x80 in any byte"
            yield ScanFinding(kind="looks_fnuz", tensor=group.name, detail=detail)
