"""Describes one accelerator as a serving engine sees it, with a source for each fact."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import date
from enum import StrEnum
from typing import Literal

from penstock.errors import UnsupportedPrecision


class Basis(StrEnum):
    """Kind of evidence for a fact."""

    VENDOR_SPEC = "vendor_spec"
    MEASURED = "measured"
    DERIVED = "derived"
    ESTIMATED = "estimated"
    UNVERIFIED = "unverified"


class Precision(StrEnum):
    """Matrix datapath."""

    FP64 = "fp64"
    FP32 = "fp32"
    TF32 = "tf32"
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    INT8 = "int8"
    FP6 = "fp6"
    FP4 = "fp4"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Source of some fields of an accelerator: the publisher, the date of the last check, and the kind of evidence."""

    fields: tuple[str, ...]
    checked_on: date
    basis: Basis
    url: str | None = None
    title: str | None = None
    note: str | None = None

    def __post_init__(self) -> None:
        if self.url is None and self.basis is not Basis.UNVERIFIED:
            raise ValueError(f"a {self.basis} source for {', '.join(self.fields)} needs a url")


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Device memory.

    `nominal_gb` is the advertised size. Vendors often write GB but mean GiB, so the size in bytes is a separate field.
    """

    kind: str
    nominal_gb: float
    hbm_bytes: int
    hbm_bytes_per_s: float
    usable_hbm_bytes: int | None = None
    """Memory in bytes that the driver reports to a process; None if no source states the number."""

    def __post_init__(self) -> None:
        if self.hbm_bytes <= 0 or self.hbm_bytes_per_s <= 0:
            raise ValueError("memory capacity and bandwidth must be positive")
        if self.usable_hbm_bytes is not None and not 0 < self.usable_hbm_bytes <= self.hbm_bytes:
            raise ValueError("usable_hbm_bytes must be above 0 and at most hbm_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Scale-up links of a device. In a mesh, each peer has one link. Behind a switch, one peer can use all links."""

    name: str
    topology: Literal["mesh", "switched", "pcie", "ring", "torus"]
    domain_devices: int | None = None
    per_peer_bytes_per_s_one_way: float | None = None
    aggregate_bytes_per_s_one_way: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Server that holds the accelerator."""

    devices: int
    most_devices: int | None = None
    """Maximum number of devices in one server; None if no server has more than `devices`."""
    pcie: str | None = None
    node_watts: float | None = None
    """Maximum power of the whole server, in watts."""
    provisioned_watts_per_device: float | None = None
    """Power in watts that a site provisions per device, including the device's share of host, network and cooling."""

    @property
    def largest(self) -> int:
        """Return the maximum number of devices in one server."""
        return max(self.devices, self.most_devices or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """Accelerator as the engine sees it."""

    id: str
    name: str
    vendor: Literal["amd", "nvidia", "intel", "google"]
    architecture: str
    form_factor: str
    status: Literal["shipping", "announced", "discontinued"]
    memory: Memory
    dense_flops_per_s: Mapping[Precision, float]
    node: Node
    sources: tuple[Source, ...]
    sparse_flops_per_s: Mapping[Precision, float] | None = None
    """Peak with 2:4 structured sparsity, which no LLM engine uses. Predictions never use the sparse peak; the catalog
    records it only to explain the figures in vendor sheets."""
    compute_target: str | None = None
    wavefront_size: int | None = None
    compute_units: int | None = None
    launched: str | None = None
    fp8_dialect: Literal["ocp", "fnuz"] | None = None
    fp4_formats: tuple[Literal["mxfp4", "nvfp4"], ...] = ()
    tdp_watts: float | None = None
    link: Link | None = None
    note: str | None = None

    def __post_init__(self) -> None:
        covered = [name for source in self.sources for name in source.fields]
        known = set(fact_names(self))
        unknown = [name for name in covered if name not in known and not _is_table(name, known)]
        if unknown:
            raise ValueError(f"a source lists the fields {sorted(unknown)}, but {self.id} has no such fields")
        unsourced = [name for name in known if not _covering(name, covered)]
        if unsourced:
            raise ValueError(f"no source for {sorted(unsourced)}; add a [[sources]] entry that lists these fields")
        twice = [name for name in known if len(_covering(name, covered)) > 1]
        if twice:
            raise ValueError(f"two sources for {sorted(twice)}; keep the better source and name the other in its note")

    @property
    def usable_hbm_bytes(self) -> int:
        """Return the memory in bytes that the driver reports to a process.

        If no source states this number, return the physical memory size.
        """
        return self.memory.usable_hbm_bytes or self.memory.hbm_bytes

    @property
    def rack_nodes(self) -> int:
        """Return the number of nodes that are sold together.

        If links span a rack, this is the number of nodes in the rack; otherwise it is 1.
        """
        domain = self.link.domain_devices if self.link is not None else None
        return max(1, (domain or 0) // self.node.devices)

    @property
    def recommendable(self) -> bool:
        """Return whether the accelerator may appear in recommendations.

        The accelerator must be shipping, and its memory size, memory bandwidth and dense bf16 peak must be verified.
        """
        deciding = ("memory.hbm_bytes", "memory.hbm_bytes_per_s", "dense_flops_per_s.bf16")
        stated = set(fact_names(self))
        return self.status == "shipping" and all(
            name in stated and self.source_of(name).basis is not Basis.UNVERIFIED for name in deciding
        )

    def source_of(self, name: str) -> Source:
        """Return the source of a field.

        The field has a dotted name such as `memory.hbm_bytes` or `dense_flops_per_s.fp8`.
        """
        for source in self.sources:
            if _covering(name, source.fields):
                return source
        raise KeyError(name)

    def emulated_formats(self, formats: Iterable[str]) -> tuple[str, ...]:
        """Return those of `formats` in which the accelerator cannot multiply natively, in the given order."""
        fp8 = {"fp8", "mxfp8"} if Precision.FP8 in self.dense_flops_per_s else set()
        missing = {"fp8", "mxfp8", "mxfp4", "nvfp4"} - fp8 - set(self.fp4_formats)
        return tuple(name for name in formats if name in missing)

    def peak_flops_per_s(self, precision: Precision) -> float:
        """Return the peak of a dense datapath, such as bf16 or fp8, in FLOP/s.

        Raise an error if the accelerator has no such datapath.
        """
        try:
            return self.dense_flops_per_s[precision]
        except KeyError:
            known = ", ".join(self.dense_flops_per_s)
            raise UnsupportedPrecision(
                f"{self.id} has no {precision} datapath in the catalog; it has {known}"
            ) from None


_IDENTITY = {
    "id",
    "name",
    "vendor",
    "architecture",
    "form_factor",
    "status",
    "note",
    "sources",
    "kind",
    "pcie",
}


def fact_names(accelerator: Accelerator) -> tuple[str, ...]:
    """List the dotted name of every fact of the accelerator that needs a source."""
    return tuple(name for name, _ in facts(accelerator))


def facts(accelerator: Accelerator) -> tuple[tuple[str, object], ...]:
    """List every fact that needs a source, with its value. Name, vendor and form factor need no source."""
    return tuple(_facts_of(accelerator, ""))


def _facts_of(holder: object, prefix: str) -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    for field in fields(holder):  # type: ignore[arg-type]  # only called on dataclass instances
        value = getattr(holder, field.name)
        if field.name in _IDENTITY or value is None or value == ():
            continue
        name = f"{prefix}{field.name}"
        if is_dataclass(value):
            found += _facts_of(value, f"{name}.")
        elif isinstance(value, Mapping):
            found += [(f"{name}.{key}", entry) for key, entry in value.items()]
        else:
            found.append((name, value))
    return found


def _covering(name: str, covered: tuple[str, ...] | list[str]) -> list[str]:
    return [entry for entry in covered if name == entry or name.startswith(f"{entry}.")]


def _is_table(name: str, known: set[str]) -> bool:
    return any(fact.startswith(f"{name}.") for fact in known) or name in {
        "memory.kind",
        "node.pcie",
        "link.name",
    }
