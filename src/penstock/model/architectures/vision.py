"""Reads the vision towers of Qwen2.5-VL, Qwen3-VL, Qwen3.5, Kimi (MoonViT), Gemma 3 (SigLIP) and MiniMax-M3."""

from collections.abc import Callable
from math import prod

from penstock.model.architectures.decoder import add_norm
from penstock.model.config_json import MAX_LAYERS, Config
from penstock.model.inventory import Inventory
from penstock.model.weight import Part, Split

Tower = Callable[[Config, Inventory, int], None]
"""Function that reads `vision_config` from the top-level config. The last argument is the text model's hidden size."""

_CLIP = "vision_tower.vision_model"
_NOT_COUNTED = "no vision_config: the vision tower is not counted"


def read_qwen25_vision(config: Config, inv: Inventory, text_hidden: int) -> None:
    """Read the tower of Qwen2.5-VL: gated blocks with biases and RMS norms, and one merger."""
    vision = config.optional("vision_config")
    if vision is None:
        inv.notes.append(_NOT_COUNTED)
        return
    hidden, width = vision.integer("hidden_size"), vision.integer("intermediate_size")
    patch = vision.integer("patch_size", "spatial_patch_size", high=4096)
    volume = vision.integer("in_chans", "in_channels", default=3) * vision.integer("temporal_patch_size", default=2)
    inv.vector("visual.patch_embed.proj", (hidden, volume * patch * patch))
    # The config of Qwen2.5-VL-32B leaves the depth to the default of Transformers.
    for index in range(vision.integer("depth", default=32, high=MAX_LAYERS)):
        path = f"visual.blocks.{index}"
        _column(inv, f"{path}.attn.qkv", (3 * hidden, hidden))
        _row(inv, f"{path}.attn.proj", (hidden, hidden))
        for name in ("gate_proj", "up_proj"):
            _column(inv, f"{path}.mlp.{name}", (width, hidden))
        _row(inv, f"{path}.mlp.down_proj", (hidden, width))
        for norm in ("norm1", "norm2"):
            inv.vector(f"{path}.{norm}", hidden)
    merged = hidden * vision.integer("spatial_merge_size", default=2, high=64) ** 2
    inv.vector("visual.merger.ln_q", hidden)
    _column(inv, "visual.merger.mlp.0", (merged, merged))
    _row(inv, "visual.merger.mlp.2", (vision.integer("out_hidden_size", default=text_hidden), merged))


def read_qwen3_vision(config: Config, inv: Inventory, text_hidden: int) -> None:
    """Read the tower of Qwen3-VL and Qwen3.5.

    The tower has biased blocks, a merger, and deepstack mergers if the config lists deepstack layers.
    """
    vision = config.optional("vision_config")
    if vision is None:
        inv.notes.append(_NOT_COUNTED)
        return
    hidden, width = vision.integer("hidden_size"), vision.integer("intermediate_size")
    patch = vision.integer("patch_size", high=4096)
    volume = vision.integer("in_channels", default=3) * vision.integer("temporal_patch_size", default=2)
    inv.vector("model.visual.patch_embed.proj", (hidden, volume * patch * patch))
    inv.vector("model.visual.patch_embed.proj.bias", hidden)
    inv.vector("model.visual.pos_embed", (vision.integer("num_position_embeddings"), hidden))
    for index in range(vision.layers("depth")):
        path = f"model.visual.blocks.{index}"
        _column(inv, f"{path}.attn.qkv", (3 * hidden, hidden))
        _row(inv, f"{path}.attn.proj", (hidden, hidden))
        _column(inv, f"{path}.mlp.linear_fc1", (width, hidden))
        _row(inv, f"{path}.mlp.linear_fc2", (hidden, width))
        for norm in ("norm1", "norm2"):
            add_norm(inv, f"{path}.{norm}", hidden, bias=True)
    merged = hidden * vision.integer("spatial_merge_size", default=2, high=64) ** 2
    out = vision.integer("out_hidden_size", default=text_hidden)
    deepstack = vision.integers("deepstack_visual_indexes")
    mergers = [("merger", hidden), *((f"deepstack_merger_list.{k}", merged) for k in range(len(deepstack)))]
    for name, norm_width in mergers:
        path = f"model.visual.{name}"
        add_norm(inv, f"{path}.norm", norm_width, bias=True)
        _column(inv, f"{path}.linear_fc1", (merged, merged))
        _row(inv, f"{path}.linear_fc2", (out, merged))


def read_moonvit(config: Config, inv: Inventory, text_hidden: int) -> None:
    """Read MoonViT. In Kimi K2.5, MoonViT has biases and layer norms.

    In K3, MoonViT has no biases and uses RMS norms.
    """
    vision = config.optional("vision_config")
    if vision is None:
        inv.notes.append(_NOT_COUNTED)
        return
    hidden, width = vision.integer("vt_hidden_size"), vision.integer("vt_intermediate_size")
    inner = vision.integer("qkv_hidden_size", default=hidden)
    bias = vision.flag("linear_bias", default=not vision.has("qkv_hidden_size"))
    for index in range(vision.layers("vt_num_hidden_layers")):
        path = f"vision_tower.encoder.blocks.{index}"
        _column(inv, f"{path}.wqkv", (3 * inner, hidden), bias=bias)
        _row(inv, f"{path}.wo", (hidden, inner), bias=bias)
        _column(inv, f"{path}.mlp.fc0", (width, hidden), bias=bias)
        _row(inv, f"{path}.mlp.fc1", (hidden, width), bias=bias)
        for norm in ("norm0", "norm1"):
            add_norm(inv, f"{path}.{norm}", hidden, bias=bias)
    add_norm(inv, "vision_tower.encoder.final_layernorm", hidden, bias=bias)
    _moonvit_ends(inv, vision, hidden, text_hidden, bias=bias)


def _moonvit_ends(inv: Inventory, vision: Config, hidden: int, text_hidden: int, *, bias: bool) -> None:
    """Add the patch embedding, and the projector from merged patches to text tokens."""
    patch = vision.integer("patch_size", high=4096)
    rows = vision.integer("init_pos_emb_height", high=4096)
    columns = vision.integer("init_pos_emb_width", high=4096)
    inv.vector("vision_tower.patch_embed.proj", (hidden, 3 * patch * patch))
    inv.vector("vision_tower.patch_embed.pos_emb", (rows * columns, hidden))
    if bias:
        inv.vector("vision_tower.patch_embed.proj.bias", hidden)
        add_norm(inv, "mm_projector.pre_norm", hidden, bias=True)
    else:
        inv.vector("mm_projector.post_norm", text_hidden)
    merged = hidden * prod(vision.integers("merge_kernel_size") or (2, 2))
    inv.linear("mm_projector.proj.0", (merged, merged), Part.VISION, bias=bias)
    inv.linear("mm_projector.proj.2", (text_hidden, merged), Part.VISION, bias=bias)


def read_siglip(config: Config, inv: Inventory, text_hidden: int) -> None:
    """Read the SigLIP tower of Gemma 3."""
    vision = config.optional("vision_config")
    if vision is None:
        inv.notes.append(_NOT_COUNTED)
        return
    hidden, patch = vision.integer("hidden_size"), vision.integer("patch_size", high=4096)
    image = vision.integer("image_size", default=896, high=65536)
    inv.vector(f"{_CLIP}.embeddings.patch_embedding", (hidden, 3 * patch * patch))
    inv.vector(f"{_CLIP}.embeddings.patch_embedding.bias", hidden)
    inv.vector(f"{_CLIP}.embeddings.position_embedding", ((image // patch) ** 2 or 1, hidden))
    _clip_blocks(inv, vision, hidden)
    add_norm(inv, f"{_CLIP}.post_layernorm", hidden, bias=True)
    inv.vector("multi_modal_projector.mm_input_projection_weight", (hidden, text_hidden))
    inv.vector("multi_modal_projector.mm_soft_emb_norm", hidden)


def read_minimax_vision(config: Config, inv: Inventory, text_hidden: int) -> None:
    """Read MiniMax-M3's CLIP-shaped tower, its projector and its patch merger."""
    vision = config.optional("vision_config")
    if vision is None:
        inv.notes.append("a text-only config: the published checkpoint's vision tower (0.9B) is not counted")
        return
    hidden, patch = vision.integer("hidden_size"), vision.integer("patch_size", high=4096)
    merging = vision.section("img_token_compression_config")
    merge = merging.integer("spatial_merge_size", high=64) ** 2
    frames = merging.integer("temporal_patch_size", default=2, high=64)
    wide = config.integer("projector_hidden_size")
    inv.vector(f"{_CLIP}.embeddings.patch_embedding", (hidden, 3 * frames * patch * patch), fp32=True)
    add_norm(inv, f"{_CLIP}.pre_layrnorm", hidden, bias=True)
    _clip_blocks(inv, vision, hidden)
    inv.linear("multi_modal_projector.linear_1", (wide, hidden), Part.VISION, bias=True)
    inv.linear("multi_modal_projector.linear_2", (text_hidden, wide), Part.VISION, bias=True)
    inv.linear("patch_merge_mlp.linear_1", (text_hidden, text_hidden * merge), Part.VISION, bias=True)
    inv.linear("patch_merge_mlp.linear_2", (text_hidden, text_hidden), Part.VISION, bias=True)


def _clip_blocks(inv: Inventory, vision: Config, hidden: int) -> None:
    width = vision.integer("intermediate_size")
    for index in range(vision.layers()):
        path = f"{_CLIP}.encoder.layers.{index}"
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            _column(inv, f"{path}.self_attn.{name}", (hidden, hidden))
        _column(inv, f"{path}.mlp.fc1", (width, hidden))
        _row(inv, f"{path}.mlp.fc2", (hidden, width))
        for norm in ("layer_norm1", "layer_norm2"):
            add_norm(inv, f"{path}.{norm}", hidden, bias=True)


def note_only(what: str) -> Tower:
    """Return a reader that adds no weights, but notes why the vision tower is not counted."""

    def note(config: Config, inv: Inventory, text_hidden: int) -> None:  # noqa: ARG001 - part of the type
        inv.notes.append(what)

    return note


def _column(inv: Inventory, path: str, shape: tuple[int, int], *, bias: bool = True) -> None:
    inv.linear(path, shape, Part.VISION, split=Split.COLUMN, bias=bias)


def _row(inv: Inventory, path: str, shape: tuple[int, int], *, bias: bool = True) -> None:
    inv.linear(path, shape, Part.VISION, split=Split.ROW, bias=bias)
