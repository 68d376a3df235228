"""Reads models with latent attention (DeepSeek V2, V3 and V3.2, Kimi K2 and GLM-5)."""

from penstock.errors import ConfigError
from penstock.model.architectures.decoder import Frame, add_decoder, join_mtp, mtp_weights
from penstock.model.architectures.mixture import Mixture, feed_forward
from penstock.model.architectures.outline import Outline, text_prefix
from penstock.model.blocks import LatentShape, latent_attention
from penstock.model.config_json import Config
from penstock.model.inventory import Inventory
from penstock.model.model_spec import Experts
from penstock.model.sequence_mixers import LatentAttention


def latent_shape(config: Config) -> LatentShape:
    """Read the shape of a latent attention block."""
    return LatentShape(
        hidden=config.integer("hidden_size"),
        heads=config.integer("num_attention_heads", high=2**16),
        latent=config.integer("kv_lora_rank"),
        rope=config.integer("qk_rope_head_dim"),
        nope=config.integer("qk_nope_head_dim"),
        value=config.integer("v_head_dim"),
        query_latent=config.integer("q_lora_rank") if config.has("q_lora_rank") else None,
        bias=config.flag("attention_bias", default=False),
    )


def read_deepseek(config: Config, inv: Inventory) -> Outline:
    """Read DeepSeek V2, V3, R1 and V3.2, Kimi K2 and GLM-5.

    V3.2 and GLM-5 add a lightning indexer to some or all layers. In the other models, all attention layers have the
    same shape.
    """
    shape, layers, mixture = latent_shape(config), config.layers(), _mixture(config)
    first_moe = config.integer("first_k_dense_replace", default=0, low=0)
    moe_every = config.integer("moe_layer_freq", default=1, high=1024)
    topk = config.integer("index_topk", default=0, low=0)
    indexer, indexed = None, (False,) * layers
    if topk:
        indexer = (config.integer("index_n_heads", high=2**16), config.integer("index_head_dim"), topk)
        indexed = _indexed_layers(config, layers)

    def layer(index: int, path: str) -> tuple[LatentAttention, str]:
        own = indexer if indexed[index] else None
        mixer = latent_attention(inv, f"{path}.self_attn", shape, indexer=own, sparse_topk=topk)
        dense = index < first_moe or index % moe_every != 0
        return mixer, feed_forward(inv, path, shape.hidden, mixture, dense=dense)

    prefix = text_prefix(config, "language_model.model.")
    frame = Frame(prefix=prefix, head=f"{prefix.removesuffix('model.')}lm_head")
    outline = add_decoder(config, inv, mixture.outline(config, shape.hidden, shape.heads), layer, frame)
    with mtp_weights(inv):
        for extra in range(config.integer("num_nextn_predict_layers", default=0, low=0, high=64)):
            path = f"{prefix}layers.{layers + extra}"
            latent_attention(inv, f"{path}.self_attn", shape, indexer=indexer, sparse_topk=topk)
            feed_forward(inv, path, shape.hidden, mixture)
            own_tables = config.text("model_type", default="") != "glm_moe_dsa"
            join_mtp(inv, path, outline, own_tables=own_tables)
    return outline


def _mixture(config: Config) -> Mixture:
    width = config.integer("moe_intermediate_size")
    experts = Experts(
        routed=config.integer("n_routed_experts", high=2**16),
        per_token=config.integer("num_experts_per_tok", high=2**16),
        shared=config.integer("n_shared_experts", default=0, low=0, high=1024),
    )
    if experts.per_token > experts.routed:
        raise ConfigError(f"{config.where}: num_experts_per_tok must not exceed n_routed_experts")
    corrected = config.text("topk_method", default="") == "noaux_tc" or config.has("scoring_func")
    return Mixture(
        experts=experts,
        width=width,
        correction_bias="mlp.gate.e_score_correction_bias" if corrected else None,
        shared_width=width * experts.shared,
        dense_width=config.integer("intermediate_size"),
    )


def _indexed_layers(config: Config, layers: int) -> tuple[bool, ...]:
    """Return for each layer whether it has its own indexer.

    In GLM-5.2 and later, a layer without an indexer reuses the selection of an earlier layer.
    """
    types = config.per_layer("indexer_types", layers)
    if types:
        return tuple(kind == "full" for kind in types)
    every = config.integer("index_topk_freq", default=1, high=1024)
    offset = config.integer("index_skip_topk_offset", default=2, low=0, high=1024)
    return tuple(max(index - offset + 1, 0) % every == 0 for index in range(layers))
