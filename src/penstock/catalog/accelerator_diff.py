"""Compares two accelerators, and lists common but wrong comparisons of their figures."""

from dataclasses import dataclass

from penstock.catalog.accelerator import Accelerator, Precision, facts
from penstock.units import GB, GIB, TERA


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """One fact of both accelerators, with the ratio of the left value to the right value if both are numbers."""

    name: str
    label: str
    left: object
    right: object
    ratio: float | None


@dataclass(frozen=True, slots=True)
class Trap:
    """A comparison that is common but wrong, with the arithmetic that shows the error."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorComparison:
    """Two accelerators side by side."""

    left: Accelerator
    right: Accelerator
    rows: tuple[ComparedFigure, ...]
    traps: tuple[Trap, ...]


_LABELS = {
    "memory.nominal_gb": "memory on the box, GB",
    "memory.hbm_bytes": "memory, physical",
    "memory.usable_hbm_bytes": "memory a process sees",
    "memory.hbm_bytes_per_s": "memory bandwidth",
    "link.per_peer_bytes_per_s_one_way": "link to one peer, one way",
    "link.aggregate_bytes_per_s_one_way": "link, all peers, one way",
    "link.topology": "link topology",
    "link.domain_devices": "devices in the link domain",
    "fp8_dialect": "FP8 dialect",
    "fp4_formats": "FP4 formats",
    "tdp_watts": "TDP",
    "node.devices": "devices per node",
    "node.most_devices": "most devices in one node",
    "node.node_watts": "node power, maximum",
    "node.provisioned_watts_per_device": "provisioned power per device",
    **{f"dense_flops_per_s.{kind}": f"{kind} dense" for kind in Precision},
    **{f"sparse_flops_per_s.{kind}": f"{kind} with 2:4 sparsity" for kind in Precision},
}


def compare(left: Accelerator, right: Accelerator) -> AcceleratorComparison:
    """Compare every fact of two accelerators, and list the wrong comparisons that are common for this pair."""
    first, second = dict(facts(left)), dict(facts(right))
    rows = []
    for name, label in _LABELS.items():
        ours, theirs = first.get(name), second.get(name)
        if ours is None and theirs is None:
            continue
        rows.append(ComparedFigure(name, label, ours, theirs, _ratio(ours, theirs)))
    return AcceleratorComparison(left=left, right=right, rows=tuple(rows), traps=_traps(left, right))


def _ratio(left: object, right: object) -> float | None:
    if isinstance(left, int | float) and isinstance(right, int | float) and right:
        return left / right
    return None


def _traps(left: Accelerator, right: Accelerator) -> tuple[Trap, ...]:
    traps = [*_sparse_traps(left, right), *_sparse_traps(right, left)]
    traps += [*_memory_traps(left), *_memory_traps(right), *_link_traps(left, right), *_dialect_traps(left, right)]
    return tuple(traps)


def _sparse_traps(dense: Accelerator, sparse: Accelerator) -> list[Trap]:
    """Return comparisons of a dense with a sparse figure. Mixing the two is the most common error in publications."""
    for kind in (Precision.FP8, Precision.BF16):
        mine, theirs = dense.dense_flops_per_s.get(kind), sparse.dense_flops_per_s.get(kind)
        inflated = (sparse.sparse_flops_per_s or {}).get(kind)
        if mine is None or theirs is None or inflated is None:
            continue
        return [
            Trap(
                "sparse_against_dense",
                f"{sparse.id} {kind} at {inflated / TERA:,.0f} TFLOPS is its 2:4 sparse figure, which no LLM engine "
                f"reaches; dense is {theirs / TERA:,.0f}. Against {dense.id} ({mine / TERA:,.0f} dense) that turns "
                f"{mine / theirs:.2f}x into {mine / inflated:.2f}x.",
            )
        ]
    return []


def _memory_traps(accelerator: Accelerator) -> list[Trap]:
    sold, physical = accelerator.memory.nominal_gb * GB, accelerator.memory.hbm_bytes
    if physical <= sold * 1.02:
        return []
    return [
        Trap(
            "gb_against_gib",
            f"{accelerator.id}: the {accelerator.memory.nominal_gb:g} GB on the box are {physical / GIB:,.0f} GiB, or "
            f"{physical / GB:,.1f} billion bytes; a process sees {accelerator.usable_hbm_bytes / GIB:,.1f} GiB. "
            f"Reading the box as 10^9 is {1 - sold / physical:.1%} low.",
        )
    ]


def _link_traps(left: Accelerator, right: Accelerator) -> list[Trap]:
    kinds = {one.link.topology for one in (left, right) if one.link is not None}
    if not {"mesh", "switched"} <= kinds:
        return []
    mesh, switched = (left, right) if left.link is not None and left.link.topology == "mesh" else (right, left)
    if mesh.link is None or switched.link is None:
        return []
    per_peer, aggregate = mesh.link.per_peer_bytes_per_s_one_way, mesh.link.aggregate_bytes_per_s_one_way
    to_any = switched.link.per_peer_bytes_per_s_one_way
    if per_peer is None or aggregate is None or to_any is None:
        return []
    return [
        Trap(
            "mesh_against_switch",
            f"{mesh.id}'s {aggregate / GB:,.0f} GB/s is the sum over a mesh: one peer gets {per_peer / GB:,.0f}, so "
            f"tp 2 has {per_peer / GB:,.0f} and tp 4 has {3 * per_peer / GB:,.0f}, where {switched.id}'s switch gives "
            f"{to_any / GB:,.0f} to any peer.",
        )
    ]


def _dialect_traps(left: Accelerator, right: Accelerator) -> list[Trap]:
    if None in {left.fp8_dialect, right.fp8_dialect} or left.fp8_dialect == right.fp8_dialect:
        return []
    return [
        Trap(
            "fp8_dialect",
            f"FP8 is not one format: {left.id} computes {left.fp8_dialect}, {right.id} {right.fp8_dialect}. The same "
            "bytes mean values a factor of two apart, so a checkpoint for one must be converted for the other.",
        )
    ]
