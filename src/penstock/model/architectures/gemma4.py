"""Gemma 4: sliding and global layers of different head sizes, keys reused as values, experts beside a dense block."""

from dataclasses import replace

from penstock.errors import ConfigError
from penstock.model.architectures.outline import Outline, context_length, sliding_windows
from penstock.model.attention import GroupedAttention
from penstock.model.blocks import GroupedShape, gated_mlp, grouped_attention, routed_experts
from penstock.model.config import Config
from penstock.model.inventory import Inventory
from penstock.model.spec import Experts
from penstock.model.weight import Part, Split

_NORMS = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)
_MOE_NORMS = ("post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2")


def read_gemma4(config: Config, inv: Inventory) -> Outline:
    """Read the text model; the vision tower is read apart."""
    prefix = "model.language_model."
    layers, hidden, vocab = config.layers(), config.integer("hidden_size"), config.integer("vocab_size")
    if config.integer("hidden_size_per_layer_input", default=0, low=0):
        raise ConfigError(f"{config.where}: per-layer input embeddings (Gemma 4 E2B/E4B) are not read exactly yet")
    spans = sliding_windows(config, layers)
    local, world = _shapes(config)
    experts = _experts(config)
    width = config.integer("intermediate_size")
    shared_from = layers - config.integer("num_kv_shared_layers", default=0, low=0)
    inv.embedding(f"{prefix}embed_tokens", vocab, hidden)
    for index in range(layers):
        inv.layer = index
        path = f"{prefix}layers.{index}"
        shape = world if spans[index] is None else local
        mixer = _attention(inv, f"{path}.self_attn", shape, spans[index])
        gated_mlp(inv, f"{path}.mlp", hidden, width)
        if experts is not None:
            _mixture(inv, path, config, hidden, experts)
        for norm in _NORMS:
            inv.vector(f"{path}.{norm}", hidden)
        inv.vector(f"{path}.layer_scalar", 1)
        inv.layer_done(replace(mixer, shares_cache=index >= shared_from), "moe" if experts else "dense")
    inv.vector(f"{prefix}norm", hidden)
    return Outline(
        hidden_size=hidden,
        vocab_size=vocab,
        query_heads=local.query_heads,
        max_context_tokens=context_length(config),
        widest_ffn=width + (config.integer("moe_intermediate_size") * experts.per_token if experts else 0),
        experts=experts,
    )


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


def _attention(inv: Inventory, path: str, shape: GroupedShape, window: int | None) -> GroupedAttention:
    return grouped_attention(inv, path, shape, window=window)


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
    """Add the vision tower: engines run it unsplit on every device."""
    if config.has("audio_config"):
        raise ConfigError(f"{config.where}: the Gemma 4 audio tower is not read exactly yet")
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
    for index in range(vision.layers()):
        path = f"{tower}.encoder.layers.{index}"
        shapes = {
            "q_proj": (heads, hidden),
            "k_proj": (kv, hidden),
            "v_proj": (kv, hidden),
            "o_proj": (hidden, heads),
        }
        for name, shape in shapes.items():
            inv.linear(f"{path}.self_attn.{name}.linear", shape, Part.VISION)
        inv.vector(f"{path}.self_attn.q_norm", head_dim)
        inv.vector(f"{path}.self_attn.k_norm", head_dim)
        for name in ("gate_proj", "up_proj"):
            inv.linear(f"{path}.mlp.{name}.linear", (width, hidden), Part.VISION, split=Split.REPLICATED)
        inv.linear(f"{path}.mlp.down_proj.linear", (hidden, width), Part.VISION)
        for norm in _NORMS:
            inv.vector(f"{path}.{norm}", hidden)
    if vision.flag("standardize", default=False):
        inv.vector(f"{tower}.std_bias", hidden)
        inv.vector(f"{tower}.std_scale", hidden)
    inv.linear("model.embed_vision.embedding_projection", (text_hidden, hidden), Part.VISION)
