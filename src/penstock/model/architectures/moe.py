"""Mixtures of experts with grouped attention: Mixtral, Qwen3-MoE, GLM-4.5, Llama 4, gpt-oss, MiniMax, Step, MiMo-V2."""

from dataclasses import dataclass, replace

from penstock.errors import ConfigError
from penstock.model.architectures.outline import (
    Outline,
    context_length,
    grouped_shape,
    sliding_windows,
    tied,
)
from penstock.model.blocks import GroupedShape, gated_mlp, grouped_attention, routed_experts, router
from penstock.model.config import Config
from penstock.model.inventory import Inventory
from penstock.model.spec import Experts
from penstock.model.weight import Part, Split

_NORMS = ("input_layernorm", "post_attention_layernorm")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mixture:
    """How one family names and sizes its experts."""

    experts: Experts
    width: int
    shared_width: int = 0
    block: str = "mlp"
    expert_path: str = "mlp.experts"
    gate: str = "mlp.gate"
    correction_bias: str | None = None
    shared_path: str = "mlp.shared_experts"
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")

    @property
    def widest(self) -> int:
        return self.width * self.experts.per_token + self.shared_width


def _count(config: Config, *keys: str, default: int | None = None) -> int:
    return config.integer(*keys, default=default, low=0 if default == 0 else 1, high=2**16)


def _experts(config: Config, routed: tuple[str, ...], per_token: tuple[str, ...], shared: int = 0) -> Experts:
    experts = Experts(routed=_count(config, *routed), per_token=_count(config, *per_token), shared=shared)
    if experts.per_token > experts.routed:
        raise ConfigError(f"{config.where}: {experts.per_token} experts per token of {experts.routed}")
    return experts


def _add_mixture(inv: Inventory, path: str, hidden: int, mixture: _Mixture) -> None:
    bias = None if mixture.correction_bias is None else f"{path}.{mixture.correction_bias}"
    router(inv, f"{path}.{mixture.gate}", hidden, mixture.experts.routed, correction_bias=bias)
    routed_experts(
        inv,
        f"{path}.{mixture.expert_path}",
        hidden=hidden,
        width=mixture.width,
        experts=mixture.experts.routed,
        per_token=mixture.experts.per_token,
        names=mixture.names,
    )
    if mixture.shared_width:
        gated_mlp(inv, f"{path}.{mixture.shared_path}", hidden, mixture.shared_width, Part.SHARED_EXPERTS)


def _moe_decoder(
    config: Config,
    inv: Inventory,
    shape: GroupedShape,
    mixture: _Mixture,
    *,
    dense_layers: frozenset[int] = frozenset(),
    dense_width: int = 0,
    spans: tuple[int | None, ...] | None = None,
    prefix: str = "model.",
    head: str = "lm_head",
) -> Outline:
    hidden, vocab, layers = shape.hidden, config.integer("vocab_size"), config.layers()
    windows = spans or (None,) * layers
    inv.embedding(f"{prefix}embed_tokens", vocab, hidden)
    for index in range(layers):
        inv.layer = index
        path = f"{prefix}layers.{index}"
        mixer = grouped_attention(inv, f"{path}.self_attn", shape, window=windows[index])
        dense = index in dense_layers
        if dense:
            gated_mlp(inv, f"{path}.mlp", hidden, dense_width)
        else:
            _add_mixture(inv, path, hidden, mixture)
        for norm in _NORMS:
            inv.vector(f"{path}.{norm}", hidden)
        inv.layer_done(mixer, "dense" if dense else "moe")
    inv.vector(f"{prefix}norm", hidden)
    inv.head(head, vocab, hidden, tied=tied(config))
    return Outline(
        hidden_size=hidden,
        vocab_size=vocab,
        query_heads=shape.query_heads,
        max_context_tokens=context_length(config),
        widest_ffn=max(mixture.widest, dense_width),
        experts=mixture.experts,
    )


def read_mixtral(config: Config, inv: Inventory) -> Outline:
    """Mixtral: w1, w2, w3 experts in every layer."""
    mixture = _Mixture(
        experts=_experts(config, ("num_local_experts",), ("num_experts_per_tok",)),
        width=config.integer("intermediate_size"),
        expert_path="block_sparse_moe.experts",
        gate="block_sparse_moe.gate",
        names=("w1", "w3", "w2"),
    )
    spans = sliding_windows(config, config.layers()) if config.has("sliding_window") else None
    return _moe_decoder(config, inv, grouped_shape(config), mixture, spans=spans)


def read_qwen3_moe(config: Config, inv: Inventory) -> Outline:
    """Qwen3-MoE: head norms, routed experts only, some layers dense when the config says so."""
    layers = config.layers()
    step = config.integer("decoder_sparse_step", default=1)
    dense = frozenset(config.integers("mlp_only_layers")) | {i for i in range(layers) if (i + 1) % step}
    mixture = _Mixture(
        experts=_experts(config, ("num_experts",), ("num_experts_per_tok",)),
        width=config.integer("moe_intermediate_size"),
    )
    return _moe_decoder(
        config,
        inv,
        grouped_shape(config, head_norm=True, qkv_bias=config.flag("attention_bias", default=False)),
        mixture,
        dense_layers=dense,
        dense_width=config.integer("intermediate_size") if dense else 0,
        prefix=_text_prefix(config),
    )


def read_qwen2_moe(config: Config, inv: Inventory) -> Outline:
    """Qwen2-MoE: biased attention, one wide shared expert with a gate of its own."""
    mixture = _Mixture(
        experts=_experts(config, ("num_experts",), ("num_experts_per_tok",), shared=1),
        width=config.integer("moe_intermediate_size"),
        shared_width=config.integer("shared_expert_intermediate_size"),
        shared_path="mlp.shared_expert",
    )
    outline = _moe_decoder(config, inv, grouped_shape(config, qkv_bias=True), mixture)
    for index in range(config.layers()):
        inv.vector(f"model.layers.{index}.mlp.shared_expert_gate", (1, outline.hidden_size), Part.ROUTER)
    return outline


def read_glm4_moe(config: Config, inv: Inventory) -> Outline:
    """GLM-4.5 to 4.7: biased attention, first layers dense, shared experts, one multi-token-prediction layer."""
    layers, first = config.layers(), _count(config, "first_k_dense_replace", default=0)
    shared = _count(config, "n_shared_experts", default=0)
    width = config.integer("moe_intermediate_size")
    mixture = _Mixture(
        experts=_experts(config, ("n_routed_experts",), ("num_experts_per_tok",), shared=shared),
        width=width,
        shared_width=width * shared,
        correction_bias="mlp.gate.e_score_correction_bias",
    )
    shape = grouped_shape(
        config,
        qkv_bias=config.flag("attention_bias", default=False),
        head_norm=config.flag("use_qk_norm", default=False),
    )
    outline = _moe_decoder(
        config,
        inv,
        shape,
        mixture,
        dense_layers=frozenset(range(min(first, layers))),
        dense_width=config.integer("intermediate_size"),
    )
    inv.part_override = Part.MTP
    for extra in range(_count(config, "num_nextn_predict_layers", default=0)):
        path = f"model.layers.{layers + extra}"
        grouped_attention(inv, f"{path}.self_attn", shape)
        _add_mixture(inv, path, outline.hidden_size, mixture)
        mtp_join(inv, path, outline)
    inv.part_override = None
    return outline


def mtp_join(inv: Inventory, path: str, outline: Outline, *, own_tables: bool = True) -> None:
    """Add what joins a multi-token-prediction layer to the model: projection, norms and perhaps its own tables."""
    hidden = outline.hidden_size
    inv.linear(f"{path}.eh_proj", (hidden, 2 * hidden), Part.ROUTER)
    for norm in (*_NORMS, "enorm", "hnorm", "shared_head.norm"):
        inv.vector(f"{path}.{norm}", hidden)
    if own_tables:
        inv.embedding(f"{path}.embed_tokens", outline.vocab_size, hidden)
        inv.linear(f"{path}.shared_head.head", (outline.vocab_size, hidden), Part.LM_HEAD, split=Split.VOCAB)


def read_olmoe(config: Config, inv: Inventory) -> Outline:
    """OLMoE: routed experts in every layer, one norm across all query and all key channels."""
    shape = grouped_shape(config)
    mixture = _Mixture(
        experts=_experts(config, ("num_experts",), ("num_experts_per_tok",)),
        width=config.integer("intermediate_size"),
    )
    outline = _moe_decoder(config, inv, shape, mixture)
    for index in range(config.layers()):
        inv.vector(f"model.layers.{index}.self_attn.q_norm", shape.query_heads * shape.head_dim)
        inv.vector(f"model.layers.{index}.self_attn.k_norm", shape.kv_heads * shape.head_dim)
    return outline


def read_phimoe(config: Config, inv: Inventory) -> Outline:
    """Phi-3.5-MoE: Mixtral's layout with biases and layer norms with bias."""
    bias = config.flag("attention_bias", default=False)
    mixture = _Mixture(
        experts=_experts(config, ("num_local_experts",), ("num_experts_per_tok",)),
        width=config.integer("intermediate_size"),
        expert_path="block_sparse_moe.experts",
        gate="block_sparse_moe.gate",
        names=("w1", "w3", "w2"),
    )
    shape = grouped_shape(config, qkv_bias=bias, out_bias=bias)
    outline = _moe_decoder(config, inv, shape, mixture)
    for index in range(config.layers()):
        for norm in _NORMS:
            inv.vector(f"model.layers.{index}.{norm}.bias", outline.hidden_size)
    if config.flag("lm_head_bias", default=False):
        inv.vector("lm_head.bias", outline.vocab_size)
    return outline


def read_minimax_m2(config: Config, inv: Inventory) -> Outline:
    """MiniMax-M2: experts in every layer, no shared expert, one norm across all heads' channels."""
    shape = grouped_shape(config)
    mixture = _Mixture(
        experts=_experts(config, ("num_local_experts",), ("num_experts_per_tok",)),
        width=config.integer("intermediate_size"),
        expert_path="block_sparse_moe.experts",
        gate="block_sparse_moe.gate",
        correction_bias="block_sparse_moe.e_score_correction_bias",
        names=("w1", "w3", "w2"),
    )
    outline = _moe_decoder(config, inv, shape, mixture)
    if config.flag("use_qk_norm", default=True):
        for index in range(config.layers()):
            path = f"model.layers.{index}.self_attn"
            queries, keys = shape.query_heads * shape.head_dim, shape.kv_heads * shape.head_dim
            inv.vector(f"{path}.q_norm", queries, split=Split.COLUMN, units=shape.query_heads)
            inv.vector(f"{path}.k_norm", keys, split=Split.COLUMN, units=shape.kv_heads)
    if config.has("num_mtp_modules"):
        inv.notes.append("the config names MTP modules, but the published checkpoint holds none; not counted")
    return outline


def read_minimax_m3(config: Config, inv: Inventory) -> Outline:
    """MiniMax-M3: block-sparse attention with index projections from the fourth layer on, shared expert."""
    layers = config.layers()
    sparse = config.section("sparse_attention_config")
    indexed = sparse.integers("sparse_attention_freq")
    is_moe = config.integers("moe_layer_freq")
    if len(indexed) < layers or len(is_moe) < layers:
        raise ConfigError(f"{config.where}: sparse_attention_freq and moe_layer_freq must name {layers} layers")
    index_dim = sparse.integer("sparse_index_dim")
    index_heads = sparse.integer("sparse_num_index_heads", high=2**16)
    shared, width = _count(config, "n_shared_experts", default=0), config.integer("intermediate_size")
    mixture = _Mixture(
        experts=_experts(config, ("num_local_experts",), ("num_experts_per_tok",), shared=shared),
        width=width,
        shared_width=width * shared,
        expert_path="block_sparse_moe.experts",
        gate="block_sparse_moe.gate",
        correction_bias="block_sparse_moe.e_score_correction_bias",
        shared_path="block_sparse_moe.shared_experts",
        names=("w1", "w3", "w2"),
    )
    shape = grouped_shape(config, head_norm=config.flag("use_qk_norm", default=True))
    outline = _moe_decoder(
        config,
        inv,
        shape,
        mixture,
        dense_layers=frozenset(index for index in range(layers) if not is_moe[index]),
        dense_width=config.integer("dense_intermediate_size"),
        prefix="language_model.model.",
        head="language_model.lm_head",
    )
    for index in range(layers):
        if not indexed[index]:
            continue
        inv.layer = index
        path = f"language_model.model.layers.{index}.self_attn"
        hidden = outline.hidden_size
        inv.linear(
            f"{path}.index_q_proj",
            (index_heads * index_dim, hidden),
            Part.ATTENTION,
            split=Split.COLUMN,
            units=index_heads,
        )
        inv.linear(f"{path}.index_k_proj", (index_dim, hidden), Part.ATTENTION)
        inv.vector(f"{path}.index_q_norm", index_dim)
        inv.vector(f"{path}.index_k_norm", index_dim)
        mixer = inv.layers[index].mixer
        inv.layers[index] = replace(inv.layers[index], mixer=replace(mixer, index_dim=index_dim))  # type: ignore[type-var]  # a GroupedAttention
    inv.layer = None
    return outline


def read_step3(config: Config, inv: Inventory) -> Outline:
    """Step-3.5 and Step-3.7 Flash: three sliding layers to a full one, more query heads where sliding, head gates."""
    layers, first = config.layers(), _count(config, "first_k_dense_replace", default=0)
    spans = sliding_windows(config, layers)
    other = config.optional("attention_other_setting")
    full = grouped_shape(config, head_norm=True)
    if config.has("num_attention_groups"):
        full = replace(full, kv_heads=config.integer("num_attention_groups", high=2**16))
    sliding, gated = full, config.flag("use_head_wise_attn_gate", default=False)
    if other is not None:
        sliding = replace(full, query_heads=other.integer("num_attention_heads", high=2**16))
    else:
        inv.notes.append(
            "attention_other_setting is absent: sliding layers are read with the full layers' heads, "
            "as this config states them (the published checkpoint has 96 and a head gate, 0.6% more parameters)"
        )
    width, shared = config.integer("moe_intermediate_size"), config.integer("share_expert_dim")
    mixture = _Mixture(
        experts=_experts(config, ("num_experts", "moe_num_experts"), ("num_experts_per_tok", "moe_top_k"), shared=1),
        width=width,
        shared_width=shared,
        expert_path="moe.experts",
        gate="moe.gate",
        correction_bias="moe.router_bias",
        shared_path="share_expert",
    )
    hidden, vocab, dense_width = (
        full.hidden,
        config.integer("vocab_size"),
        config.integer("intermediate_size"),
    )
    inv.embedding("model.embed_tokens", vocab, hidden)
    for index in range(layers):
        inv.layer = index
        path = f"model.layers.{index}"
        shape = full if spans[index] is None else sliding
        mixer = grouped_attention(inv, f"{path}.self_attn", shape, window=spans[index])
        if gated:
            inv.linear(f"{path}.self_attn.g_proj", (shape.query_heads, hidden), Part.ATTENTION, split=Split.COLUMN)
        if index < first:
            gated_mlp(inv, f"{path}.mlp", hidden, dense_width)
        else:
            _add_mixture(inv, path, hidden, mixture)
        for norm in _NORMS:
            inv.vector(f"{path}.{norm}", hidden)
        inv.layer_done(mixer, "dense" if index < first else "moe")
    inv.vector("model.norm", hidden)
    inv.head("lm_head", vocab, hidden, tied=tied(config))
    outline = Outline(
        hidden_size=hidden,
        vocab_size=vocab,
        query_heads=full.query_heads,
        max_context_tokens=context_length(config),
        widest_ffn=max(mixture.widest, dense_width),
        experts=mixture.experts,
    )
    inv.part_override = Part.MTP
    for extra in range(_count(config, "num_nextn_predict_layers", default=0)):
        path = f"model.layers.{layers + extra}"
        grouped_attention(inv, f"{path}.self_attn", sliding)
        gated_mlp(inv, f"{path}.mlp", hidden, dense_width)
        mtp_join(inv, path, outline, own_tables=False)
        inv.head(f"{path}.transformer.shared_head.output", vocab, hidden, tied=False)
    inv.part_override = None
    return outline


def read_mimo_v2(config: Config, inv: Inventory) -> Outline:
    """MiMo-V2-Flash: sliding layers with sinks and heads of their own, keys wider than values."""
    layers = config.layers()
    sliding_layer, is_moe = config.integers("hybrid_layer_pattern"), config.integers("moe_layer_freq")
    if len(sliding_layer) < layers or len(is_moe) < layers:
        raise ConfigError(f"{config.where}: hybrid_layer_pattern and moe_layer_freq must name {layers} layers")
    hidden, vocab = config.integer("hidden_size"), config.integer("vocab_size")
    full, sliding = _mimo_shape(config, ""), _mimo_shape(config, "swa_")
    window = config.integer("sliding_window", "sliding_window_size")
    sinks = {
        False: config.flag("add_full_attention_sink_bias", default=False),
        True: config.flag("add_swa_attention_sink_bias", default=False),
    }
    dense_width = config.integer("intermediate_size")
    mixture = _Mixture(
        experts=_experts(config, ("n_routed_experts",), ("num_experts_per_tok",)),
        width=config.integer("moe_intermediate_size"),
        correction_bias="mlp.gate.e_score_correction_bias",
    )
    inv.embedding("model.embed_tokens", vocab, hidden)
    for index in range(layers):
        inv.layer = index
        path, slides = f"model.layers.{index}", bool(sliding_layer[index])
        shape = sliding if slides else full
        mixer = grouped_attention(inv, f"{path}.self_attn", shape, window=window if slides else None)
        if sinks[slides]:
            inv.vector(f"{path}.self_attn.attention_sink_bias", shape.query_heads, split=Split.COLUMN)
        if is_moe[index]:
            _add_mixture(inv, path, hidden, mixture)
        else:
            gated_mlp(inv, f"{path}.mlp", hidden, dense_width)
        for norm in _NORMS:
            inv.vector(f"{path}.{norm}", hidden)
        inv.layer_done(mixer, "moe" if is_moe[index] else "dense")
    inv.vector("model.norm", hidden)
    inv.head("lm_head", vocab, hidden, tied=tied(config))
    return Outline(
        hidden_size=hidden,
        vocab_size=vocab,
        query_heads=full.query_heads,
        max_context_tokens=context_length(config),
        widest_ffn=max(mixture.widest, dense_width),
        experts=mixture.experts,
    )


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
    """Llama 4: experts in every layer or every second one, a shared expert, chunked attention on three of four."""
    layers = config.layers()
    step = config.integer("interleave_moe_layer_step", default=1)
    listed = config.integers("moe_layers")
    moe = frozenset(listed) if listed else frozenset(range(step - 1, layers, step))
    width = config.integer("intermediate_size")
    mixture = _Mixture(
        experts=_experts(config, ("num_local_experts",), ("num_experts_per_tok",), shared=1),
        width=width,
        shared_width=width,
        expert_path="feed_forward.experts",
        gate="feed_forward.router",
        shared_path="feed_forward.shared_expert",
    )
    shape = grouped_shape(config, qkv_bias=config.flag("attention_bias", default=False))
    hidden, vocab = shape.hidden, config.integer("vocab_size")
    chunk = config.integer("attention_chunk_size", default=8192)
    rope = config.integers("no_rope_layers") or tuple(int((index + 1) % 4 != 0) for index in range(layers))
    dense_width = config.integer("intermediate_size_mlp", default=width)
    prefix = "language_model.model." if config.where.endswith("text_config") else "model."
    inv.notes.append("chunked layers keep the whole sequence: vLLM's hybrid cache is off for them by default")
    inv.embedding(f"{prefix}embed_tokens", vocab, hidden)
    for index in range(layers):
        inv.layer = index
        path = f"{prefix}layers.{index}"
        # A layer with rotary positions attends within its chunk; the others see everything.
        window = chunk if index < len(rope) and rope[index] else None
        mixer = replace(
            grouped_attention(inv, f"{path}.self_attn", shape, window=window),
            keeps_all_tokens=window is not None,
        )
        if index in moe:
            _add_mixture(inv, path, hidden, mixture)
        else:
            gated_mlp(inv, f"{path}.feed_forward", hidden, dense_width)
        for norm in _NORMS:
            inv.vector(f"{path}.{norm}", hidden)
        inv.layer_done(mixer, "moe" if index in moe else "dense")
    inv.vector(f"{prefix}norm", hidden)
    inv.head("language_model.lm_head", vocab, hidden, tied=tied(config))
    return Outline(
        hidden_size=hidden,
        vocab_size=vocab,
        query_heads=shape.query_heads,
        max_context_tokens=context_length(config),
        widest_ffn=max(mixture.widest, dense_width),
        experts=mixture.experts,
    )


def read_gpt_oss(config: Config, inv: Inventory) -> Outline:
    """gpt-oss: biases and attention sinks, every second layer sliding, experts with biases in mxfp4."""
    layers = config.layers()
    spans = sliding_windows(config, layers)
    shape = grouped_shape(config, qkv_bias=True, out_bias=True)
    hidden, vocab = shape.hidden, config.integer("vocab_size")
    experts = _experts(config, ("num_local_experts",), ("num_experts_per_tok", "experts_per_token"))
    width = config.integer("intermediate_size")
    inv.embedding("model.embed_tokens", vocab, hidden)
    for index in range(layers):
        inv.layer = index
        path = f"model.layers.{index}"
        mixer = grouped_attention(inv, f"{path}.self_attn", shape, window=spans[index])
        inv.vector(f"{path}.self_attn.sinks", shape.query_heads, split=Split.COLUMN)
        router(inv, f"{path}.mlp.router", hidden, experts.routed)
        inv.vector(f"{path}.mlp.router.bias", experts.routed, Part.ROUTER)
        routed_experts(
            inv,
            f"{path}.mlp.experts",
            hidden=hidden,
            width=width,
            experts=experts.routed,
            per_token=experts.per_token,
            bias=True,
        )
        for norm in _NORMS:
            inv.vector(f"{path}.{norm}", hidden)
        inv.layer_done(mixer, "moe")
    inv.vector("model.norm", hidden)
    inv.head("lm_head", vocab, hidden, tied=tied(config))
    return Outline(
        hidden_size=hidden,
        vocab_size=vocab,
        query_heads=shape.query_heads,
        max_context_tokens=context_length(config),
        widest_ffn=width * experts.per_token,
        experts=experts,
    )


def _text_prefix(config: Config) -> str:
    return "model.language_model." if config.where.endswith("text_config") else "model."
