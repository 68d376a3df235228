"""Reads dense decoders: Llama, and families that differ from it by a bias, a norm or a fused projection."""

from collections.abc import Callable

from penstock.errors import UnknownArchitecture
from penstock.model.architectures.decoder import (
    LLAMA,
    PRE_NORMS,
    SANDWICH_NORMS,
    Frame,
    add_decoder,
    mtp_weights,
)
from penstock.model.architectures.outline import (
    Outline,
    Windows,
    figures,
    grouped_shape,
    sliding_windows,
    stated_windows,
    text_prefix,
)
from penstock.model.blocks import GroupedShape, gated_mlp, grouped_attention, plain_mlp
from penstock.model.config_json import Config
from penstock.model.inventory import Inventory
from penstock.model.sequence_mixers import GroupedAttention
from penstock.model.weight import Part, Split

_POST_NORMS = ("post_attention_layernorm", "post_feedforward_layernorm")


def _decoder(
    config: Config,
    inv: Inventory,
    shape: GroupedShape,
    frame: Frame = LLAMA,
    *,
    windows: Windows | None = None,
    mlp_bias: bool = False,
    other_weights: Callable[[str], None] | None = None,
) -> Outline:
    """Add grouped attention and a gated feed-forward to every layer.

    `other_weights` adds weights that only some families have.
    """
    width = config.integer("intermediate_size")

    def layer(index: int, path: str) -> tuple[GroupedAttention, str]:
        window = windows[index] if windows else None
        mixer = grouped_attention(inv, f"{path}.self_attn", shape, window=window)
        gated_mlp(inv, f"{path}.mlp", shape.hidden, width, bias=mlp_bias)
        if other_weights is not None:
            other_weights(path)
        return mixer, "dense"

    outline = figures(config, hidden=shape.hidden, query_heads=shape.query_heads, widest_ffn=width)
    return add_decoder(config, inv, outline, layer, frame)


def _opted_in_windows(config: Config) -> Windows | None:
    """Return the windows of families that state a window but use it only if `use_sliding_window` is true."""
    return sliding_windows(config) if config.flag("use_sliding_window", default=False) else None


def _refuse_other_layouts(config: Config) -> None:
    """Raise an error if the config describes experts or latent attention.

    Wrappers such as Mistral3 can contain decoders with experts or latent attention. The reader of dense models would
    not count the weights of experts and latents.
    """
    for key in ("kv_lora_rank", "n_routed_experts", "num_local_experts", "num_experts"):
        if config.has(key) and config.integer(key, low=0):
            raise UnknownArchitecture(
                f"{config.where}: {key} describes experts or latent attention, which a dense model does not have"
            )


def read_llama(config: Config, inv: Inventory) -> Outline:
    """Read Llama, Mistral, Granite, SmolLM3, Seed-OSS and other decoders with Llama's layout."""
    _refuse_other_layouts(config)
    bias = config.flag("attention_bias", default=False)
    shape = grouped_shape(config, qkv_bias=bias, out_bias=config.flag("attention_out_bias", default=bias))
    mlp_bias = config.flag("mlp_bias", default=False)
    return _decoder(config, inv, shape, windows=stated_windows(config), mlp_bias=mlp_bias)


def read_qwen2(config: Config, inv: Inventory) -> Outline:
    """Read Qwen2 and Qwen2.5: Llama with biases on q, k and v."""
    return _decoder(config, inv, grouped_shape(config, qkv_bias=True), windows=_opted_in_windows(config))


def read_qwen3(config: Config, inv: Inventory) -> Outline:
    """Read Qwen3: Llama with a norm on each head's query and key."""
    shape = grouped_shape(config, head_norm=True, qkv_bias=config.flag("attention_bias", default=False))
    frame = Frame(prefix=text_prefix(config, "model.language_model."))
    return _decoder(config, inv, shape, frame, windows=_opted_in_windows(config))


def read_mimo(config: Config, inv: Inventory) -> Outline:
    """Read MiMo: Qwen2's layout with additional multi-token-prediction layers."""
    outline = read_qwen2(config, inv)
    hidden, width = outline.hidden_size, outline.widest_ffn
    with mtp_weights(inv):
        for index in range(config.integer("num_nextn_predict_layers", default=0, low=0, high=64)):
            path = f"model.mtp_layers.{index}"
            grouped_attention(inv, f"{path}.self_attn", grouped_shape(config, qkv_bias=True))
            gated_mlp(inv, f"{path}.mlp", hidden, width)
            inv.linear(f"{path}.input_proj", (hidden, 2 * hidden), Part.MTP)
            for norm in (*PRE_NORMS, "token_layernorm", "hidden_layernorm", "final_layernorm"):
                inv.vector(f"{path}.{norm}", hidden)
    return outline


def read_phi3(config: Config, inv: Inventory) -> Outline:
    """Read Phi-3 and Phi-4.

    Phi models store q, k and v as one matrix, and gate and up as another matrix. The total size is the same as in
    Llama's layout.
    """
    return _decoder(config, inv, grouped_shape(config), windows=stated_windows(config))


def read_gemma2(config: Config, inv: Inventory) -> Outline:
    """Read Gemma 2: norms around both blocks, every second layer sliding, tied embeddings."""
    window = config.integer("sliding_window", default=4096)
    alternating = tuple(window if index % 2 == 0 else None for index in range(config.layers()))
    windows = sliding_windows(config) if config.has("layer_types") else alternating
    return _decoder(config, inv, grouped_shape(config), Frame(norms=SANDWICH_NORMS, tied=True), windows=windows)


def read_gemma3(config: Config, inv: Inventory) -> Outline:
    """Read Gemma 3: Gemma 2 with head norms, and with five sliding layers for each full-attention layer."""
    shape = grouped_shape(config, head_norm=True)
    if config.has("layer_types"):
        windows = sliding_windows(config)
    else:
        pattern = config.integer("sliding_window_pattern", default=6)
        window = config.integer("sliding_window", default=1024)
        windows = tuple(None if (index + 1) % pattern == 0 else window for index in range(config.layers()))
    frame = Frame(prefix=text_prefix(config, "language_model.model."), norms=SANDWICH_NORMS, tied=True)
    return _decoder(config, inv, shape, frame, windows=windows)


def read_olmo2(config: Config, inv: Inventory) -> Outline:
    """Read OLMo 2 and 3: norms after each block, one norm across all query channels and one across all key channels.

    OLMo 3 has sliding layers where `layer_types` says so.
    """
    shape = grouped_shape(config)

    def channel_norms(path: str) -> None:
        inv.vector(f"{path}.self_attn.q_norm", shape.query_heads * shape.head_dim)
        inv.vector(f"{path}.self_attn.k_norm", shape.kv_heads * shape.head_dim)

    frame = Frame(norms=_POST_NORMS)
    return _decoder(config, inv, shape, frame, windows=stated_windows(config), other_weights=channel_norms)


def read_exaone4(config: Config, inv: Inventory) -> Outline:
    """Read EXAONE 4: head norms, norms after each block, and sliding layers where `layer_types` says so."""
    shape = grouped_shape(config, head_norm=True)
    return _decoder(config, inv, shape, Frame(norms=_POST_NORMS), windows=stated_windows(config))


def read_glm4(config: Config, inv: Inventory) -> Outline:
    """Read GLM-4-0414: biased q, k and v, fused gate and up, norms around both blocks."""
    shape = grouped_shape(config, qkv_bias=config.flag("attention_bias", default=False))
    return _decoder(config, inv, shape, Frame(norms=(*PRE_NORMS, "post_self_attn_layernorm", "post_mlp_layernorm")))


def read_cohere(config: Config, inv: Inventory) -> Outline:
    """Read a Command R config: one norm per layer, attention and feed-forward in parallel, tied embeddings."""
    shape = grouped_shape(config)
    patterned = config.has("layer_types") or config.has("sliding_window_pattern")

    def head_norms(path: str) -> None:
        inv.vector(f"{path}.self_attn.q_norm", (shape.query_heads, shape.head_dim))
        inv.vector(f"{path}.self_attn.k_norm", (shape.kv_heads, shape.head_dim))

    return _decoder(
        config,
        inv,
        shape,
        Frame(norms=("input_layernorm",), tied=True),
        windows=stated_windows(config) if patterned else None,
        other_weights=head_norms if config.flag("use_qk_norm", default=False) else None,
    )


def read_starcoder2(config: Config, inv: Inventory) -> Outline:
    """Read StarCoder2: biases everywhere, layer norms with bias, an ungated feed-forward."""
    bias = config.flag("use_bias", default=True)
    shape = grouped_shape(config, qkv_bias=bias, out_bias=bias)
    width, windows = config.integer("intermediate_size"), stated_windows(config)

    def layer(index: int, path: str) -> tuple[GroupedAttention, str]:
        mixer = grouped_attention(inv, f"{path}.self_attn", shape, window=windows[index])
        plain_mlp(inv, f"{path}.mlp", shape.hidden, width, names=("c_fc", "c_proj"), bias=bias)
        return mixer, "dense"

    outline = figures(config, hidden=shape.hidden, query_heads=shape.query_heads, widest_ffn=width)
    return add_decoder(config, inv, outline, layer, Frame(norm_bias=True, tied=True))


def read_falcon(config: Config, inv: Inventory) -> Outline:
    """Read Falcon 7B, 40B and 180B.

    Each layer has one fused qkv projection and an ungated feed-forward. The attention is multi-query or grouped-query.
    The feed-forward is four times as wide as the hidden size.
    """
    shape = _falcon_shape(config)
    hidden, bias = shape.hidden, shape.qkv_bias
    width = config.integer("ffn_hidden_size", default=4 * hidden)
    new = config.flag("new_decoder_architecture", default=False)
    one_norm = not new and config.flag("parallel_attn", default=True)

    def layer(_: int, path: str) -> tuple[GroupedAttention, str]:
        mixer = _falcon_attention(inv, f"{path}.self_attention", shape)
        plain_mlp(inv, f"{path}.mlp", hidden, width, names=("dense_h_to_4h", "dense_4h_to_h"), bias=bias)
        return mixer, "dense"

    frame = Frame(
        prefix="transformer.",
        embedding="word_embeddings",
        layers="h",
        norms=("input_layernorm",) if one_norm else ("ln_attn", "ln_mlp"),
        norm_bias=True,
        final_norm="ln_f",
        tied=True,
    )
    outline = figures(config, hidden=hidden, query_heads=shape.query_heads, widest_ffn=width)
    layers = config.layers("num_hidden_layers", "n_layer")
    return add_decoder(config, inv, outline, layer, frame, layers=layers)


def _falcon_shape(config: Config) -> GroupedShape:
    hidden = config.integer("hidden_size", "n_embed")
    heads = config.integer("num_attention_heads", "n_head", high=2**16)
    kv_heads = config.integer("num_kv_heads", "n_head_kv", default=heads, high=2**16)
    if not config.flag("new_decoder_architecture", default=False):
        kv_heads = 1 if config.flag("multi_query", default=True) else heads
    head_dim, bias = max(1, hidden // heads), config.flag("bias", default=False)
    return GroupedShape(
        hidden=hidden,
        query_heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        value_dim=head_dim,
        qkv_bias=bias,
        out_bias=bias,
    )


def _falcon_attention(inv: Inventory, path: str, shape: GroupedShape) -> GroupedAttention:
    heads, kv_heads, head_dim, bias = shape.query_heads, shape.kv_heads, shape.head_dim, shape.qkv_bias
    # The parts of this stored matrix are split differently: queries by head, keys and values by group.
    for rows, units in ((heads * head_dim, heads), (2 * kv_heads * head_dim, kv_heads)):
        name = f"{path}.query_key_value"
        inv.linear(name, (rows, shape.hidden), Part.ATTENTION, split=Split.COLUMN, units=units, bias=bias)
    inputs = heads * head_dim
    inv.linear(f"{path}.dense", (shape.hidden, inputs), Part.ATTENTION, split=Split.ROW, units=heads, bias=bias)
    return GroupedAttention(query_heads=heads, kv_heads=kv_heads, key_dim=head_dim, value_dim=head_dim)


def read_nemotron_nas(config: Config, inv: Inventory) -> Outline:
    """Read Nemotron Super and Ultra models that were found by neural architecture search.

    The config states the attention and the feed-forward of each layer separately.
    """
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads", high=2**16)
    blocks = config.sections("block_configs")[: config.layers()]
    widths = [_nas_width(block.section("ffn"), hidden) for block in blocks]

    def layer(index: int, path: str) -> tuple[GroupedAttention | None, str]:
        mixer = _nas_attention(inv, path, blocks[index].section("attention"), hidden, heads)
        if not widths[index]:
            return mixer, "none"
        _nas_feed_forward(inv, path, blocks[index].section("ffn"), hidden, widths[index])
        return mixer, "dense"

    outline = figures(config, hidden=hidden, query_heads=heads, widest_ffn=max(widths, default=0))
    return add_decoder(config, inv, outline, layer, Frame(norms=()), layers=len(blocks))


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


def _nas_feed_forward(inv: Inventory, path: str, ffn: Config, hidden: int, width: int) -> None:
    inv.vector(f"{path}.post_attention_layernorm", hidden)
    if ffn.flag("replace_with_linear", default=False):
        inv.linear(f"{path}.mlp.linear_mlp", (hidden, hidden), Part.DENSE_FFN, split=Split.COLUMN)
    else:
        gated_mlp(inv, f"{path}.mlp", hidden, width)


def _nas_width(ffn: Config, hidden: int) -> int:
    if ffn.flag("no_op", default=False):
        return 0
    if ffn.flag("replace_with_linear", default=False):
        return hidden
    # The checkpoint's code takes 2/3 x ffn_mult x hidden size, rounded up to a multiple of 256.
    raw = int(2 * ffn.number("ffn_mult", high=1e4) * hidden / 3)
    return -(-max(1, raw) // 256) * 256
