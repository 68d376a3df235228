"""Reads hybrid models, which have linear-attention layers and full-attention layers.

The linear attention is Gated DeltaNet (Qwen3-Next, Qwen3.5 and Qwen3.6) or Kimi Delta Attention (Kimi Linear and K3).
"""

from penstock.errors import ConfigError
from penstock.model.architectures.decoder import PRE_NORMS, Frame, add_decoder, mtp_weights
from penstock.model.architectures.latent import latent_shape
from penstock.model.architectures.mixture import (
    Mixture,
    feed_forward,
    latent_projections,
    qwen_mixture,
    read_experts,
)
from penstock.model.architectures.outline import Outline, figures, grouped_shape, is_nested, state_bytes, text_prefix
from penstock.model.blocks import GroupedShape, gated_mlp, grouped_attention, latent_attention
from penstock.model.config_json import Config
from penstock.model.inventory import Inventory
from penstock.model.sequence_mixers import LatentAttention, RecurrentState, SequenceMixer
from penstock.model.weight import Part, Split


def read_qwen3_hybrid(config: Config, inv: Inventory) -> Outline:
    """Read Qwen hybrids, which have three linear-attention layers for each gated full-attention layer.

    The feed-forward is either dense, or a mixture of routed experts and a shared expert.
    """
    layers, hidden = config.layers(), config.integer("hidden_size")
    kinds = config.per_layer("layer_types", layers) or _interval_kinds(config, layers)
    shape = grouped_shape(config, head_norm=True, output_gate=config.flag("attn_output_gate", default=True))
    mixture = qwen_mixture(config) if config.has("num_experts") else None

    def layer(index: int, path: str) -> tuple[SequenceMixer, str]:
        mixer: SequenceMixer
        if kinds[index] == "linear_attention":
            mixer = _gated_delta(inv, f"{path}.linear_attn", config, fused=not is_nested(config))
        else:
            mixer = grouped_attention(inv, f"{path}.self_attn", shape)
        return mixer, _qwen_feed_forward(inv, path, config, hidden, mixture)

    widest, experts = config.integer("intermediate_size", default=0, low=0), None
    if mixture is not None:
        widest, experts = mixture.width * mixture.experts.per_token, mixture.experts
    outline = figures(config, hidden=hidden, query_heads=shape.query_heads, widest_ffn=widest, experts=experts)
    add_decoder(config, inv, outline, layer, Frame(prefix=text_prefix(config, "model.language_model.")))
    _qwen_next_token(config, inv, shape, mixture)
    return outline


def _interval_kinds(config: Config, layers: int) -> tuple[str, ...]:
    every = config.integer("full_attention_interval", default=4)
    return tuple("full_attention" if (index + 1) % every == 0 else "linear_attention" for index in range(layers))


def _gated_delta(inv: Inventory, path: str, config: Config, *, fused: bool) -> RecurrentState:
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
        # Qwen3-Next states no dtype for its state, so engines use the model's dtype. Qwen3.5 states float32.
        state_bytes_per_element=state_bytes(config, "mamba_ssm_dtype", "auto"),
        conv_channels=conv,
        conv_taps=taps - 1,
    )


def _qwen_feed_forward(inv: Inventory, path: str, config: Config, hidden: int, mixture: Mixture | None) -> str:
    if mixture is not None:
        return feed_forward(inv, path, hidden, mixture)
    gated_mlp(inv, f"{path}.mlp", hidden, config.integer("intermediate_size"))
    return "dense"


def _qwen_next_token(config: Config, inv: Inventory, shape: GroupedShape, mixture: Mixture | None) -> None:
    hidden = shape.hidden
    # Qwen3-Next has one multi-token-prediction layer, but its config does not state it.
    stated = config.has("mtp_num_hidden_layers")
    default = 0 if stated or config.text("model_type", default="") != "qwen3_next" else 1
    count = config.integer("mtp_num_hidden_layers", default=default, low=0, high=64)
    if not count:
        return
    with mtp_weights(inv):
        inv.linear("mtp.fc", (hidden, 2 * hidden), Part.ATTENTION, split=Split.COLUMN)
        for norm in ("norm", "pre_fc_norm_hidden", "pre_fc_norm_embedding"):
            inv.vector(f"mtp.{norm}", hidden)
        for index in range(count):
            path = f"mtp.layers.{index}"
            grouped_attention(inv, f"{path}.self_attn", shape)
            _qwen_feed_forward(inv, path, config, hidden, mixture)
            for norm in PRE_NORMS:
                inv.vector(f"{path}.{norm}", hidden)


def read_kimi_linear(config: Config, inv: Inventory) -> Outline:
    """Read Kimi hybrids: Kimi Delta Attention (KDA) layers, and regularly a latent-attention layer.

    K3 adds gates, a latent mixture of experts and residual attention.
    """
    layers, hidden = config.layers(), config.integer("hidden_size")
    linear = config.section("linear_attn_config")
    # Layer numbers in this section start at one.
    kda = {number - 1 for number in linear.integers("kda_layers")}
    if len(kda) + len(linear.integers("full_attn_layers")) != layers:
        raise ConfigError(f"{config.where}: kda_layers and full_attn_layers together must list {layers} layers")
    mixture = _kimi_mixture(config, hidden)
    first = config.integer("first_k_dense_replace", default=0, low=0)
    residual = config.has("attn_res_block_size")

    def layer(index: int, path: str) -> tuple[SequenceMixer, str]:
        mixer: SequenceMixer
        if index in kda:
            mixer = _kimi_delta(inv, f"{path}.self_attn", linear, hidden)
        else:
            mixer = _kimi_latent(inv, f"{path}.self_attn", config)
        kind = feed_forward(inv, path, hidden, mixture, dense=index < first)
        if kind == "moe":
            _kimi_latent_experts(inv, f"{path}.block_sparse_moe", config, hidden)
        if residual:
            _residual_attention(inv, f"{path}.self_attention", hidden)
            _residual_attention(inv, f"{path}.mlp", hidden)
        return mixer, kind

    prefix = text_prefix(config, "language_model.model.")
    heads = config.integer("num_attention_heads", high=2**16)
    frame = Frame(prefix=prefix, head=f"{prefix.removesuffix('model.')}lm_head")
    outline = add_decoder(config, inv, mixture.outline(config, hidden, heads), layer, frame)
    if residual:
        _residual_attention(inv, f"{prefix}output_attn", hidden)
    return outline


def _residual_attention(inv: Inventory, path: str, hidden: int) -> None:
    inv.vector(f"{path}_res_norm", hidden)
    inv.vector(f"{path}_res_proj", (1, hidden))


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
        gates = (shape.heads * shape.value, shape.hidden)
        inv.linear(f"{path}.g_proj", gates, Part.ATTENTION, split=Split.COLUMN, units=shape.heads)
    return mixer


def _kimi_mixture(config: Config, hidden: int) -> Mixture:
    width = config.integer("moe_intermediate_size")
    shared = config.integer("num_shared_experts", default=0, low=0, high=1024)
    return Mixture(
        experts=read_experts(config, ("num_experts",), ("num_experts_per_token",), shared=shared),
        width=width,
        expert_hidden=config.integer("routed_expert_hidden_size", default=hidden),
        routed="block_sparse_moe.experts",
        names=("w1", "w3", "w2"),
        gate="block_sparse_moe.gate",
        correction_bias="block_sparse_moe.gate.e_score_correction_bias",
        shared="block_sparse_moe.shared_experts",
        shared_width=width * shared,
        dense_width=config.integer("intermediate_size"),
    )


def _kimi_latent_experts(inv: Inventory, path: str, config: Config, hidden: int) -> None:
    latent = config.integer("routed_expert_hidden_size", default=hidden)
    if latent == hidden:
        return
    latent_projections(inv, f"{path}.routed_expert_down_proj", f"{path}.routed_expert_up_proj", hidden, latent)
    if config.flag("latent_moe_use_norm", default=False):
        inv.vector(f"{path}.routed_expert_norm", latent)
