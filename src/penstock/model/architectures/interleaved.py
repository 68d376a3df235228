"""Reads mixtures of experts with several kinds of layers (Step, MiMo-V2, Llama 4, gpt-oss, MiniMax-M3)."""

from dataclasses import replace

from penstock.errors import ConfigError
from penstock.model.architectures.decoder import Frame, add_decoder, join_mtp, mtp_weights
from penstock.model.architectures.mixture import Mixture, feed_forward, mixtral_mixture, read_experts
from penstock.model.architectures.outline import Outline, grouped_shape, sliding_windows, text_prefix
from penstock.model.blocks import GroupedShape, gated_mlp, grouped_attention
from penstock.model.config_json import Config
from penstock.model.inventory import Inventory
from penstock.model.sequence_mixers import GroupedAttention
from penstock.model.weight import Part, Split


def read_step3(config: Config, inv: Inventory) -> Outline:
    """Read Step-3.5 and Step-3.7 Flash.

    Step models have three sliding layers for each full-attention layer, more query heads in the sliding layers, and
    head gates.
    """
    first = config.integer("first_k_dense_replace", default=0, low=0, high=2**16)
    windows, gated = sliding_windows(config), config.flag("use_head_wise_attn_gate", default=False)
    full, sliding = _step_shapes(config, inv)
    mixture = _step_mixture(config)

    def layer(index: int, path: str) -> tuple[GroupedAttention, str]:
        shape = full if windows[index] is None else sliding
        mixer = grouped_attention(inv, f"{path}.self_attn", shape, window=windows[index])
        if gated:
            gates = (shape.query_heads, shape.hidden)
            inv.linear(f"{path}.self_attn.g_proj", gates, Part.ATTENTION, split=Split.COLUMN)
        return mixer, feed_forward(inv, path, shape.hidden, mixture, dense=index < first)

    outline = add_decoder(config, inv, mixture.outline(config, full.hidden, full.query_heads), layer)
    with mtp_weights(inv):
        for extra in range(config.integer("num_nextn_predict_layers", default=0, low=0, high=2**16)):
            path = f"model.layers.{config.layers() + extra}"
            grouped_attention(inv, f"{path}.self_attn", sliding)
            gated_mlp(inv, f"{path}.mlp", full.hidden, mixture.dense_width)
            join_mtp(inv, path, outline, own_tables=False)
            inv.head(f"{path}.transformer.shared_head.output", outline.vocab_size, full.hidden, tied=False)
    return outline


def _step_shapes(config: Config, inv: Inventory) -> tuple[GroupedShape, GroupedShape]:
    full = grouped_shape(config, head_norm=True)
    if config.has("num_attention_groups"):
        full = replace(full, kv_heads=config.integer("num_attention_groups", high=2**16))
    other = config.optional("attention_other_setting")
    if other is None:
        inv.notes.append(
            "attention_other_setting is absent: sliding layers are read with the full layers' heads, "
            "as this config states them (the published checkpoint has 96 and a head gate, 0.6% more parameters)"
        )
        return full, full
    return full, replace(full, query_heads=other.integer("num_attention_heads", high=2**16))


def _step_mixture(config: Config) -> Mixture:
    return Mixture(
        experts=read_experts(
            config, ("num_experts", "moe_num_experts"), ("num_experts_per_tok", "moe_top_k"), shared=1
        ),
        width=config.integer("moe_intermediate_size"),
        routed="moe.experts",
        gate="moe.gate",
        correction_bias="moe.router_bias",
        shared="share_expert",
        shared_width=config.integer("share_expert_dim"),
        dense_width=config.integer("intermediate_size"),
    )


def read_mimo_v2(config: Config, inv: Inventory) -> Outline:
    """Read MiMo-V2-Flash.

    Keys are wider than values. Sliding layers have attention sinks and their own number of heads.
    """
    layers = config.layers()
    slides, is_moe = config.integers("hybrid_layer_pattern"), config.integers("moe_layer_freq")
    if len(slides) < layers or len(is_moe) < layers:
        raise ConfigError(f"{config.where}: hybrid_layer_pattern and moe_layer_freq must each list {layers} layers")
    full, sliding = _mimo_shape(config, ""), _mimo_shape(config, "swa_")
    window = config.integer("sliding_window", "sliding_window_size")
    full_sinks = config.flag("add_full_attention_sink_bias", default=False)
    sliding_sinks = config.flag("add_swa_attention_sink_bias", default=False)
    mixture = Mixture(
        experts=read_experts(config, ("n_routed_experts",)),
        width=config.integer("moe_intermediate_size"),
        correction_bias="mlp.gate.e_score_correction_bias",
        dense_width=config.integer("intermediate_size"),
    )

    def layer(index: int, path: str) -> tuple[GroupedAttention, str]:
        shape, span, sinks = (sliding, window, sliding_sinks) if slides[index] else (full, None, full_sinks)
        mixer = grouped_attention(inv, f"{path}.self_attn", shape, window=span)
        if sinks:
            inv.vector(f"{path}.self_attn.attention_sink_bias", shape.query_heads, split=Split.COLUMN)
        return mixer, feed_forward(inv, path, shape.hidden, mixture, dense=not is_moe[index])

    return add_decoder(config, inv, mixture.outline(config, full.hidden, full.query_heads), layer)


def _mimo_shape(config: Config, prefix: str) -> GroupedShape:
    return GroupedShape(
        hidden=config.integer("hidden_size"),
        query_heads=config.integer(f"{prefix}num_attention_heads", high=2**16),
        kv_heads=config.integer(f"{prefix}num_key_value_heads", high=2**16),
        head_dim=config.integer(f"{prefix}head_dim"),
        value_dim=config.integer(f"{prefix}v_head_dim"),
        qkv_bias=config.flag("attention_bias", default=False),
    )


def read_llama4(config: Config, inv: Inventory) -> Outline:
    """Read Llama 4.

    Every layer or every second layer has routed experts and a shared expert. Three of four layers use chunked
    attention.
    """
    layers, width = config.layers(), config.integer("intermediate_size")
    step = config.integer("interleave_moe_layer_step", default=1)
    moe = frozenset(config.integers("moe_layers") or range(step - 1, layers, step))
    rope = config.integers("no_rope_layers") or tuple(int((index + 1) % 4 != 0) for index in range(layers))
    chunk = config.integer("attention_chunk_size", default=8192)
    shape = grouped_shape(config, qkv_bias=config.flag("attention_bias", default=False))
    mixture = Mixture(
        experts=read_experts(config, ("num_local_experts",), shared=1),
        width=width,
        routed="feed_forward.experts",
        gate="feed_forward.router",
        shared="feed_forward.shared_expert",
        shared_width=width,
        dense="feed_forward",
        dense_width=config.integer("intermediate_size_mlp", default=width),
    )
    inv.notes.append("chunked layers keep the whole sequence, because vLLM's hybrid cache is off for them by default")

    def layer(index: int, path: str) -> tuple[GroupedAttention, str]:
        # A layer with rotary positions attends within its chunk. Layers without them attend to the whole context.
        window = chunk if index < len(rope) and rope[index] else None
        mixer = grouped_attention(inv, f"{path}.self_attn", shape, window=window)
        kind = feed_forward(inv, path, shape.hidden, mixture, dense=index not in moe)
        return replace(mixer, keeps_all_tokens=window is not None), kind

    frame = Frame(prefix=text_prefix(config, "language_model.model."), head="language_model.lm_head")
    return add_decoder(config, inv, mixture.outline(config, shape.hidden, shape.query_heads), layer, frame)


def read_gpt_oss(config: Config, inv: Inventory) -> Outline:
    """Read gpt-oss: biases, attention sinks, a sliding window in every second layer, and mxfp4 experts with biases."""
    windows = sliding_windows(config)
    shape = grouped_shape(config, qkv_bias=True, out_bias=True)
    mixture = Mixture(
        experts=read_experts(config, ("num_local_experts",), ("num_experts_per_tok", "experts_per_token")),
        width=config.integer("intermediate_size"),
        gate="mlp.router",
        bias=True,
    )

    def layer(index: int, path: str) -> tuple[GroupedAttention, str]:
        mixer = grouped_attention(inv, f"{path}.self_attn", shape, window=windows[index])
        inv.vector(f"{path}.self_attn.sinks", shape.query_heads, split=Split.COLUMN)
        return mixer, feed_forward(inv, path, shape.hidden, mixture)

    return add_decoder(config, inv, mixture.outline(config, shape.hidden, shape.query_heads), layer)


def read_minimax_m3(config: Config, inv: Inventory) -> Outline:
    """Read MiniMax-M3, which has a shared expert.

    From the fourth layer on, the attention is block-sparse and has index projections.
    """
    layers, sparse = config.layers(), config.section("sparse_attention_config")
    indexed, is_moe = sparse.integers("sparse_attention_freq"), config.integers("moe_layer_freq")
    if len(indexed) < layers or len(is_moe) < layers:
        raise ConfigError(f"{config.where}: sparse_attention_freq and moe_layer_freq must each list {layers} layers")
    index_dim = sparse.integer("sparse_index_dim")
    # The block of the query itself is one of the selected blocks.
    chosen_tokens = sparse.integer("sparse_topk_blocks") * sparse.integer("sparse_block_size")
    index_heads = sparse.integer("sparse_num_index_heads", high=2**16)
    shape = grouped_shape(config, head_norm=config.flag("use_qk_norm", default=True))
    mixture = mixtral_mixture(
        config,
        correction_bias="block_sparse_moe.e_score_correction_bias",
        shared=config.integer("n_shared_experts", default=0, low=0, high=2**16),
        dense_width=config.integer("dense_intermediate_size"),
    )

    def layer(index: int, path: str) -> tuple[GroupedAttention, str]:
        attention = f"{path}.self_attn"
        mixer = grouped_attention(inv, attention, shape)
        if indexed[index]:
            mixer = replace(mixer, index_dim=index_dim, index_topk=chosen_tokens)
            queries = (index_heads * index_dim, shape.hidden)
            inv.linear(f"{attention}.index_q_proj", queries, Part.ATTENTION, split=Split.COLUMN, units=index_heads)
            inv.linear(f"{attention}.index_k_proj", (index_dim, shape.hidden), Part.ATTENTION)
            inv.vector(f"{attention}.index_q_norm", index_dim)
            inv.vector(f"{attention}.index_k_norm", index_dim)
        return mixer, feed_forward(inv, path, shape.hidden, mixture, dense=not is_moe[index])

    frame = Frame(prefix="language_model.model.", head="language_model.lm_head")
    return add_decoder(config, inv, mixture.outline(config, shape.hidden, shape.query_heads), layer, frame)
