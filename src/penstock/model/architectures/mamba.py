"""Reads models with Mamba-2 layers (Nemotron-H, Nemotron 3, Granite 4, Codestral Mamba), with or without attention."""

from penstock.errors import ConfigError
from penstock.model.architectures.decoder import Frame, add_decoder, mtp_weights
from penstock.model.architectures.mixture import Mixture, feed_forward, latent_projections, read_experts
from penstock.model.architectures.outline import Outline, figures, grouped_shape, state_bytes
from penstock.model.blocks import (
    GroupedShape,
    gated_mlp,
    grouped_attention,
    plain_mlp,
    routed_experts,
    router,
)
from penstock.model.config_json import Config
from penstock.model.inventory import Inventory
from penstock.model.model_spec import Experts
from penstock.model.sequence_mixers import RecurrentState, SequenceMixer
from penstock.model.weight import Part, Split

_NEMOTRON_KINDS = {"mamba": "M", "moe": "E", "attention": "*", "mlp": "-"}
_BACKBONE = Frame(prefix="backbone.", embedding="embeddings", norms=("norm",), final_norm="norm_f")


def read_mamba2(config: Config, inv: Inventory) -> Outline:
    """Read a pure Mamba-2 model, which has no attention."""
    hidden = config.integer("hidden_size")

    def layer(_: int, path: str) -> tuple[RecurrentState, str]:
        return _mamba2(inv, f"{path}.mixer", config), "none"

    outline = figures(
        config,
        hidden=hidden,
        query_heads=config.integer("num_heads", high=2**16),
        widest_ffn=config.integer("expand", default=2, high=64) * hidden,
    )
    layers = config.layers("num_hidden_layers", "n_layer")
    return add_decoder(config, inv, outline, layer, _BACKBONE, layers=layers)


def _mamba2(inv: Inventory, path: str, config: Config) -> RecurrentState:
    hidden = config.integer("hidden_size")
    heads = config.integer("mamba_num_heads", "mamba_n_heads", "num_heads", high=2**16)
    head_dim = config.integer("mamba_head_dim", "mamba_d_head", "head_dim")
    groups = config.integer("n_groups", "mamba_n_groups", default=1, high=2**16)
    state = config.integer("ssm_state_size", "mamba_d_state", "state_size")
    taps = config.integer("conv_kernel", "mamba_d_conv", default=4, high=4096)
    inner = heads * head_dim
    bias = config.flag("mamba_proj_bias", default=config.flag("use_bias", default=False))
    # The parts of this stored matrix are split differently: z, x and dt by head, B and C by group.
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
        state_bytes_per_element=state_bytes(config, "mamba_ssm_cache_dtype", default),
        conv_channels=inner + 2 * groups * state,
        conv_taps=taps - 1,
    )


def read_granite_hybrid(config: Config, inv: Inventory) -> Outline:
    """Read Granite 4.

    Each layer has either Mamba-2 or attention, followed by experts and a shared feed-forward. The embeddings are tied.
    """
    layers, hidden = config.layers(), config.integer("hidden_size")
    kinds = config.per_layer("layer_types", layers) or config.per_layer("layers_block_type", layers)
    if not kinds or not set(kinds) <= {"mamba", "attention"}:
        raise ConfigError(f"{config.where}: layer_types must call every layer `mamba` or `attention`")
    shape, mixture = grouped_shape(config), _granite_mixture(config)
    shared = config.integer("shared_intermediate_size")

    def layer(index: int, path: str) -> tuple[SequenceMixer, str]:
        mixer: SequenceMixer
        if kinds[index] == "mamba":
            mixer = _mamba2(inv, f"{path}.mamba", config)
        else:
            mixer = grouped_attention(inv, f"{path}.self_attn", shape)
        if mixture is not None:
            return mixer, feed_forward(inv, path, hidden, mixture)
        gated_mlp(inv, f"{path}.shared_mlp", hidden, shared)
        return mixer, "dense"

    if mixture is not None:
        outline = mixture.outline(config, hidden, shape.query_heads)
    else:
        outline = figures(config, hidden=hidden, query_heads=shape.query_heads, widest_ffn=shared)
    return add_decoder(config, inv, outline, layer, Frame(tied=True))


def _granite_mixture(config: Config) -> Mixture | None:
    width = config.integer("intermediate_size")
    if not config.integer("num_local_experts", default=0, low=0, high=2**16):
        return None
    return Mixture(
        experts=read_experts(config, ("num_local_experts",), shared=1),
        width=width,
        routed="block_sparse_moe",
        gate="block_sparse_moe.router.layer",
        shared="shared_mlp",
        shared_width=config.integer("shared_intermediate_size"),
    )


def read_nemotron_h(config: Config, inv: Inventory) -> Outline:
    """Read Nemotron-H. Each layer is one block of Mamba-2 (M), attention (*), feed-forward (-) or experts (E)."""
    pattern = _nemotron_pattern(config, "hybrid_override_pattern", "layers_block_type")
    if not pattern:
        raise ConfigError(f"{config.where}: hybrid_override_pattern or layers_block_type is missing")
    hidden = config.integer("hidden_size")
    shape = grouped_shape(config, head_dim=config.integer("head_dim", "attention_head_dim"))
    widest, experts = config.integer("intermediate_size", default=0, low=0), None
    if "E" in pattern:
        shared = config.integer("n_shared_experts", default=0, low=0, high=1024)
        experts = read_experts(config, ("n_routed_experts",), shared=shared)
        widest = config.integer("moe_intermediate_size") * experts.per_token

    def layer(index: int, path: str) -> tuple[SequenceMixer | None, str]:
        return _nemotron_block(inv, path, pattern[index], config, shape, experts)

    outline = figures(config, hidden=hidden, query_heads=shape.query_heads, widest_ffn=widest, experts=experts)
    add_decoder(config, inv, outline, layer, _BACKBONE, layers=len(pattern))
    _nemotron_next_token(config, inv, shape, experts)
    return outline


def _nemotron_pattern(config: Config, text_key: str, list_key: str) -> str:
    text = config.raw.get(text_key)
    if text is not None and not isinstance(text, str):
        raise ConfigError(f"{config.where}: {text_key} must be a string")
    names = config.texts(list_key)
    pattern = text or "".join(_NEMOTRON_KINDS.get(name, "?") for name in names)
    if not set(pattern) <= set("M*-E") or len(pattern) > 1024:  # layers of any known model
        raise ConfigError(f"{config.where}: {text_key} must contain only the letters M, *, - and E")
    return pattern


def _nemotron_block(
    inv: Inventory, path: str, kind: str, config: Config, shape: GroupedShape, experts: Experts | None
) -> tuple[SequenceMixer | None, str]:
    mixer = f"{path}.mixer"
    if kind == "M":
        return _mamba2(inv, mixer, config), "none"
    if kind == "*":
        return grouped_attention(inv, mixer, shape), "none"
    if kind == "-":
        plain_mlp(inv, mixer, shape.hidden, config.integer("intermediate_size"))
        return None, "dense"
    if experts is not None:
        _nemotron_mixture(inv, mixer, config, shape.hidden, experts)
    return None, "moe"


def _nemotron_mixture(inv: Inventory, path: str, config: Config, hidden: int, experts: Experts) -> None:
    latent = config.integer("moe_latent_size", default=hidden)
    router(inv, f"{path}.gate", hidden, experts.routed, correction_bias=f"{path}.gate.e_score_correction_bias")
    if latent != hidden:
        latent_projections(inv, f"{path}.fc1_latent_proj", f"{path}.fc2_latent_proj", hidden, latent)
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
    with mtp_weights(inv):
        pattern = _nemotron_pattern(config, "mtp_hybrid_override_pattern", "mtp_layers_block_type")
        for index, kind in enumerate(pattern):
            path = f"mtp.layers.{index}"
            inv.vector(f"{path}.norm", shape.hidden)
            _nemotron_block(inv, path, kind, config, shape, experts)
        for norm in ("enorm", "hnorm", "final_layernorm"):
            inv.vector(f"mtp.layers.0.{norm}", shape.hidden)
        inv.linear("mtp.layers.0.eh_proj", (shape.hidden, 2 * shape.hidden), Part.ATTENTION, split=Split.COLUMN)
