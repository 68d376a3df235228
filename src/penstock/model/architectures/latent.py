"""Latent attention: DeepSeek V2, V3 and V3.2, Kimi K2, GLM-5, with and without the lightning indexer."""

from penstock.errors import ConfigError
from penstock.model.architectures.moe import mtp_join
from penstock.model.architectures.outline import Outline, context_length, tied
from penstock.model.attention import LatentAttention
from penstock.model.blocks import LatentShape, gated_mlp, latent_attention, routed_experts, router
from penstock.model.config import Config
from penstock.model.inventory import Inventory
from penstock.model.spec import Experts
from penstock.model.weight import Part

_NORMS = ("input_layernorm", "post_attention_layernorm")


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
    """DeepSeek V2/V3/R1 and Kimi K2 have every layer alike; V3.2 and GLM-5 add an indexer to some or all."""
    prefix = "language_model.model." if config.where.endswith("text_config") else "model."
    reader = _Latent(config, inv, prefix)
    inv.embedding(f"{prefix}embed_tokens", reader.vocab, reader.shape.hidden)
    for index in range(reader.layers):
        inv.layer = index
        mixer = reader.attention(index, indexed=reader.indexed[index])
        dense = index < reader.first_moe or (index % reader.moe_every != 0)
        reader.feed_forward(index, dense=dense)
        for norm in _NORMS:
            inv.vector(f"{prefix}layers.{index}.{norm}", reader.shape.hidden)
        inv.layer_done(mixer, "dense" if dense else "moe")
    inv.vector(f"{prefix}norm", reader.shape.hidden)
    inv.head(f"{prefix.removesuffix('model.')}lm_head", reader.vocab, reader.shape.hidden, tied=tied(config))
    outline = reader.outline()
    inv.part_override = Part.MTP
    for extra in range(config.integer("num_nextn_predict_layers", default=0, low=0, high=64)):
        index = reader.layers + extra
        reader.attention(index, indexed=reader.topk > 0)
        reader.feed_forward(index, dense=False)
        own_tables = config.text("model_type", default="") != "glm_moe_dsa"
        mtp_join(inv, f"{prefix}layers.{index}", outline, own_tables=own_tables)
    inv.part_override = None
    return outline


class _Latent:
    """The figures of one DeepSeek-family config, and its two blocks."""

    def __init__(self, config: Config, inv: Inventory, prefix: str) -> None:
        self.config, self.inv, self.prefix = config, inv, prefix
        self.shape = latent_shape(config)
        self.vocab, self.layers = config.integer("vocab_size"), config.layers()
        self.first_moe = config.integer("first_k_dense_replace", default=0, low=0)
        self.moe_every = config.integer("moe_layer_freq", default=1, high=1024)
        self.dense_width = config.integer("intermediate_size")
        self.width = config.integer("moe_intermediate_size")
        self.shared = config.integer("n_shared_experts", default=0, low=0, high=1024)
        self.experts = Experts(
            routed=config.integer("n_routed_experts", high=2**16),
            per_token=config.integer("num_experts_per_tok", high=2**16),
            shared=self.shared,
        )
        if self.experts.per_token > self.experts.routed:
            raise ConfigError(f"{config.where}: more experts per token than experts")
        self.topk = config.integer("index_topk", default=0, low=0)
        self.indexer = (
            (config.integer("index_n_heads", high=2**16), config.integer("index_head_dim"), self.topk)
            if self.topk
            else None
        )
        self.indexed = _indexed_layers(config, self.layers) if self.topk else (False,) * self.layers
        self.correction = config.text("topk_method", default="") == "noaux_tc" or config.has("scoring_func")

    def attention(self, index: int, *, indexed: bool) -> LatentAttention:
        return latent_attention(
            self.inv,
            f"{self.prefix}layers.{index}.self_attn",
            self.shape,
            indexer=self.indexer if indexed else None,
            sparse_topk=self.topk,
        )

    def feed_forward(self, index: int, *, dense: bool) -> None:
        path, hidden = f"{self.prefix}layers.{index}.mlp", self.shape.hidden
        if dense:
            gated_mlp(self.inv, path, hidden, self.dense_width)
            return
        bias = f"{path}.gate.e_score_correction_bias" if self.correction else None
        router(self.inv, f"{path}.gate", hidden, self.experts.routed, correction_bias=bias)
        routed_experts(
            self.inv,
            f"{path}.experts",
            hidden=hidden,
            width=self.width,
            experts=self.experts.routed,
            per_token=self.experts.per_token,
        )
        if self.shared:
            gated_mlp(self.inv, f"{path}.shared_experts", hidden, self.width * self.shared, Part.SHARED_EXPERTS)

    def outline(self) -> Outline:
        return Outline(
            hidden_size=self.shape.hidden,
            vocab_size=self.vocab,
            query_heads=self.shape.heads,
            max_context_tokens=context_length(self.config),
            widest_ffn=max(self.dense_width, self.width * (self.experts.per_token + self.shared)),
            experts=self.experts,
        )


def _indexed_layers(config: Config, layers: int) -> tuple[bool, ...]:
    """Which layers own an indexer; the others reuse the last one's choice (GLM-5.2 and after)."""
    types = config.per_layer("indexer_types", layers)
    if types:
        return tuple(kind == "full" for kind in types)
    every = config.integer("index_topk_freq", default=1, high=1024)
    offset = config.integer("index_skip_topk_offset", default=2, low=0, high=1024)
    return tuple(max(index - offset + 1, 0) % every == 0 for index in range(layers))
