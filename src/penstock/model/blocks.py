"""Adds blocks that several architectures share to an inventory.

Each added weight has the same name as in the checkpoint.
"""

from dataclasses import dataclass
from functools import partial

from penstock.model.inventory import Inventory
from penstock.model.sequence_mixers import GroupedAttention, LatentAttention
from penstock.model.weight import Part, Split


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedShape:
    """Shape of a grouped-query attention block."""

    hidden: int
    query_heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    qkv_bias: bool = False
    out_bias: bool = False
    head_norm: bool = False
    """Whether each head's query and key have an RMS norm (Qwen3 and later)."""
    output_gate: bool = False
    """Whether the query projection also produces a gate that is as wide as the queries."""
    value_is_key: bool = False
    """Whether the keys are also used as values, so that there is no v_proj."""


def grouped_attention(inv: Inventory, path: str, shape: GroupedShape, *, window: int | None = None) -> GroupedAttention:
    """Add q, k, v and o projections."""
    queries = shape.query_heads * shape.head_dim
    inv.linear(
        f"{path}.q_proj",
        (queries * (2 if shape.output_gate else 1), shape.hidden),
        Part.ATTENTION,
        split=Split.COLUMN,
        units=shape.query_heads,
        bias=shape.qkv_bias,
    )
    projections = [("k_proj", shape.head_dim)] + ([] if shape.value_is_key else [("v_proj", shape.value_dim)])
    for name, width in projections:
        inv.linear(
            f"{path}.{name}",
            (shape.kv_heads * width, shape.hidden),
            Part.ATTENTION,
            split=Split.COLUMN,
            units=shape.kv_heads,
            bias=shape.qkv_bias,
        )
    inv.linear(
        f"{path}.o_proj",
        (shape.hidden, shape.query_heads * shape.value_dim),
        Part.ATTENTION,
        split=Split.ROW,
        units=shape.query_heads,
        bias=shape.out_bias,
    )
    if shape.head_norm:
        inv.vector(f"{path}.q_norm", shape.head_dim)
        inv.vector(f"{path}.k_norm", shape.head_dim)
    return GroupedAttention(
        query_heads=shape.query_heads,
        kv_heads=shape.kv_heads,
        key_dim=shape.head_dim,
        value_dim=shape.value_dim,
        window_tokens=window,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentShape:
    """Shape of a multi-head latent attention block."""

    hidden: int
    heads: int
    latent: int
    rope: int
    nope: int
    value: int
    query_latent: int | None
    """Rank of the query's low-rank path. None if queries are projected directly."""
    bias: bool = False


def latent_attention(
    inv: Inventory,
    path: str,
    shape: LatentShape,
    *,
    indexer: tuple[int, int, int] | None = None,
    sparse_topk: int = 0,
) -> LatentAttention:
    """Add the projections of multi-head latent attention (MLA).

    `indexer` is (heads, head_dim, topk) of the layer's lightning indexer, or None if the layer has none.
    """
    by_head = partial(inv.linear, split=Split.COLUMN, units=shape.heads)
    query_width = shape.heads * (shape.nope + shape.rope)
    if shape.query_latent is None:
        by_head(f"{path}.q_proj", (query_width, shape.hidden), Part.ATTENTION)
    else:
        inv.linear(f"{path}.q_a_proj", (shape.query_latent, shape.hidden), Part.ATTENTION, bias=shape.bias)
        inv.vector(f"{path}.q_a_layernorm", shape.query_latent)
        by_head(f"{path}.q_b_proj", (query_width, shape.query_latent), Part.ATTENTION)
    kv_a = (shape.latent + shape.rope, shape.hidden)
    inv.linear(f"{path}.kv_a_proj_with_mqa", kv_a, Part.ATTENTION, bias=shape.bias)
    inv.vector(f"{path}.kv_a_layernorm", shape.latent)
    by_head(f"{path}.kv_b_proj", (shape.heads * (shape.nope + shape.value), shape.latent), Part.ATTENTION)
    inv.linear(
        f"{path}.o_proj",
        (shape.hidden, shape.heads * shape.value),
        Part.ATTENTION,
        split=Split.ROW,
        units=shape.heads,
        bias=shape.bias,
    )
    if indexer is not None:
        _lightning_indexer(inv, f"{path}.indexer", shape, indexer)
    return LatentAttention(
        query_heads=shape.heads,
        latent_dim=shape.latent,
        rope_dim=shape.rope,
        nope_dim=shape.nope,
        value_dim=shape.value,
        index_dim=indexer[1] if indexer else 0,
        index_topk=sparse_topk,
        packed_fp8=bool(sparse_topk),
    )


def _lightning_indexer(inv: Inventory, path: str, shape: LatentShape, indexer: tuple[int, int, int]) -> None:
    heads, head_dim, _ = indexer
    inv.linear(f"{path}.wq_b", (heads * head_dim, shape.query_latent or shape.hidden), Part.ATTENTION)
    inv.linear(f"{path}.wk", (head_dim, shape.hidden), Part.ATTENTION)
    inv.vector(f"{path}.k_norm", head_dim, fp32=True)
    inv.vector(f"{path}.k_norm.bias", head_dim, fp32=True)
    inv.vector(f"{path}.weights_proj", (heads, shape.hidden), Part.ATTENTION)


def gated_mlp(
    inv: Inventory, path: str, hidden: int, width: int, part: Part = Part.DENSE_FFN, *, bias: bool = False
) -> None:
    """Add gate, up and down projections (SwiGLU and similar)."""
    for name in ("gate_proj", "up_proj"):
        inv.linear(f"{path}.{name}", (width, hidden), part, split=Split.COLUMN, bias=bias)
    inv.linear(f"{path}.down_proj", (hidden, width), part, split=Split.ROW, bias=bias)


def plain_mlp(
    inv: Inventory,
    path: str,
    hidden: int,
    width: int,
    part: Part = Part.DENSE_FFN,
    *,
    names: tuple[str, str] = ("up_proj", "down_proj"),
    bias: bool = False,
) -> None:
    """Add an ungated feed-forward: one matrix up, one down."""
    inv.linear(f"{path}.{names[0]}", (width, hidden), part, split=Split.COLUMN, bias=bias)
    inv.linear(f"{path}.{names[1]}", (hidden, width), part, split=Split.ROW, bias=bias)


def routed_experts(
    inv: Inventory,
    path: str,
    *,
    hidden: int,
    width: int,
    experts: int,
    per_token: int,
    names: tuple[str, str, str] | tuple[str, str] = ("gate_proj", "up_proj", "down_proj"),
    bias: bool = False,
) -> None:
    """Add the routed experts.

    Each added matrix stands for the matrices of all experts. The last entry of `names` is the projection back to the
    hidden size.
    """
    *ups, down = names
    for name in ups:
        inv.linear(
            f"{path}.*.{name}",
            (width, hidden),
            Part.ROUTED_EXPERTS,
            split=Split.COLUMN,
            copies=experts,
            active=per_token,
            bias=bias,
        )
    inv.linear(
        f"{path}.*.{down}",
        (hidden, width),
        Part.ROUTED_EXPERTS,
        split=Split.ROW,
        copies=experts,
        active=per_token,
        bias=bias,
    )


def router(inv: Inventory, path: str, hidden: int, experts: int, *, correction_bias: str | None = None) -> None:
    """Add the router and, if `correction_bias` is given, the correction bias of loss-free routing."""
    inv.linear(path, (experts, hidden), Part.ROUTER)
    if correction_bias is not None:
        inv.vector(correction_bias, experts, Part.ROUTER, fp32=True)
