"""Assembles a decoder from an embedding, layers, a final norm and an output head.

Each model family adds its blocks to the layers.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from penstock.model.architectures.outline import Outline, ties_embeddings
from penstock.model.config_json import Config
from penstock.model.inventory import Inventory
from penstock.model.sequence_mixers import SequenceMixer
from penstock.model.weight import Part, Split

PRE_NORMS = ("input_layernorm", "post_attention_layernorm")
SANDWICH_NORMS = (*PRE_NORMS, "pre_feedforward_layernorm", "post_feedforward_layernorm")

LayerReader = Callable[[int, str], tuple[SequenceMixer | None, str]]
"""Function that adds the blocks of layer `index` under `path`. The function returns the layer's sequence mixer, and the
kind of the layer's feed-forward (dense, moe or none)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Names of a decoder's modules outside its attention and feed-forward blocks. The defaults are Llama's names."""

    prefix: str = "model."
    embedding: str = "embed_tokens"
    layers: str = "layers"
    norms: tuple[str, ...] = PRE_NORMS
    norm_bias: bool = False
    final_norm: str = "norm"
    head: str = "lm_head"
    tied: bool = False
    """Whether the output head is tied to the embedding if the config does not state `tie_word_embeddings`."""


LLAMA = Frame()


def add_decoder(
    config: Config,
    inv: Inventory,
    outline: Outline,
    layer: LayerReader,
    frame: Frame = LLAMA,
    *,
    layers: int | None = None,
) -> Outline:
    """Add the whole decoder and return its outline.

    `layers` is the number of layers. The argument is needed only if the config states the number under an unusual key.
    """
    hidden, vocab = outline.hidden_size, outline.vocab_size
    inv.embedding(f"{frame.prefix}{frame.embedding}", vocab, hidden)
    add_layers(inv, hidden, config.layers() if layers is None else layers, layer, frame)
    add_norm(inv, f"{frame.prefix}{frame.final_norm}", hidden, bias=frame.norm_bias)
    inv.head(frame.head, vocab, hidden, tied=ties_embeddings(config, default=frame.tied))
    return outline


def add_layers(inv: Inventory, hidden: int, layers: int, layer: LayerReader, frame: Frame) -> None:
    """Add the blocks and norms of each layer. The function `layer` of the model family adds the blocks."""
    for index in range(layers):
        inv.layer = index
        path = f"{frame.prefix}{frame.layers}.{index}"
        mixer, feed_forward = layer(index, path)
        for norm in frame.norms:
            add_norm(inv, f"{path}.{norm}", hidden, bias=frame.norm_bias)
        inv.layer_done(mixer, feed_forward)


def add_norm(inv: Inventory, path: str, width: int, *, bias: bool) -> None:
    """Add an RMS norm, or a layer norm if `bias` is true."""
    inv.vector(path, width)
    if bias:
        inv.vector(f"{path}.bias", width)


@contextmanager
def mtp_weights(inv: Inventory) -> Iterator[None]:
    """Assign all weights that are added inside the `with` statement to multi-token prediction."""
    inv.part_override = Part.MTP
    yield
    inv.part_override = None


def join_mtp(inv: Inventory, path: str, outline: Outline, *, own_tables: bool = True) -> None:
    """Add the weights that join a multi-token-prediction layer to the model.

    The joining weights are a projection and norms. If `own_tables` is true, the layer also has a separate embedding
    table and output head.
    """
    hidden, vocab = outline.hidden_size, outline.vocab_size
    inv.linear(f"{path}.eh_proj", (hidden, 2 * hidden), Part.ROUTER)
    for norm in (*PRE_NORMS, "enorm", "hnorm", "shared_head.norm"):
        inv.vector(f"{path}.{norm}", hidden)
    if own_tables:
        inv.embedding(f"{path}.embed_tokens", vocab, hidden)
        inv.linear(f"{path}.shared_head.head", (vocab, hidden), Part.LM_HEAD, split=Split.VOCAB)
