"""Reads the outline of a model: the figures that all decoder configs state under the same keys."""

from collections.abc import Callable
from dataclasses import dataclass

from penstock.errors import ConfigError, UnknownArchitecture
from penstock.model.blocks import GroupedShape
from penstock.model.cache_dtypes import CacheDtype
from penstock.model.config_json import Config
from penstock.model.inventory import Inventory
from penstock.model.model_spec import Experts

_STATE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "auto": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """Figures of a model that do not depend on the layout of its weights."""

    hidden_size: int
    vocab_size: int
    query_heads: int
    max_context_tokens: int | None
    widest_ffn: int
    experts: Experts | None = None
    cache_dtype: CacheDtype | None = None
    """Format in which engines store the cache regardless of the checkpoint's dtype. None if engines use the
    checkpoint's dtype or KV scheme."""


Reader = Callable[[Config, Inventory], Outline]
Windows = tuple[int | None, ...]
"""Window of each layer in tokens. None means full attention."""


def figures(
    config: Config, *, hidden: int, query_heads: int, widest_ffn: int, experts: Experts | None = None
) -> Outline:
    """Return the outline of a decoder. All configs use the same keys for vocabulary and context."""
    return Outline(
        hidden_size=hidden,
        vocab_size=config.integer("vocab_size"),
        query_heads=query_heads,
        max_context_tokens=context_length(config),
        widest_ffn=widest_ffn,
        experts=experts,
    )


def context_length(config: Config) -> int | None:
    """Return the maximum context length that the checkpoint states, or None."""
    # Command-R states 8,192 positions and a model_max_length of 131,072. Engines use model_max_length.
    keys = ("model_max_length", "max_position_embeddings", "max_sequence_length", "seq_length", "n_positions")
    if not any(config.has(key) for key in keys):
        return None
    return config.integer(*keys, high=2**40)


def ties_embeddings(config: Config, *, default: bool = False) -> bool:
    """Return whether the output head is the embedding table."""
    return config.flag("tie_word_embeddings", default=default)


def is_nested(config: Config) -> bool:
    """Return whether the decoder is the text model of a multimodal config."""
    return config.where.endswith("text_config")


def text_prefix(config: Config, nested: str) -> str:
    """Return the prefix of the decoder's module names.

    The prefix is `nested` if a multimodal config contains the decoder.
    """
    return nested if is_nested(config) else "model."


def grouped_shape(config: Config, **overrides: bool | int) -> GroupedShape:
    """Read the shape of grouped-query attention under its usual keys.

    If head_dim is missing, it is hidden_size divided by the number of heads.
    """
    hidden = config.integer("hidden_size", "n_embd", "d_model")
    heads = config.integer("num_attention_heads", "n_head", "n_heads", high=2**16)
    if not config.has("head_dim") and "head_dim" not in overrides and hidden % heads:
        raise ConfigError(f"{config.where}: without head_dim, hidden_size {hidden} must be a multiple of {heads} heads")
    head_dim = int(overrides.pop("head_dim", 0)) or config.integer("head_dim", default=max(1, hidden // heads))
    values: dict[str, bool | int] = {
        "hidden": hidden,
        "query_heads": heads,
        "kv_heads": config.integer("num_key_value_heads", default=heads, high=2**16),
        "head_dim": head_dim,
        "value_dim": head_dim,
    }
    return GroupedShape(**(values | overrides))  # type: ignore[arg-type]  # keys are checked by the dataclass


def stated_windows(config: Config) -> Windows:
    """Return each layer's window, for families that use a window whenever `sliding_window` is present."""
    return sliding_windows(config) if config.has("sliding_window") else (None,) * config.layers()


def sliding_windows(config: Config) -> Windows:
    """Return each layer's window from `layer_types`, or from the older pattern keys."""
    layers, stated = config.layers(), config.has("sliding_window")
    names = config.per_layer("layer_types", layers)
    if names:
        window = config.integer("sliding_window") if stated else None
        known = {"full_attention": None, "sliding_attention": window, "chunked_attention": window}
        unknown = sorted({name for name in names if name not in known})
        if unknown:
            named = f"layer_types '{unknown[0][:40]}'"
            raise UnknownArchitecture(f"{config.where}: {named} is not known for this architecture")
        if window is None and "sliding_attention" in names:
            raise ConfigError(f"{config.where}: layer_types names sliding layers but sliding_window is missing")
        return tuple(known[name] for name in names)
    if not stated or not config.flag("use_sliding_window", default=True):
        return (None,) * layers
    pattern, window = config.integer("sliding_window_pattern", default=1), config.integer("sliding_window")
    if pattern == 1:
        return (window,) * layers
    return tuple(None if (index + 1) % pattern == 0 else window for index in range(layers))


def state_bytes(config: Config, key: str, default: str) -> int:
    """Return the bytes of one element of a recurrent state.

    `key` is the config key of the state's dtype. `default` is the dtype if the key is absent.
    """
    name = config.text(key, default=default)
    if name not in _STATE_BYTES:
        raise ConfigError(f"{config.where}: {key} '{name[:40]}' is not a known dtype; known: {', '.join(_STATE_BYTES)}")
    return _STATE_BYTES[name]
