"""Reads DeepSeek-V4: compressed attention, hyper-connections, hash-routed first layers, experts in fp4."""

from dataclasses import dataclass

from penstock.errors import ConfigError
from penstock.model.architectures.decoder import Frame, add_layers, mtp_weights
from penstock.model.architectures.outline import Outline, context_length
from penstock.model.blocks import routed_experts
from penstock.model.cache_dtypes import CacheDtype
from penstock.model.config_json import Config
from penstock.model.inventory import Inventory
from penstock.model.model_spec import Experts
from penstock.model.sequence_mixers import CompressedAttention
from penstock.model.weight import Part, Split


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    hidden: int
    vocab: int
    heads: int
    head_dim: int
    rope_dim: int
    query_latent: int
    out_groups: int
    out_latent: int
    connections: int
    width: int
    window: int
    index_heads: int
    index_dim: int
    index_topk: int
    experts: Experts
    hash_layers: int


def read_deepseek_v4(config: Config, inv: Inventory) -> Outline:
    """Read DeepSeek-V4.

    Layers differ by compression ratio. A layer with ratio 0 keeps only a window of tokens. A layer with ratio 4 adds an
    indexed cache, and a layer with ratio 128 adds a dense cache.
    """
    shape = _read_shape(config)
    layers, ratios = config.layers(), config.integers("compress_ratios")
    if len(ratios) < layers:
        raise ConfigError(
            f"{config.where}: compress_ratios lists {len(ratios)} layers, but the model has {layers} layers"
        )
    if not set(ratios[:layers]) <= {0, 4, 128}:
        raise ConfigError(f"{config.where}: every entry of compress_ratios must be 0, 4 or 128")

    def layer(index: int, path: str) -> tuple[CompressedAttention, str]:
        _attention(inv, f"{path}.attn", shape)
        _compressor(inv, f"{path}.attn", shape, ratios[index])
        _mixture(inv, f"{path}.ffn", shape, hashed=index < shape.hash_layers)
        _layer_norms(inv, path, shape)
        return _mixer(shape, ratios[index]), "moe"

    inv.embedding("embed", shape.vocab, shape.hidden)
    add_layers(inv, shape.hidden, layers, layer, Frame(prefix="", norms=()))
    inv.vector("norm", shape.hidden)
    _head_connections(inv, "", shape)
    inv.head("head", shape.vocab, shape.hidden, tied=False)
    _next_token_layers(config, inv, shape)
    return Outline(
        hidden_size=shape.hidden,
        vocab_size=shape.vocab,
        query_heads=shape.heads,
        max_context_tokens=context_length(config),
        widest_ffn=shape.width * (shape.experts.per_token + shape.experts.shared),
        experts=shape.experts,
        cache_dtype=CacheDtype.FP8,
    )


def _read_shape(config: Config) -> _Shape:
    return _Shape(
        hidden=config.integer("hidden_size"),
        vocab=config.integer("vocab_size"),
        heads=config.integer("num_attention_heads", high=2**16),
        head_dim=config.integer("head_dim"),
        rope_dim=config.integer("qk_rope_head_dim"),
        query_latent=config.integer("q_lora_rank"),
        out_groups=config.integer("o_groups", high=2**16),
        out_latent=config.integer("o_lora_rank"),
        connections=config.integer("hc_mult", high=64),
        width=config.integer("moe_intermediate_size"),
        window=config.integer("sliding_window"),
        index_heads=config.integer("index_n_heads", high=2**16),
        index_dim=config.integer("index_head_dim"),
        index_topk=config.integer("index_topk"),
        experts=Experts(
            routed=config.integer("n_routed_experts", high=2**16),
            per_token=config.integer("num_experts_per_tok", high=2**16),
            shared=config.integer("n_shared_experts", default=0, low=0, high=1024),
        ),
        hash_layers=config.integer("num_hash_layers", default=0, low=0),
    )


def _mixer(shape: _Shape, ratio: int) -> CompressedAttention:
    return CompressedAttention(
        query_heads=shape.heads,
        entry_dim=shape.head_dim,
        rope_dim=shape.rope_dim,
        window_tokens=shape.window,
        compress_ratio=ratio,
        index_dim=shape.index_dim if ratio == 4 else 0,  # only the fine ratio is indexed
        index_topk=shape.index_topk if ratio == 4 else 0,
    )


def _attention(inv: Inventory, path: str, shape: _Shape) -> None:
    queries = shape.heads * shape.head_dim
    inv.linear(f"{path}.wq_a", (shape.query_latent, shape.hidden), Part.ATTENTION)
    inv.vector(f"{path}.q_norm", shape.query_latent)
    inv.linear(f"{path}.wq_b", (queries, shape.query_latent), Part.ATTENTION, split=Split.COLUMN, units=shape.heads)
    inv.linear(f"{path}.wkv", (shape.head_dim, shape.hidden), Part.ATTENTION)
    inv.vector(f"{path}.kv_norm", shape.head_dim)
    latent = shape.out_groups * shape.out_latent
    inv.linear(
        f"{path}.wo_a",
        (latent, max(1, queries // shape.out_groups)),
        Part.ATTENTION,
        split=Split.COLUMN,
        units=shape.out_groups,
    )
    inv.linear(f"{path}.wo_b", (shape.hidden, latent), Part.ATTENTION, split=Split.ROW, units=shape.out_groups)
    inv.vector(f"{path}.attn_sink", shape.heads, split=Split.COLUMN, fp32=True)


def _compressor(inv: Inventory, path: str, shape: _Shape, ratio: int) -> None:
    if not ratio:
        return
    fine = ratio == 4  # the fine ratio overlaps its windows, so it projects twice as wide
    _compressor_weights(inv, f"{path}.compressor", shape.hidden, shape.head_dim, ratio, wide=2 if fine else 1)
    if fine:
        indexer = f"{path}.indexer"
        inv.linear(f"{indexer}.wq_b", (shape.index_heads * shape.index_dim, shape.query_latent), Part.ATTENTION)
        inv.vector(f"{indexer}.weights_proj", (shape.index_heads, shape.hidden), Part.ATTENTION)
        _compressor_weights(inv, f"{indexer}.compressor", shape.hidden, shape.index_dim, ratio, wide=2)


def _compressor_weights(inv: Inventory, path: str, hidden: int, width: int, ratio: int, *, wide: int) -> None:
    inv.vector(f"{path}.wkv", (wide * width, hidden), Part.ATTENTION)
    inv.vector(f"{path}.wgate", (wide * width, hidden), Part.ATTENTION)
    inv.vector(f"{path}.ape", (ratio, wide * width), Part.ATTENTION, fp32=True)
    inv.vector(f"{path}.norm", width)


def _mixture(inv: Inventory, path: str, shape: _Shape, *, hashed: bool) -> None:
    inv.linear(f"{path}.gate", (shape.experts.routed, shape.hidden), Part.ROUTER)
    if not hashed:
        inv.vector(f"{path}.gate.bias", shape.experts.routed, Part.ROUTER, fp32=True)
    names = ("w1", "w3", "w2")
    routed_experts(
        inv,
        f"{path}.experts",
        hidden=shape.hidden,
        width=shape.width,
        experts=shape.experts.routed,
        per_token=shape.experts.per_token,
        names=names,
    )
    if shape.experts.shared:
        wide = shape.width * shape.experts.shared
        for name in names[:2]:
            inv.linear(f"{path}.shared_experts.{name}", (wide, shape.hidden), Part.SHARED_EXPERTS, split=Split.COLUMN)
        inv.linear(f"{path}.shared_experts.w2", (shape.hidden, wide), Part.SHARED_EXPERTS, split=Split.ROW)


def _layer_norms(inv: Inventory, path: str, shape: _Shape) -> None:
    mixes = (2 + shape.connections) * shape.connections
    for block in ("attn", "ffn"):
        inv.vector(f"{path}.{block}_norm", shape.hidden)
        inv.vector(f"{path}.hc_{block}_fn", (mixes, shape.connections * shape.hidden), fp32=True)
        inv.vector(f"{path}.hc_{block}_base", mixes, fp32=True)
        inv.vector(f"{path}.hc_{block}_scale", 3, fp32=True)


def _head_connections(inv: Inventory, path: str, shape: _Shape) -> None:
    inv.vector(f"{path}hc_head_fn", (shape.connections, shape.connections * shape.hidden), fp32=True)
    inv.vector(f"{path}hc_head_base", shape.connections, fp32=True)
    inv.vector(f"{path}hc_head_scale", 1, fp32=True)


def _next_token_layers(config: Config, inv: Inventory, shape: _Shape) -> None:
    with mtp_weights(inv):
        for extra in range(config.integer("num_nextn_predict_layers", default=0, low=0, high=64)):
            path = f"mtp.{extra}"
            _attention(inv, f"{path}.attn", shape)
            _mixture(inv, f"{path}.ffn", shape, hashed=False)
            _layer_norms(inv, path, shape)
            _head_connections(inv, f"{path}.", shape)
            for name in ("e_proj", "h_proj"):
                inv.linear(f"{path}.{name}", (shape.hidden, shape.hidden), Part.ATTENTION)
            for norm in ("enorm", "hnorm", "norm"):
                inv.vector(f"{path}.{norm}", shape.hidden)
