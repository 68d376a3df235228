"""Converts the bytes of config.json into a ModelSpec. Architectures that cannot be read exactly are refused."""

import difflib
import re

from penstock.errors import ConfigError, UnknownArchitecture
from penstock.model.architectures import ARCHITECTURES, UNREAD, Architecture, Outline
from penstock.model.cache_dtypes import CacheDtype
from penstock.model.config_json import Config, parse_json
from penstock.model.inventory import Inventory
from penstock.model.model_spec import ModelSpec
from penstock.model.quantisation import dtype_format, read_quantisation
from penstock.model.weight import BF16, FP16, FP32, Part, WeightFormat

_SUFFIX = re.compile(r"For(CausalLM|ConditionalGeneration)$")


def read_config(data: bytes, name: str, sidecar: bytes | None = None, *, where: str = "config.json") -> ModelSpec:
    """Read the bytes of config.json and, if given, of hf_quant_config.json. Errors start with `where`."""
    config = parse_json(data, where)
    other_weights = None if sidecar is None else parse_json(sidecar, "hf_quant_config.json")
    return read_model(config, name, other_weights)


def read_model(config: Config, name: str, sidecar: Config | None = None) -> ModelSpec:
    """Read a parsed config."""
    label, architecture = _find(config)
    text = config.optional("text_config") or config
    notes: list[str] = []
    stored = _stored_dtype(config, text, notes)
    dtype = BF16 if stored is FP32 else stored
    quantisation = read_quantisation(config, sidecar)
    inv = Inventory(quantisation=quantisation, dtype=dtype, notes=notes)
    outline = architecture.decoder(text, inv)
    _head_of_wrapper(config, text, inv, outline)
    if architecture.tower is not None:
        inv.part_override = Part.VISION
        architecture.tower(config, inv, outline.hidden_size)
    return ModelSpec(
        name=name,
        architecture=label,
        hidden_size=outline.hidden_size,
        vocab_size=outline.vocab_size,
        query_heads=outline.query_heads,
        layers=tuple(inv.layers),
        weights=tuple(inv.weights),
        dtype=dtype,
        quantisation=quantisation.scheme,
        cache_dtype=outline.cache_dtype or quantisation.cache_dtype or _cache_dtype(dtype),
        max_context_tokens=outline.max_context_tokens,
        experts=outline.experts,
        widest_ffn=outline.widest_ffn,
        stored_dtype=stored if stored is not dtype else None,
        notes=tuple(inv.notes),
    )


def _find(config: Config) -> tuple[str, Architecture]:
    names = config.texts("architectures")
    if not names:
        raise ConfigError(f"{config.where}: architectures is missing, so the model cannot be identified")
    for name in names:
        if name in ARCHITECTURES:
            return name, ARCHITECTURES[name]
    asked = names[0][:80]
    if asked in UNREAD:
        raise UnknownArchitecture(f"{config.where}: architecture '{asked}' cannot be read: {UNREAD[asked]}")
    near = _nearest(asked)
    hint = f" (the nearest that it can read is {near})" if near else ""
    raise UnknownArchitecture(
        f"{config.where}: architecture '{asked}' cannot be read exactly by this version{hint}; "
        f"`penstock inspect --architectures` lists the {len(ARCHITECTURES)} architectures that it can read"
    )


def _nearest(asked: str) -> str | None:
    """Return the known architecture with the most similar name, compared without common endings such as `ForCausalLM`.

    If the endings were compared, Jamba would look similar to Mamba2.
    """
    stems = {_SUFFIX.sub("", name): name for name in ARCHITECTURES}
    found = difflib.get_close_matches(_SUFFIX.sub("", asked), stems, n=1, cutoff=0.8)
    return stems[found[0]] if found else None


def _stored_dtype(config: Config, text: Config, notes: list[str]) -> WeightFormat:
    for section in (config, text):
        if section.has("torch_dtype") or section.has("dtype"):
            stated = dtype_format(section.text("torch_dtype", "dtype"), section.where)
            if stated is FP32:
                notes.append("stored as fp32; engines load it as bf16")
            return stated
    notes.append("the config states no dtype; engines load such a checkpoint as bf16")
    return BF16


def _cache_dtype(dtype: WeightFormat) -> CacheDtype:
    return CacheDtype.FP16 if dtype is FP16 else CacheDtype.BF16


def _head_of_wrapper(config: Config, text: Config, inv: Inventory, outline: Outline) -> None:
    """Add or remove the output head if the top level of a multimodal config states `tie_word_embeddings`.

    The top level takes precedence over the default of the text model.
    """
    if text is config or not config.has("tie_word_embeddings"):
        return
    has_head = any(weight.part is Part.LM_HEAD for weight in inv.weights)
    if config.flag("tie_word_embeddings", default=False) and has_head:
        inv.weights[:] = [weight for weight in inv.weights if weight.part is not Part.LM_HEAD]
    elif not config.flag("tie_word_embeddings", default=True) and not has_head:
        inv.head("lm_head", outline.vocab_size, outline.hidden_size, tied=False)
