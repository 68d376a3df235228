"""Hybrids with recurrent layers: Gated DeltaNet (Qwen3-Next, 3.5), KDA (Kimi), Mamba-2 (Nemotron-H, Granite 4)."""

from penstock.errors import ConfigError
from penstock.model.architectures.latent import latent_shape
from penstock.model.architectures.outline import Outline, context_length, grouped_shape, tied
from penstock.model.attention import LatentAttention, RecurrentState, SequenceMixer
from penstock.model.blocks import (
    GroupedShape,
    gated_mlp,
    grouped_attention,
    latent_attention,
    plain_mlp,
    routed_experts,
    router,
)
from penstock.model.config import Config
from penstock.model.inventory import Inventory
from penstock.model.spec import Experts
from penstock.model.weight import Part, Split

_NORMS = ("input_layernorm", "post_attention_layernorm")
_STATE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "auto": 2}


def _experts(config: Config, routed: str, per_token: str, shared: int = 0) -> Experts:
    found = Experts(
        routed=config.integer(routed, high=2**16),
        per_token=config.integer(per_token, high=2**16),
        shared=shared,
    )
    if found.per_token > found.routed:
        raise ConfigError(f"{config.where}: {found.per_token} experts per token of {found.routed}")
    return found


def _state_bytes(config: Config, key: str, default: str) -> int:
    name = config.text(key, default=default)
    if name not in _STATE_BYTES:
        raise ConfigError(f"{config.where}: {key} '{name[:40]}' is not known")
    return _STATE_BYTES[name]


# ---- Gated DeltaNet: Qwen3-Next, Qwen3.5, Qwen3.6 ----


def read_qwen3_hybrid(config: Config, inv: Inventory) -> Outline:
    """Three linear-attention layers to each gated full-attention one; dense or with experts and a shared expert."""
    multimodal = config.where.endswith("text_config")
    prefix = "model.language_model." if multimodal else "model."
    layers, hidden, vocab = config.layers(), config.integer("hidden_size"), config.integer("vocab_size")
    kinds = config.per_layer("layer_types", layers) or _interval_kinds(config, layers)
    shape = grouped_shape(config, head_norm=True, output_gate=config.flag("attn_output_gate", default=True))
    experts = _experts(config, "num_experts", "num_experts_per_tok", shared=1) if config.has("num_experts") else None
    # Qwen3-Next states no dtype for its state and engines then use the model's; Qwen3.5 states float32.
    state_bytes = _state_bytes(config, "mamba_ssm_dtype", "auto")
    inv.embedding(f"{prefix}embed_tokens", vocab, hidden)
    for index in range(layers):
        inv.layer = index
        path = f"{prefix}layers.{index}"
        mixer: SequenceMixer
        if kinds[index] == "linear_attention":
            mixer = _gated_delta(inv, f"{path}.linear_attn", config, fused=not multimodal, state_bytes=state_bytes)
        else:
            mixer = grouped_attention(inv, f"{path}.self_attn", shape)
        _qwen_feed_forward(inv, f"{path}.mlp", config, hidden, experts)
        for norm in _NORMS:
            inv.vector(f"{path}.{norm}", hidden)
        inv.layer_done(mixer, "moe" if experts else "dense")
    inv.vector(f"{prefix}norm", hidden)
    inv.head("lm_head", vocab, hidden, tied=tied(config))
    _qwen_next_token(config, inv, shape, experts)
    widest = config.integer("intermediate_size", default=0, low=0)
    if experts is not None:
        widest = config.integer("moe_intermediate_size") * experts.per_token
    return Outline(
        hidden_size=hidden,
        vocab_size=vocab,
        query_heads=shape.query_heads,
        max_context_tokens=context_length(config),
        widest_ffn=widest,
        experts=experts,
    )


def _interval_kinds(config: Config, layers: int) -> tuple[str, ...]:
    every = config.integer("full_attention_interval", default=4)
    return tuple("full_attention" if (index + 1) % every == 0 else "linear_attention" for index in range(layers))


def _gated_delta(inv: Inventory, path: str, config: Config, *, fused: bool, state_bytes: int) -> RecurrentState:
    hidden = config.integer("hidden_size")
    key_heads = config.integer("linear_num_key_heads", high=2**16)
    value_heads = config.integer("linear_num_value_heads", high=2**16)
    key_dim, value_dim = config.integer("linear_key_head_dim"), config.integer("linear_value_head_dim")
    taps = config.integer("linear_conv_kernel_dim", high=4096)
    keys, values = key_heads * key_dim, value_heads * value_dim
    conv = 2 * keys + values
    pieces = (
        (("in_proj_qkvz", conv + values), ("in_proj_ba", 2 * value_heads))
        if fused
        else (
            ("in_proj_qkv", conv),
            ("in_proj_z", values),
            ("in_proj_b", value_heads),
            ("in_proj_a", value_heads),
        )
    )
    for name, width in pieces:
        inv.linear(f"{path}.{name}", (width, hidden), Part.ATTENTION, split=Split.COLUMN)
    inv.vector(f"{path}.conv1d", (conv, 1, taps), Part.ATTENTION, split=Split.COLUMN)
    inv.vector(f"{path}.A_log", value_heads, Part.ATTENTION, split=Split.COLUMN, fp32=True)
    inv.vector(f"{path}.dt_bias", value_heads, Part.ATTENTION, split=Split.COLUMN)
    inv.vector(f"{path}.norm", value_dim, fp32=True)
    inv.linear(f"{path}.out_proj", (hidden, values), Part.ATTENTION, split=Split.ROW, units=value_heads)
    return RecurrentState(
        kind_name="gated_delta",
        heads=value_heads,
        state_shape=(value_dim, key_dim),
        state_bytes_per_element=state_bytes,
        conv_channels=conv,
        conv_taps=taps - 1,
    )


def _qwen_feed_forward(inv: Inventory, path: str, config: Config, hidden: int, experts: Experts | None) -> None:
    if experts is None:
        gated_mlp(inv, path, hidden, config.integer("intermediate_size"))
        return
    router(inv, f"{path}.gate", hidden, experts.routed)
    routed_experts(
        inv,
        f"{path}.experts",
        hidden=hidden,
        width=config.integer("moe_intermediate_size"),
        experts=experts.routed,
        per_token=experts.per_token,
    )
    shared = config.integer("shared_expert_intermediate_size")
    gated_mlp(inv, f"{path}.shared_expert", hidden, shared, Part.SHARED_EXPERTS)
    inv.vector(f"{path}.shared_expert_gate", (1, hidden), Part.ROUTER)


def _qwen_next_token(config: Config, inv: Inventory, shape: GroupedShape, experts: Experts | None) -> None:
    hidden = shape.hidden
    # Qwen3-Next carries one such layer without stating it.
    stated = config.has("mtp_num_hidden_layers")
    default = 0 if stated or config.text("model_type", default="") != "qwen3_next" else 1
    count = config.integer("mtp_num_hidden_layers", default=default, low=0, high=64)
    if not count:
        return
    inv.part_override = Part.MTP
    inv.linear("mtp.fc", (hidden, 2 * hidden), Part.ATTENTION, split=Split.COLUMN)
    for norm in ("norm", "pre_fc_norm_hidden", "pre_fc_norm_embedding"):
        inv.vector(f"mtp.{norm}", hidden)
    for index in range(count):
        path = f"mtp.layers.{index}"
        grouped_attention(inv, f"{path}.self_attn", shape)
        _qwen_feed_forward(inv, f"{path}.mlp", config, hidden, experts)
        for norm in _NORMS:
            inv.vector(f"{path}.{norm}", hidden)
    inv.part_override = None


# ---- Kimi Delta Attention: Kimi Linear, Kimi K3 ----


def read_kimi_linear(config: Config, inv: Inventory) -> Outline:
    """KDA layers with a latent-attention layer every few; K3 adds gates, a latent mixture and residual attention."""
    prefix = "language_model.model." if config.where.endswith("text_config") else "model."
    layers, hidden, vocab = config.layers(), config.integer("hidden_size"), config.integer("vocab_size")
    linear = config.section("linear_attn_config")
    # Layer numbers in this section start at one.
    kda = {number - 1 for number in linear.integers("kda_layers")}
    if len(kda) + len(linear.integers("full_attn_layers")) != layers:
        raise ConfigError(f"{config.where}: kda_layers and full_attn_layers must name {layers} layers together")
    shared = config.integer("num_shared_experts", default=0, low=0, high=1024)
    experts = _experts(config, "num_experts", "num_experts_per_token", shared=shared)
    first = config.integer("first_k_dense_replace", default=0, low=0)
    residual = config.has("attn_res_block_size")
    inv.embedding(f"{prefix}embed_tokens", vocab, hidden)
    for index in range(layers):
        inv.layer = index
        path = f"{prefix}layers.{index}"
        mixer: SequenceMixer
        if index in kda:
            mixer = _kimi_delta(inv, f"{path}.self_attn", linear, hidden)
        else:
            mixer = _kimi_latent(inv, f"{path}.self_attn", config)
        if index < first:
            gated_mlp(inv, f"{path}.mlp", hidden, config.integer("intermediate_size"))
        else:
            _kimi_mixture(inv, f"{path}.block_sparse_moe", config, hidden, experts)
        for norm in (*_NORMS, *(("self_attention_res_norm", "mlp_res_norm") if residual else ())):
            inv.vector(f"{path}.{norm}", hidden)
        for name in ("self_attention_res_proj", "mlp_res_proj") if residual else ():
            inv.vector(f"{path}.{name}", (1, hidden))
        inv.layer_done(mixer, "dense" if index < first else "moe")
    inv.vector(f"{prefix}norm", hidden)
    if residual:
        inv.vector(f"{prefix}output_attn_res_norm", hidden)
        inv.vector(f"{prefix}output_attn_res_proj", (1, hidden))
    inv.head(f"{prefix.removesuffix('model.')}lm_head", vocab, hidden, tied=tied(config))
    width = config.integer("moe_intermediate_size")
    return Outline(
        hidden_size=hidden,
        vocab_size=vocab,
        query_heads=config.integer("num_attention_heads", high=2**16),
        max_context_tokens=context_length(config),
        widest_ffn=max(width * (experts.per_token + shared), config.integer("intermediate_size")),
        experts=experts,
    )


def _kimi_delta(inv: Inventory, path: str, linear: Config, hidden: int) -> RecurrentState:
    heads, head_dim = linear.integer("num_heads", high=2**16), linear.integer("head_dim")
    taps, width = linear.integer("short_conv_kernel_size", high=4096), heads * head_dim
    full_gate = linear.flag("use_full_rank_gate", default=False)
    for name in ("q", "k", "v"):
        inv.linear(f"{path}.{name}_proj", (width, hidden), Part.ATTENTION, split=Split.COLUMN, units=heads)
        inv.vector(f"{path}.{name}_conv1d", (width, 1, taps), Part.ATTENTION, split=Split.COLUMN, fp32=full_gate)
    inv.vector(f"{path}.A_log", head_dim if full_gate else heads, Part.ATTENTION, split=Split.COLUMN, fp32=True)
    inv.vector(f"{path}.dt_bias", width, Part.ATTENTION, split=Split.COLUMN, fp32=True)
    inv.linear(f"{path}.f_a_proj", (head_dim, hidden), Part.ATTENTION)
    inv.linear(f"{path}.f_b_proj", (width, head_dim), Part.ATTENTION, split=Split.COLUMN, units=heads)
    inv.linear(f"{path}.b_proj", (heads, hidden), Part.ATTENTION, split=Split.COLUMN)
    if full_gate:
        inv.linear(f"{path}.g_proj", (width, hidden), Part.ATTENTION, split=Split.COLUMN, units=heads)
    else:
        inv.linear(f"{path}.g_a_proj", (head_dim, hidden), Part.ATTENTION)
        inv.linear(f"{path}.g_b_proj", (width, head_dim), Part.ATTENTION, split=Split.COLUMN, units=heads)
    inv.vector(f"{path}.o_norm", head_dim, fp32=True)
    inv.linear(f"{path}.o_proj", (hidden, width), Part.ATTENTION, split=Split.ROW, units=heads)
    return RecurrentState(
        kind_name="kda",
        heads=heads,
        state_shape=(head_dim, head_dim),
        state_bytes_per_element=4,
        conv_channels=3 * width,
        conv_taps=taps - 1,
    )


def _kimi_latent(inv: Inventory, path: str, config: Config) -> LatentAttention:
    shape = latent_shape(config)
    mixer = latent_attention(inv, path, shape)
    if config.flag("mla_use_output_gate", default=False):
        inv.linear(
            f"{path}.g_proj",
            (shape.heads * shape.value, shape.hidden),
            Part.ATTENTION,
            split=Split.COLUMN,
            units=shape.heads,
        )
    return mixer


def _kimi_mixture(inv: Inventory, path: str, config: Config, hidden: int, experts: Experts) -> None:
    width = config.integer("moe_intermediate_size")
    latent = config.integer("routed_expert_hidden_size", default=hidden)
    router(inv, f"{path}.gate", hidden, experts.routed, correction_bias=f"{path}.gate.e_score_correction_bias")
    routed_experts(
        inv,
        f"{path}.experts",
        hidden=latent,
        width=width,
        experts=experts.routed,
        per_token=experts.per_token,
        names=("w1", "w3", "w2"),
    )
    if experts.shared:
        gated_mlp(inv, f"{path}.shared_experts", hidden, width * experts.shared, Part.SHARED_EXPERTS)
    if latent != hidden:
        _latent_mixture(
            inv,
            (f"{path}.routed_expert_down_proj", f"{path}.routed_expert_up_proj"),
            hidden,
            latent,
        )
        if config.flag("latent_moe_use_norm", default=False):
            inv.vector(f"{path}.routed_expert_norm", latent)


def _latent_mixture(inv: Inventory, names: tuple[str, str], hidden: int, latent: int) -> None:
    """Projections into and out of the experts' narrower space; engines replicate them on every device."""
    inv.linear(names[0], (latent, hidden), Part.ROUTER)
    inv.linear(names[1], (hidden, latent), Part.ROUTER)


# ---- Mamba: Nemotron-H, Granite 4, Mamba 2 ----

_NEMOTRON_KINDS = {"mamba": "M", "moe": "E", "attention": "*", "mlp": "-"}


def read_nemotron_h(config: Config, inv: Inventory) -> Outline:
    """Each layer is one block: Mamba-2 (M), attention (*), feed-forward (-) or experts (E)."""
    pattern = _nemotron_pattern(config, "hybrid_override_pattern", "layers_block_type")
    if not pattern:
        raise ConfigError(f"{config.where}: hybrid_override_pattern or layers_block_type is missing")
    hidden, vocab = config.integer("hidden_size"), config.integer("vocab_size")
    shape = _nemotron_attention_shape(config)
    experts = None
    if "E" in pattern:
        shared = config.integer("n_shared_experts", default=0, low=0, high=1024)
        experts = _experts(config, "n_routed_experts", "num_experts_per_tok", shared=shared)
    inv.embedding("backbone.embeddings", vocab, hidden)
    for index, kind in enumerate(pattern):
        inv.layer = index
        mixer = _nemotron_block(inv, f"backbone.layers.{index}", kind, config, shape, experts)
        inv.layer_done(mixer, {"E": "moe", "-": "dense"}.get(kind, "none"))
    inv.vector("backbone.norm_f", hidden)
    inv.head("lm_head", vocab, hidden, tied=tied(config))
    _nemotron_next_token(config, inv, shape, experts)
    widest = config.integer("intermediate_size", default=0, low=0)
    if experts is not None:
        widest = config.integer("moe_intermediate_size") * experts.per_token
    return Outline(
        hidden_size=hidden,
        vocab_size=vocab,
        query_heads=shape.query_heads,
        max_context_tokens=context_length(config),
        widest_ffn=widest,
        experts=experts,
    )


def _nemotron_attention_shape(config: Config) -> GroupedShape:
    head_dim = config.integer("head_dim", "attention_head_dim")
    return grouped_shape(config, head_dim=head_dim)


def _nemotron_pattern(config: Config, text_key: str, list_key: str) -> str:
    text = config.raw.get(text_key)
    if text is not None and not isinstance(text, str):
        raise ConfigError(f"{config.where}: {text_key} must be a string")
    names = config.texts(list_key)
    pattern = text or "".join(_NEMOTRON_KINDS.get(name, "?") for name in names)
    if not set(pattern) <= set("M*-E") or len(pattern) > 1024:  # noqa: PLR2004 - layers of any known model
        raise ConfigError(f"{config.where}: {text_key} must be a string of M, *, - and E")
    return pattern


def _nemotron_block(
    inv: Inventory, path: str, kind: str, config: Config, shape: GroupedShape, experts: Experts | None
) -> SequenceMixer | None:
    inv.vector(f"{path}.norm", shape.hidden)
    mixer = f"{path}.mixer"
    if kind == "M":
        return _mamba2(inv, mixer, config)
    if kind == "*":
        return grouped_attention(inv, mixer, shape)
    if kind == "-":
        plain_mlp(inv, mixer, shape.hidden, config.integer("intermediate_size"))
    elif experts is not None:
        _nemotron_mixture(inv, mixer, config, shape.hidden, experts)
    return None


def _mamba2(inv: Inventory, path: str, config: Config) -> RecurrentState:
    hidden = config.integer("hidden_size")
    heads = config.integer("mamba_num_heads", "mamba_n_heads", "num_heads", high=2**16)
    head_dim = config.integer("mamba_head_dim", "mamba_d_head", "head_dim")
    groups = config.integer("n_groups", "mamba_n_groups", default=1, high=2**16)
    state = config.integer("ssm_state_size", "mamba_d_state", "state_size")
    taps = config.integer("conv_kernel", "mamba_d_conv", default=4, high=4096)
    inner = heads * head_dim
    bias = config.flag("mamba_proj_bias", default=config.flag("use_bias", default=False))
    # One stored matrix; its parts split differently: z, x and dt by head, B and C by group.
    for width, units in ((2 * inner, heads), (2 * groups * state, groups), (heads, heads)):
        inv.linear(f"{path}.in_proj", (width, hidden), Part.ATTENTION, split=Split.COLUMN, units=units, bias=bias)
    for width, units in ((inner, heads), (2 * groups * state, groups)):
        inv.vector(f"{path}.conv1d", (width, 1, taps), Part.ATTENTION, split=Split.COLUMN, units=units)
        if config.flag("use_conv_bias", default=config.flag("mamba_conv_bias", default=True)):
            inv.vector(f"{path}.conv1d.bias", width, Part.ATTENTION, split=Split.COLUMN, units=units)
    for name in ("A_log", "D", "dt_bias"):
        inv.vector(f"{path}.{name}", heads, Part.ATTENTION, split=Split.COLUMN)
    inv.vector(f"{path}.norm", inner, split=Split.COLUMN, units=heads)
    inv.linear(f"{path}.out_proj", (hidden, inner), Part.ATTENTION, split=Split.ROW, units=heads, bias=bias)
    default = "float32" if config.text("model_type", default="") == "nemotron_h" else "auto"
    return RecurrentState(
        kind_name="mamba2",
        heads=heads,
        state_shape=(head_dim, state),
        state_bytes_per_element=_state_bytes(config, "mamba_ssm_cache_dtype", default),
        conv_channels=inner + 2 * groups * state,
        conv_taps=taps - 1,
    )


def _nemotron_mixture(inv: Inventory, path: str, config: Config, hidden: int, experts: Experts) -> None:
    latent = config.integer("moe_latent_size", default=hidden)
    router(inv, f"{path}.gate", hidden, experts.routed, correction_bias=f"{path}.gate.e_score_correction_bias")
    if latent != hidden:
        _latent_mixture(inv, (f"{path}.fc1_latent_proj", f"{path}.fc2_latent_proj"), hidden, latent)
    routed_experts(
        inv,
        f"{path}.experts",
        hidden=latent,
        width=config.integer("moe_intermediate_size"),
        experts=experts.routed,
        per_token=experts.per_token,
        names=("up_proj", "down_proj"),
    )
    if experts.shared:
        width = config.integer("moe_shared_expert_intermediate_size") * experts.shared
        plain_mlp(inv, f"{path}.shared_experts", hidden, width, Part.SHARED_EXPERTS)


def _nemotron_next_token(config: Config, inv: Inventory, shape: GroupedShape, experts: Experts | None) -> None:
    if not config.integer("num_nextn_predict_layers", default=0, low=0, high=64):
        return
    inv.part_override = Part.MTP
    pattern = _nemotron_pattern(config, "mtp_hybrid_override_pattern", "mtp_layers_block_type")
    for index, kind in enumerate(pattern):
        _nemotron_block(inv, f"mtp.layers.{index}", kind, config, shape, experts)
    for norm in ("enorm", "hnorm", "final_layernorm"):
        inv.vector(f"mtp.layers.0.{norm}", shape.hidden)
    inv.linear("mtp.layers.0.eh_proj", (shape.hidden, 2 * shape.hidden), Part.ATTENTION, split=Split.COLUMN)
    inv.part_override = None


def read_granite_hybrid(config: Config, inv: Inventory) -> Outline:
    """Granite 4: Mamba-2 or attention, then experts and a shared feed-forward in every layer, tied embeddings."""
    layers, hidden, vocab = config.layers(), config.integer("hidden_size"), config.integer("vocab_size")
    kinds = config.per_layer("layer_types", layers) or config.per_layer("layers_block_type", layers)
    if not kinds or not set(kinds) <= {"mamba", "attention"}:
        raise ConfigError(f"{config.where}: layer_types must name every layer mamba or attention")
    shape = grouped_shape(config)
    experts = None
    if config.integer("num_local_experts", default=0, low=0, high=2**16):
        experts = _experts(config, "num_local_experts", "num_experts_per_tok", shared=1)
    shared = config.integer("shared_intermediate_size")
    width = config.integer("intermediate_size")
    inv.embedding("model.embed_tokens", vocab, hidden)
    for index in range(layers):
        inv.layer = index
        path = f"model.layers.{index}"
        mixer: SequenceMixer
        if kinds[index] == "mamba":
            mixer = _mamba2(inv, f"{path}.mamba", config)
        else:
            mixer = grouped_attention(inv, f"{path}.self_attn", shape)
        if experts is not None:
            router(inv, f"{path}.block_sparse_moe.router.layer", hidden, experts.routed)
            routed_experts(
                inv,
                f"{path}.block_sparse_moe",
                hidden=hidden,
                width=width,
                experts=experts.routed,
                per_token=experts.per_token,
            )
        gated_mlp(inv, f"{path}.shared_mlp", hidden, shared, Part.SHARED_EXPERTS if experts else Part.DENSE_FFN)
        for norm in _NORMS:
            inv.vector(f"{path}.{norm}", hidden)
        inv.layer_done(mixer, "moe" if experts else "dense")
    inv.vector("model.norm", hidden)
    inv.head("lm_head", vocab, hidden, tied=tied(config, default=True))
    return Outline(
        hidden_size=hidden,
        vocab_size=vocab,
        query_heads=shape.query_heads,
        max_context_tokens=context_length(config),
        widest_ffn=shared + (width * experts.per_token if experts else 0),
        experts=experts,
    )


def read_mamba2(config: Config, inv: Inventory) -> Outline:
    """Mamba-2: no attention at all."""
    layers, hidden = config.layers("num_hidden_layers", "n_layer"), config.integer("hidden_size")
    vocab = config.integer("vocab_size")
    inv.embedding("backbone.embeddings", vocab, hidden)
    for index in range(layers):
        inv.layer = index
        inv.vector(f"backbone.layers.{index}.norm", hidden)
        mixer = _mamba2(inv, f"backbone.layers.{index}.mixer", config)
        inv.layer_done(mixer, "none")
    inv.vector("backbone.norm_f", hidden)
    inv.head("lm_head", vocab, hidden, tied=tied(config))
    return Outline(
        hidden_size=hidden,
        vocab_size=vocab,
        query_heads=config.integer("num_heads", high=2**16),
        max_context_tokens=context_length(config),
        widest_ffn=config.integer("expand", default=2, high=64) * hidden,
    )
