"""Reads Gemma 4.

Sliding and global layers have different head sizes. Keys can also be used as values. A layer with experts also has a
dense block.
"""

from dataclasses import replace

from penstock.errors import ConfigError
from penstock.model.architectures.decoder import SANDWICH_NORMS, Frame, add_layers
from penstock.model.architectures.outline import Outline, figures, sliding_windows
from penstock.model.blocks import GroupedShape, gated_mlp, grouped_attention, routed_experts
from penstock.model.config_json import Config
from penstock.model.inventory import Inventory
from penstock.model.model_spec import Experts
from penstock.model.sequence_mixers import GroupedAttention
from penstock.model.weight import Part

_MOE_NORMS = ("post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2")


def read_gemma4(config: Config, inv: Inventory) -> Outline:
    """Read the text model of Gemma 4. The vision tower is read separately."""
    layers, hidden = config.layers(), config.integer("hidden_size")
    if config.integer("hidden_size_per_layer_input", default=0, low=0):
        raise ConfigError(f"{config.where}: per-layer input embeddings (Gemma 4 E2B/E4B) cannot be read exactly yet")
    windows = sliding_windows(config)
    local, world = _shapes(config)
    experts, width = _experts(config), config.integer("intermediate_size")
    shared_from = layers - config.integer("num_kv_shared_layers", default=0, low=0)

    def layer(index: int, path: str) -> tuple[GroupedAttention, str]:
        shape = world if windows[index] is None else local
        mixer = grouped_attention(inv, f"{path}.self_attn", shape, window=windows[index])
        gated_mlp(inv, f"{path}.mlp", hidden, width)
        if experts is not None:
            _mixture(inv, path, config, hidden, experts)
        inv.vector(f"{path}.layer_scalar", 1)
        return replace(mixer, shares_cache=index >= shared_from), "moe" if experts else "dense"

    widest = width + (config.integer("moe_intermediate_size") * experts.per_token if experts else 0)
    outline = figures(config, hidden=hidden, query_heads=local.query_heads, widest_ffn=widest, experts=experts)
    frame = Frame(prefix="model.language_model.", norms=SANDWICH_NORMS)
    inv.embedding(f"{frame.prefix}embed_tokens", outline.vocab_size, hidden)
    add_layers(inv, hidden, layers, layer, frame)
    inv.vector(f"{frame.prefix}norm", hidden)
    # No output head is added here. If the wrapping config says that the head is not tied, `model_reader` adds it.
    return outline


def _shapes(config: Config) -> tuple[GroupedShape, GroupedShape]:
    heads, head_dim = config.integer("num_attention_heads", high=2**16), config.integer("head_dim")
    local = GroupedShape(
        hidden=config.integer("hidden_size"),
        query_heads=heads,
        kv_heads=config.integer("num_key_value_heads", high=2**16),
        head_dim=head_dim,
        value_dim=head_dim,
        head_norm=True,
    )
    key_is_value = config.flag("attention_k_eq_v", default=False)
    wide = config.integer("global_head_dim", default=head_dim)
    kv_heads = local.kv_heads
    if key_is_value:
        kv_heads = config.integer("num_global_key_value_heads", default=kv_heads, high=2**16)
    world = replace(local, kv_heads=kv_heads, head_dim=wide, value_dim=wide, value_is_key=key_is_value)
    return local, world


def _experts(config: Config) -> Experts | None:
    if not config.flag("enable_moe_block", default=False):
        return None
    return Experts(
        routed=config.integer("num_experts", high=2**16),
        per_token=config.integer("top_k_experts", high=2**16),
    )


def _mixture(inv: Inventory, path: str, config: Config, hidden: int, experts: Experts) -> None:
    inv.linear(f"{path}.router.proj", (experts.routed, hidden), Part.ROUTER)
    inv.vector(f"{path}.router.scale", hidden, Part.ROUTER)
    inv.vector(f"{path}.router.per_expert_scale", experts.routed, Part.ROUTER)
    routed_experts(
        inv,
        f"{path}.experts",
        hidden=hidden,
        width=config.integer("moe_intermediate_size"),
        experts=experts.routed,
        per_token=experts.per_token,
    )
    for norm in _MOE_NORMS:
        inv.vector(f"{path}.{norm}", hidden)


def read_gemma4_vision(config: Config, inv: Inventory, text_hidden: int) -> None:
    """Add the vision tower of Gemma 4. Engines run the whole tower on every device."""
    if config.has("audio_config"):
        raise ConfigError(f"{config.where}: the Gemma 4 audio tower cannot be read exactly yet")
    vision = config.optional("vision_config")
    if vision is None:
        return
    hidden, width = vision.integer("hidden_size"), vision.integer("intermediate_size")
    head_dim, patch = vision.integer("head_dim"), vision.integer("patch_size", high=4096)
    heads = vision.integer("num_attention_heads", high=2**16) * head_dim
    kv = vision.integer("num_key_value_heads", high=2**16) * head_dim
    tower = "model.vision_tower"
    inv.vector(f"{tower}.patch_embedder.input_proj", (hidden, 3 * patch * patch))
    positions = vision.integer("position_embedding_size")
    inv.vector(f"{tower}.patch_embedder.position_embedding_table", (2 * positions, hidden))
    shapes = {
        "self_attn.q_proj": (heads, hidden),
        "self_attn.k_proj": (kv, hidden),
        "self_attn.v_proj": (kv, hidden),
        "self_attn.o_proj": (hidden, heads),
        "mlp.gate_proj": (width, hidden),
        "mlp.up_proj": (width, hidden),
        "mlp.down_proj": (hidden, width),
    }
    for index in range(vision.layers()):
        path = f"{tower}.encoder.layers.{index}"
        for name, shape in shapes.items():
            inv.linear(f"{path}.{name}.linear", shape, Part.VISION)
        for norm in ("q_norm", "k_norm"):
            inv.vector(f"{path}.self_attn.{norm}", head_dim)
        for norm in SANDWICH_NORMS:
            inv.vector(f"{path}.{norm}", hidden)
    if vision.flag("standardize", default=False):
        inv.vector(f"{tower}.std_bias", hidden)
        inv.vector(f"{tower}.std_scale", hidden)
    inv.linear("model.embed_vision.embedding_projection", (text_hidden, hidden), Part.VISION)
