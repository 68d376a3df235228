"""Reads mixtures of experts whose attention has the same shape in all layers.

The models are Mixtral, Qwen2-MoE, Qwen3-MoE, GLM-4.5, OLMoE, Phi-MoE and MiniMax-M2.
"""

from collections.abc import Callable

from penstock.model.architectures.decoder import (
    LLAMA,
    PRE_NORMS,
    Frame,
    add_decoder,
    join_mtp,
    mtp_weights,
)
from penstock.model.architectures.mixture import Mixture, feed_forward, mixtral_mixture, qwen_mixture, read_experts
from penstock.model.architectures.outline import (
    Outline,
    Windows,
    grouped_shape,
    stated_windows,
    text_prefix,
)
from penstock.model.blocks import GroupedShape, grouped_attention
from penstock.model.config_json import Config
from penstock.model.inventory import Inventory
from penstock.model.sequence_mixers import GroupedAttention
from penstock.model.weight import Split


def _decoder(
    config: Config,
    inv: Inventory,
    shape: GroupedShape,
    mixture: Mixture,
    frame: Frame = LLAMA,
    *,
    dense_layers: frozenset[int] = frozenset(),
    windows: Windows | None = None,
    other_weights: Callable[[str], None] | None = None,
) -> Outline:
    """Add grouped attention and a feed-forward to every layer.

    The feed-forward is dense in `dense_layers` and has experts in the other layers. `other_weights` adds weights that
    only some families have.
    """

    def layer(index: int, path: str) -> tuple[GroupedAttention, str]:
        window = windows[index] if windows else None
        mixer = grouped_attention(inv, f"{path}.self_attn", shape, window=window)
        if other_weights is not None:
            other_weights(path)
        return mixer, feed_forward(inv, path, shape.hidden, mixture, dense=index in dense_layers)

    outline = mixture.outline(config, shape.hidden, shape.query_heads)
    return add_decoder(config, inv, outline, layer, frame)


def read_mixtral(config: Config, inv: Inventory) -> Outline:
    """Read Mixtral: experts with the weights w1, w2 and w3 in every layer."""
    return _decoder(config, inv, grouped_shape(config), mixtral_mixture(config), windows=stated_windows(config))


def read_qwen3_moe(config: Config, inv: Inventory) -> Outline:
    """Read Qwen3-MoE: head norms and routed experts, without a shared expert.

    Layers are dense where the config says so.
    """
    step = config.integer("decoder_sparse_step", default=1)
    every = frozenset(index for index in range(config.layers()) if (index + 1) % step)
    dense = every | frozenset(config.integers("mlp_only_layers"))
    mixture = Mixture(
        experts=read_experts(config, ("num_experts",)),
        width=config.integer("moe_intermediate_size"),
        dense_width=config.integer("intermediate_size") if dense else 0,
    )
    shape = grouped_shape(config, head_norm=True, qkv_bias=config.flag("attention_bias", default=False))
    frame = Frame(prefix=text_prefix(config, "model.language_model."))
    return _decoder(config, inv, shape, mixture, frame, dense_layers=dense)


def read_qwen2_moe(config: Config, inv: Inventory) -> Outline:
    """Read Qwen2-MoE: biased attention, and one wide shared expert that has a gate."""
    return _decoder(config, inv, grouped_shape(config, qkv_bias=True), qwen_mixture(config))


def read_glm4_moe(config: Config, inv: Inventory) -> Outline:
    """Read GLM-4.5 to 4.7: biased attention, first layers dense, shared experts, one multi-token-prediction layer."""
    layers = config.layers()
    first = config.integer("first_k_dense_replace", default=0, low=0, high=2**16)
    shared = config.integer("n_shared_experts", default=0, low=0, high=2**16)
    width = config.integer("moe_intermediate_size")
    mixture = Mixture(
        experts=read_experts(config, ("n_routed_experts",), shared=shared),
        width=width,
        correction_bias="mlp.gate.e_score_correction_bias",
        shared_width=width * shared,
        dense_width=config.integer("intermediate_size"),
    )
    shape = grouped_shape(
        config,
        qkv_bias=config.flag("attention_bias", default=False),
        head_norm=config.flag("use_qk_norm", default=False),
    )
    outline = _decoder(config, inv, shape, mixture, dense_layers=frozenset(range(first)))
    with mtp_weights(inv):
        for extra in range(config.integer("num_nextn_predict_layers", default=0, low=0, high=2**16)):
            path = f"model.layers.{layers + extra}"
            grouped_attention(inv, f"{path}.self_attn", shape)
            feed_forward(inv, path, shape.hidden, mixture)
            join_mtp(inv, path, outline)
    return outline


def read_olmoe(config: Config, inv: Inventory) -> Outline:
    """Read OLMoE: routed experts in every layer, one norm across all query channels and one across all key channels."""
    shape = grouped_shape(config)
    mixture = Mixture(experts=read_experts(config, ("num_experts",)), width=config.integer("intermediate_size"))

    def channel_norms(path: str) -> None:
        inv.vector(f"{path}.self_attn.q_norm", shape.query_heads * shape.head_dim)
        inv.vector(f"{path}.self_attn.k_norm", shape.kv_heads * shape.head_dim)

    return _decoder(config, inv, shape, mixture, other_weights=channel_norms)


def read_phimoe(config: Config, inv: Inventory) -> Outline:
    """Read Phi-3.5-MoE: Mixtral's layout, with layer norms that have a bias.

    The config states whether other modules have biases.
    """
    bias = config.flag("attention_bias", default=False)
    shape = grouped_shape(config, qkv_bias=bias, out_bias=bias)

    def norm_biases(path: str) -> None:
        for norm in PRE_NORMS:
            inv.vector(f"{path}.{norm}.bias", shape.hidden)

    outline = _decoder(config, inv, shape, mixtral_mixture(config), other_weights=norm_biases)
    inv.vector("model.norm.bias", outline.hidden_size)
    if config.flag("lm_head_bias", default=False):
        inv.vector("lm_head.bias", outline.vocab_size)
    return outline


def read_minimax_m2(config: Config, inv: Inventory) -> Outline:
    """Read MiniMax-M2: experts in every layer, no shared expert, one norm across the channels of all heads."""
    shape = grouped_shape(config)
    mixture = mixtral_mixture(config, correction_bias="block_sparse_moe.e_score_correction_bias")

    def channel_norms(path: str) -> None:
        for name, heads in (("q_norm", shape.query_heads), ("k_norm", shape.kv_heads)):
            inv.vector(f"{path}.self_attn.{name}", heads * shape.head_dim, split=Split.COLUMN, units=heads)

    norms = channel_norms if config.flag("use_qk_norm", default=True) else None
    outline = _decoder(config, inv, shape, mixture, other_weights=norms)
    if config.has("num_mtp_modules"):
        inv.notes.append("the config names MTP modules, but the published checkpoint has none, so they are not counted")
    return outline
