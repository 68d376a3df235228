"""Describes a model by the facts that other packages need from the config of a checkpoint."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from penstock.model.cache_dtypes import CacheDtype
from penstock.model.sequence_mixers import SequenceMixer
from penstock.model.weight import FORMATS, FP8_BLOCK, Part, Split, Weight, WeightFormat

_FP8_BY_CHANNEL: Final = frozenset({"Glm4MoeForCausalLM"})
"""Mixture-of-experts architectures whose FP8 release has one scale per channel. AITER tunes the matrix products of
GLM-4.7-FP8 as `a8w8_bpreshuffle`, and the products of GLM-5 as `a8w8_blockscale` (aiter/configs/model_configs)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Decoder layer: its sequence mixer and its feed-forward."""

    index: int
    mixer: SequenceMixer | None
    """Sequence mixer of the layer. None in pure feed-forward layers of hybrid models."""
    feed_forward: str
    """One of dense, moe and none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """Size of a mixture of experts: the number of routed experts, and the number of experts that a token visits."""

    routed: int
    per_token: int
    shared: int = 0

    def copies_to_divide(self, ranks: int) -> int:
        """Return the number of redundant experts needed so that every rank has the same number of experts."""
        return -self.routed % ranks


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """Checkpoint as its config describes it."""

    name: str
    architecture: str
    hidden_size: int
    vocab_size: int
    query_heads: int
    """Number of query heads in the layer with the most heads. The tensor-parallel size must divide this number."""
    layers: tuple[Layer, ...]
    weights: tuple[Weight, ...]
    dtype: WeightFormat
    """Format in which engines load unquantised weights."""
    quantisation: str
    """Name of the quantisation scheme. The name is `none` if the checkpoint is not quantised."""
    cache_dtype: CacheDtype
    """KV-cache dtype that an engine uses for `auto`. If the checkpoint has a KV scheme, the dtype of this scheme is
    used, else the dtype of the checkpoint."""
    max_context_tokens: int | None = None
    experts: Experts | None = None
    widest_ffn: int = 0
    """Number of channels in the widest feed-forward that a token passes through. In a layer with experts, the widths of
    all experts that the token visits are added."""
    stored_dtype: WeightFormat | None = None
    """Format of unquantised weights in the files. None if this format is `dtype`. Engines load fp32 files as bf16."""
    notes: tuple[str, ...] = ()
    """Caveats about the config: missing keys, and parts of the model that are not counted."""

    @cached_property
    def params_by_part(self) -> Mapping[Part, int]:
        """Return the number of parameters of each part."""
        counts: Counter[Part] = Counter()
        for weight in self.weights:
            counts[weight.part] += weight.params
        return counts

    @property
    def total_params(self) -> int:
        """Return the number of parameters as publishers count it, without multi-token-prediction layers."""
        return sum(count for part, count in self.params_by_part.items() if part is not Part.MTP)

    @property
    def active_params(self) -> int:
        """Return the number of parameters that one text token passes through, including the input embedding table."""
        skipped = {Part.MTP, Part.VISION}
        return sum(weight.active_params for weight in self.weights if weight.part not in skipped)

    @cached_property
    def weight_bytes(self) -> int:
        """Return the bytes of all weights as an engine loads them, without multi-token-prediction layers."""
        return sum(weight.stored_bytes for weight in self.weights if weight.part is not Part.MTP)

    @cached_property
    def weight_kinds(self) -> tuple[tuple[Weight, ...], tuple[int, ...]]:
        """Return one weight of each kind, and the kind of every weight. Equal kinds differ only in module and layer.

        A model has hundreds of weights of about ten kinds, so figures are computed per kind.
        """
        kinds: dict[Weight, int] = {}
        which = [kinds.setdefault(replace(weight, module="", layer=None), len(kinds)) for weight in self.weights]
        return tuple(kinds), tuple(which)

    @cached_property
    def fused_matrices(self) -> Mapping[WeightFormat, int]:
        """Return the number of matrices of the layers after the engine has fused them, by the format of the weights.

        Matrices of one module that read the same input are fused, for example queries, keys and values.
        """
        fused = {
            (weight.module.rpartition(".")[0], weight.shape[1:], weight.split is Split.ROW, weight.layer): weight.format
            for weight in self.weights
            if weight.layer is not None and len(weight.shape) > 1 and weight.part not in {Part.VISION, Part.MTP}
        }
        return Counter(fused.values())

    @cached_property
    def layer_kinds(self) -> Mapping[str, int]:
        """Return the number of layers per kind of sequence mixer."""
        return Counter(layer.mixer.kind for layer in self.layers if layer.mixer is not None)

    @cached_property
    def attention_kinds(self) -> frozenset[str]:
        """Return the kinds of attention layers, as attention backends distinguish them."""
        kinds = {trait for layer in self.layers if layer.mixer is not None for trait in layer.mixer.traits}
        if any("sink" in weight.module.rsplit(".", 1)[-1] for weight in self.weights):
            kinds.add("sinks")
        return frozenset(kinds)

    @cached_property
    def formats(self) -> Mapping[str, int]:
        """Return the bytes of the weights in each storage format, sorted by bytes, largest first."""
        counts: Counter[str] = Counter()
        for weight in self.weights:
            if weight.part is not Part.MTP:
                counts[weight.format.name] += weight.stored_bytes
        return dict(counts.most_common())

    def cache_bytes_per_token(self, dtype: CacheDtype | None = None, tp: int = 1) -> float:
        """Return the bytes that one more token adds to the cache of a device.

        The result is valid while every layer still keeps all tokens of the sequence.
        """
        chosen = dtype or self.cache_dtype
        return sum(layer.mixer.bytes_per_token(chosen, tp) for layer in self.layers if layer.mixer)

    def cache_bytes_by_kind(self, dtype: CacheDtype | None = None, tp: int = 1) -> Mapping[str, float]:
        """Return the cache bytes per token for each kind of layer, summed over the layers of that kind."""
        chosen = dtype or self.cache_dtype
        totals: dict[str, float] = {}
        for layer in self.layers:
            if layer.mixer is not None:
                kind = layer.mixer.kind
                totals[kind] = totals.get(kind, 0.0) + layer.mixer.bytes_per_token(chosen, tp)
        return totals

    def state_bytes_per_sequence(self, dtype: CacheDtype | None = None, tp: int = 1) -> int:
        """Return the bytes per sequence that do not depend on the sequence length (recurrent and compressor states)."""
        chosen = dtype or self.cache_dtype
        return sum(layer.mixer.bytes_per_sequence(chosen, tp) for layer in self.layers if layer.mixer)

    def stored_as(self, chosen: WeightFormat, only: Part | None = None) -> "ModelSpec":
        """Return the model with its quantisable weights stored in the format `chosen`.

        If `only` is given, only the weights of that part change their format.
        """
        return replace(
            self,
            weights=tuple(
                replace(weight, format=chosen) if weight.quantisable and only in {None, weight.part} else weight
                for weight in self.weights
            ),
            quantisation=f"{chosen.name} (asked for; the checkpoint says {self.quantisation})",
        )


def model_as_measured(model: ModelSpec, weights: str) -> ModelSpec:
    """Return the model in the weight format of a measured row.

    In four-bit formats, only the routed experts of a mixture of experts are converted, and the other weights stay as
    released. In FP8, mixtures of experts have one scale per block. Dense models and the mixtures in `_FP8_BY_CHANNEL`
    have one scale per channel.
    """
    chosen = FORMATS[weights]
    if weights in model.quantisation or (weights == "bf16" and model.quantisation == "none"):
        return model
    if chosen.bits < 8 and model.experts is not None:
        return model.stored_as(chosen, only=Part.ROUTED_EXPERTS)
    if chosen is FORMATS["fp8"] and model.experts is not None and model.architecture not in _FP8_BY_CHANNEL:
        return model.stored_as(FP8_BLOCK)
    return model.stored_as(chosen)
