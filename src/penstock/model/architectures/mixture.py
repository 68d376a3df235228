"""Describes the names and sizes of a family's feed-forward weights.

Feed-forward weights are routed experts, shared experts, and the dense blocks of layers without experts.
"""

from dataclasses import dataclass

from penstock.errors import ConfigError
from penstock.model.architectures.outline import Outline, figures
from penstock.model.blocks import gated_mlp, routed_experts, router
from penstock.model.config_json import Config
from penstock.model.inventory import Inventory
from penstock.model.model_spec import Experts
from penstock.model.weight import Part


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """Feed-forward of one model family. Every module name is a path relative to the path of the layer."""

    experts: Experts
    width: int
    expert_hidden: int | None = None
    """Width of the experts' input and output. None if this width is the model's hidden size."""
    routed: str = "mlp.experts"
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")
    gate: str = "mlp.gate"
    correction_bias: str | None = None
    shared: str = "mlp.shared_experts"
    shared_width: int = 0
    shared_gate: str | None = None
    dense: str = "mlp"
    dense_width: int = 0
    bias: bool = False
    """Whether the router and the routed experts have biases."""

    def outline(self, config: Config, hidden: int, query_heads: int) -> Outline:
        """Return the outline of a decoder with this feed-forward."""
        widest = max(self.dense_width, self.width * self.experts.per_token + self.shared_width)
        return figures(config, hidden=hidden, query_heads=query_heads, widest_ffn=widest, experts=self.experts)


def read_experts(
    config: Config,
    routed: tuple[str, ...],
    per_token: tuple[str, ...] = ("num_experts_per_tok",),
    shared: int = 0,
) -> Experts:
    """Read the number of experts and the number of experts per token.

    `routed` and `per_token` list the possible keys of the two numbers. The first key that is present is read.
    """
    experts = Experts(
        routed=config.integer(*routed, high=2**16),
        per_token=config.integer(*per_token, high=2**16),
        shared=shared,
    )
    if experts.per_token > experts.routed:
        raise ConfigError(
            f"{config.where}: {experts.per_token} experts per token exceed the {experts.routed} routed experts"
        )
    return experts


def mixtral_mixture(
    config: Config, *, correction_bias: str | None = None, shared: int = 0, dense_width: int = 0
) -> Mixture:
    """Read Mixtral's keys. The weights are w1, w2 and w3 under `block_sparse_moe`, and all experts are equally wide."""
    width = config.integer("intermediate_size")
    return Mixture(
        experts=read_experts(config, ("num_local_experts",), shared=shared),
        width=width,
        routed="block_sparse_moe.experts",
        names=("w1", "w3", "w2"),
        gate="block_sparse_moe.gate",
        correction_bias=correction_bias,
        shared="block_sparse_moe.shared_experts",
        shared_width=width * shared,
        dense_width=dense_width,
    )


def qwen_mixture(config: Config) -> Mixture:
    """Read Qwen's keys: routed experts, and one wide shared expert that has a gate."""
    return Mixture(
        experts=read_experts(config, ("num_experts",), shared=1),
        width=config.integer("moe_intermediate_size"),
        shared="mlp.shared_expert",
        shared_width=config.integer("shared_expert_intermediate_size"),
        shared_gate="mlp.shared_expert_gate",
    )


def feed_forward(inv: Inventory, path: str, hidden: int, mixture: Mixture, *, dense: bool = False) -> str:
    """Add a layer's feed-forward, and return its kind: dense or moe."""
    if dense:
        gated_mlp(inv, f"{path}.{mixture.dense}", hidden, mixture.dense_width)
        return "dense"
    gate, experts = f"{path}.{mixture.gate}", mixture.experts
    correction = None if mixture.correction_bias is None else f"{path}.{mixture.correction_bias}"
    router(inv, gate, hidden, experts.routed, correction_bias=correction)
    if mixture.bias:
        inv.vector(f"{gate}.bias", experts.routed, Part.ROUTER)
    routed_experts(
        inv,
        f"{path}.{mixture.routed}",
        hidden=mixture.expert_hidden or hidden,
        width=mixture.width,
        experts=experts.routed,
        per_token=experts.per_token,
        names=mixture.names,
        bias=mixture.bias,
    )
    if mixture.shared_width:
        gated_mlp(inv, f"{path}.{mixture.shared}", hidden, mixture.shared_width, Part.SHARED_EXPERTS)
    if mixture.shared_gate is not None:
        inv.vector(f"{path}.{mixture.shared_gate}", (1, hidden), Part.ROUTER)
    return "moe"


def latent_projections(inv: Inventory, down: str, up: str, hidden: int, latent: int) -> None:
    """Add the projections between the hidden size and the experts' narrower width.

    Engines replicate these projections on every device.
    """
    inv.linear(down, (latent, hidden), Part.ROUTER)
    inv.linear(up, (hidden, latent), Part.ROUTER)
