"""Dense decoders: Llama and everything that differs from it by a bias, a norm or a fused projection."""

from dataclasses import dataclass

from penstock.model.architectures.outline import (
    Outline,
    context_length,
    grouped_shape,
    sliding_windows,
    tied,
)
from penstock.model.attention import GroupedAttention
from penstock.model.blocks import GroupedShape, gated_mlp, grouped_attention, plain_mlp
from penstock.model.config import Config
from penstock.model.inventory import Inventory
from penstock.model.weight import Part, Split

Spans = tuple[int | None, ...]
"""Each layer's window; None is full attention."""

_PRE_NORMS = ("input_layernorm", "post_attention_layernorm")
_SANDWICH_NORMS = (*_PRE_NORMS, "pre_feedforward_layernorm", "post_feedforward_layernorm")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Style:
    """What sets a dense family apart from Llama, besides its attention's shape."""

    norms: tuple[str, ...] = _PRE_NORMS
    norm_bias: bool = False
    gated: bool = True
    mlp_bias: bool = False
    tied: bool = False
    """Whether the head is tied when the config does not say."""
    spans: Spans | None = None
    prefix: str = "model."


def _decoder(config: Config, inv: Inventory, shape: GroupedShape, style: _Style) -> Outline:
    hidden, vocab, layers = shape.hidden, config.integer("vocab_size"), config.layers()
    width = config.integer("intermediate_size")
    windows, prefix = style.spans or (None,) * layers, style.prefix
    inv.embedding(f"{prefix}embed_tokens", vocab, hidden)
    for index in range(layers):
        inv.layer = index
        path = f"{prefix}layers.{index}"
        mixer = grouped_attention(inv, f"{path}.self_attn", shape, window=windows[index])
        if style.gated:
            gated_mlp(inv, f"{path}.mlp", hidden, width, bias=style.mlp_bias)
        else:
            plain_mlp(inv, f"{path}.mlp", hidden, width, names=("c_fc", "c_proj"), bias=style.mlp_bias)
        for norm in style.norms:
            _norm(inv, f"{path}.{norm}", hidden, bias=style.norm_bias)
        inv.layer_done(mixer, "dense")
    _norm(inv, f"{prefix}norm", hidden, bias=style.norm_bias)
    inv.head("lm_head", vocab, hidden, tied=tied(config, default=style.tied))
    return Outline(
        hidden_size=hidden,
        vocab_size=vocab,
        query_heads=shape.query_heads,
        max_context_tokens=context_length(config),
        widest_ffn=width,
    )


def _stated_spans(config: Config) -> Spans | None:
    """Windows of families where stating `sliding_window` turns it on."""
    return sliding_windows(config, config.layers()) if config.has("sliding_window") else None


def _opted_in_spans(config: Config) -> Spans | None:
    """Windows of families that state one but use it only with `use_sliding_window`."""
    return sliding_windows(config, config.layers()) if config.flag("use_sliding_window", default=False) else None


def _norm(inv: Inventory, path: str, width: int, *, bias: bool) -> None:
    inv.vector(path, width)
    if bias:
        inv.vector(f"{path}.bias", width)


def read_llama(config: Config, inv: Inventory) -> Outline:
    """Llama, Mistral, Granite, SmolLM3, Seed-OSS and other decoders of the same layout."""
    bias = config.flag("attention_bias", default=False)
    shape = grouped_shape(config, qkv_bias=bias, out_bias=config.flag("attention_out_bias", default=bias))
    mlp_bias = config.flag("mlp_bias", default=False)
    return _decoder(config, inv, shape, _Style(mlp_bias=mlp_bias, spans=_stated_spans(config)))


def read_qwen2(config: Config, inv: Inventory) -> Outline:
    """Qwen2 and Qwen2.5: Llama with biases on q, k and v."""
    shape = grouped_shape(config, qkv_bias=True)
    return _decoder(config, inv, shape, _Style(spans=_opted_in_spans(config)))


def read_qwen3(config: Config, inv: Inventory) -> Outline:
    """Qwen3: Llama with a norm on each head's query and key."""
    shape = grouped_shape(config, head_norm=True, qkv_bias=config.flag("attention_bias", default=False))
    prefix = "model.language_model." if config.where.endswith("text_config") else "model."
    return _decoder(config, inv, shape, _Style(spans=_opted_in_spans(config), prefix=prefix))


def read_mimo(config: Config, inv: Inventory) -> Outline:
    """MiMo: Qwen2's layout with multi-token-prediction layers beside it."""
    outline = read_qwen2(config, inv)
    hidden, width = outline.hidden_size, outline.widest_ffn
    inv.part_override = Part.MTP
    for index in range(config.integer("num_nextn_predict_layers", default=0, low=0, high=64)):
        path = f"model.mtp_layers.{index}"
        grouped_attention(inv, f"{path}.self_attn", grouped_shape(config, qkv_bias=True))
        gated_mlp(inv, f"{path}.mlp", hidden, width)
        inv.linear(f"{path}.input_proj", (hidden, 2 * hidden), Part.MTP)
        for norm in (*_PRE_NORMS, "token_layernorm", "hidden_layernorm", "final_layernorm"):
            inv.vector(f"{path}.{norm}", hidden)
    inv.part_override = None
    return outline


def read_phi3(config: Config, inv: Inventory) -> Outline:
    """Phi-3 and Phi-4: q, k, v and gate, up stored fused; the sum of their parts is the same."""
    return _decoder(config, inv, grouped_shape(config), _Style(spans=_stated_spans(config)))


def read_gemma2(config: Config, inv: Inventory) -> Outline:
    """Gemma 2: norms around both blocks, every second layer sliding, tied embeddings."""
    layers = config.layers()
    window = config.integer("sliding_window", default=4096)
    alternating = tuple(window if index % 2 == 0 else None for index in range(layers))
    spans = sliding_windows(config, layers) if config.has("layer_types") else alternating
    shape = grouped_shape(config)
    return _decoder(config, inv, shape, _Style(norms=_SANDWICH_NORMS, tied=True, spans=spans))


def read_gemma3(config: Config, inv: Inventory) -> Outline:
    """Gemma 3: Gemma 2 with head norms and five sliding layers to each full one."""
    shape = grouped_shape(config, head_norm=True)
    layers = config.layers()
    prefix = "language_model.model." if config.where.endswith("text_config") else "model."
    if config.has("layer_types"):
        spans = sliding_windows(config, layers)
    else:
        pattern = config.integer("sliding_window_pattern", default=6)
        window = config.integer("sliding_window", default=1024)
        spans = tuple(None if (index + 1) % pattern == 0 else window for index in range(layers))
    return _decoder(config, inv, shape, _Style(norms=_SANDWICH_NORMS, tied=True, spans=spans, prefix=prefix))


def read_olmo2(config: Config, inv: Inventory) -> Outline:
    """OLMo 2: norms after each block, and one norm across all query and all key channels."""
    shape = grouped_shape(config)
    outline = _decoder(config, inv, shape, _Style(norms=("post_attention_layernorm", "post_feedforward_layernorm")))
    for index in range(config.layers()):
        inv.layer = index
        inv.vector(f"model.layers.{index}.self_attn.q_norm", shape.query_heads * shape.head_dim)
        inv.vector(f"model.layers.{index}.self_attn.k_norm", shape.kv_heads * shape.head_dim)
    inv.layer = None
    return outline


def read_exaone4(config: Config, inv: Inventory) -> Outline:
    """EXAONE 4: head norms, norms after each block, sliding layers by `layer_types`."""
    shape = grouped_shape(config, head_norm=True)
    norms = ("post_attention_layernorm", "post_feedforward_layernorm")
    return _decoder(config, inv, shape, _Style(norms=norms, spans=_stated_spans(config)))


def read_glm4(config: Config, inv: Inventory) -> Outline:
    """GLM-4-0414: biased q, k and v, fused gate and up, norms around both blocks."""
    shape = grouped_shape(config, qkv_bias=config.flag("attention_bias", default=False))
    return _decoder(config, inv, shape, _Style(norms=(*_PRE_NORMS, "post_self_attn_layernorm", "post_mlp_layernorm")))


def read_cohere(config: Config, inv: Inventory) -> Outline:
    """Command R: one norm per layer, attention and feed-forward side by side, tied embeddings."""
    shape = grouped_shape(config)
    layers = config.layers()
    patterned = config.has("layer_types") or config.has("sliding_window_pattern")
    spans = sliding_windows(config, layers) if config.has("sliding_window") and patterned else None
    outline = _decoder(config, inv, shape, _Style(norms=("input_layernorm",), tied=True, spans=spans))
    if config.flag("use_qk_norm", default=False):
        for index in range(layers):
            inv.vector(f"model.layers.{index}.self_attn.q_norm", (shape.query_heads, shape.head_dim))
            inv.vector(f"model.layers.{index}.self_attn.k_norm", (shape.kv_heads, shape.head_dim))
    return outline


def read_starcoder2(config: Config, inv: Inventory) -> Outline:
    """StarCoder2: biases everywhere, layer norms with bias, an ungated feed-forward."""
    bias = config.flag("use_bias", default=True)
    shape = grouped_shape(config, qkv_bias=bias, out_bias=bias)
    return _decoder(
        config, inv, shape, _Style(norm_bias=True, gated=False, mlp_bias=bias, tied=True, spans=_stated_spans(config))
    )


def read_falcon(config: Config, inv: Inventory) -> Outline:
    """Falcon 7B, 40B and 180B: one fused qkv, multi-query or grouped, ungated feed-forward of four times hidden."""
    hidden = config.integer("hidden_size", "n_embed")
    heads = config.integer("num_attention_heads", "n_head", high=2**16)
    new = config.flag("new_decoder_architecture", default=False)
    grouped = config.integer("num_kv_heads", "n_head_kv", default=heads, high=2**16)
    kv_heads = grouped if new else (1 if config.flag("multi_query", default=True) else heads)
    vocab, layers = config.integer("vocab_size"), config.layers("num_hidden_layers", "n_layer")
    width = config.integer("ffn_hidden_size", default=4 * hidden)
    bias = config.flag("bias", default=False)
    head_dim = max(1, hidden // heads)
    inv.embedding("transformer.word_embeddings", vocab, hidden)
    for index in range(layers):
        inv.layer = index
        path = f"transformer.h.{index}"
        attention = f"{path}.self_attention"
        for piece, count in (("query", heads), ("kv", 2 * kv_heads)):
            units = heads if piece == "query" else kv_heads
            inv.linear(
                f"{attention}.query_key_value",
                (count * head_dim, hidden),
                Part.ATTENTION,
                split=Split.COLUMN,
                units=units,
                bias=bias,
            )
        inv.linear(
            f"{attention}.dense",
            (hidden, heads * head_dim),
            Part.ATTENTION,
            split=Split.ROW,
            units=heads,
            bias=bias,
        )
        plain_mlp(inv, f"{path}.mlp", hidden, width, names=("dense_h_to_4h", "dense_4h_to_h"), bias=bias)
        one_norm = not new and config.flag("parallel_attn", default=True)
        for norm in ("input_layernorm",) if one_norm else ("ln_attn", "ln_mlp"):
            _norm(inv, f"{path}.{norm}", hidden, bias=True)
        mixer = GroupedAttention(query_heads=heads, kv_heads=kv_heads, key_dim=head_dim, value_dim=head_dim)
        inv.layer_done(mixer, "dense")
    _norm(inv, "transformer.ln_f", hidden, bias=True)
    inv.head("lm_head", vocab, hidden, tied=tied(config, default=True))
    return Outline(
        hidden_size=hidden,
        vocab_size=vocab,
        query_heads=heads,
        max_context_tokens=context_length(config),
        widest_ffn=width,
    )


def read_nemotron_nas(config: Config, inv: Inventory) -> Outline:
    """Nemotron Super and Ultra from architecture search: each layer states its own attention and feed-forward."""
    hidden, vocab = config.integer("hidden_size"), config.integer("vocab_size")
    heads = config.integer("num_attention_heads", high=2**16)
    blocks = config.sections("block_configs")[: config.layers()]
    widest = 0
    inv.embedding("model.embed_tokens", vocab, hidden)
    for index, block in enumerate(blocks):
        inv.layer = index
        path = f"model.layers.{index}"
        mixer = _nas_attention(inv, path, block.section("attention"), hidden, heads)
        width = _nas_feed_forward(inv, path, block.section("ffn"), hidden)
        widest = max(widest, width)
        inv.layer_done(mixer, "dense" if width else "none")
    inv.vector("model.norm", hidden)
    inv.head("lm_head", vocab, hidden, tied=tied(config))
    return Outline(
        hidden_size=hidden,
        vocab_size=vocab,
        query_heads=heads,
        max_context_tokens=context_length(config),
        widest_ffn=widest,
    )


def _nas_attention(inv: Inventory, path: str, attention: Config, hidden: int, heads: int) -> GroupedAttention | None:
    if attention.flag("no_op", default=False):
        return None
    inv.vector(f"{path}.input_layernorm", hidden)
    if attention.flag("replace_with_linear", default=False):
        inv.linear(f"{path}.self_attn.linear_attn", (hidden, hidden), Part.ATTENTION, split=Split.COLUMN)
        return None
    kv_heads = max(1, heads // attention.integer("n_heads_in_group", high=2**16))
    head_dim = max(1, hidden // heads)
    shape = GroupedShape(hidden=hidden, query_heads=heads, kv_heads=kv_heads, head_dim=head_dim, value_dim=head_dim)
    return grouped_attention(inv, f"{path}.self_attn", shape)


def _nas_feed_forward(inv: Inventory, path: str, ffn: Config, hidden: int) -> int:
    if ffn.flag("no_op", default=False):
        return 0
    inv.vector(f"{path}.post_attention_layernorm", hidden)
    if ffn.flag("replace_with_linear", default=False):
        inv.linear(f"{path}.mlp.linear_mlp", (hidden, hidden), Part.DENSE_FFN, split=Split.COLUMN)
        return hidden
    # Two thirds of the multiple, rounded up to 256: the rule the checkpoint's own code states.
    raw = int(2 * ffn.number("ffn_mult", high=1e4) * hidden / 3)
    width = -(-max(1, raw) // 256) * 256
    gated_mlp(inv, f"{path}.mlp", hidden, width)
    return width
