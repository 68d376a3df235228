"""Reads a checkpoint's quantisation scheme.

The properties of a quantisation scheme select kernels, but do not follow from the number of weight bytes.
"""

from dataclasses import dataclass

from penstock.errors import ConfigError
from penstock.model import ModelSpec, Part
from penstock.model.config_json import Config

_WEIGHT_ONLY_BITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """The properties by which kernels are selected. A property is None if the config does not state it."""

    method: str
    algo: str
    granularity: str
    weight_bits: float | None
    activation_bits: int | None
    activation_type: str | None
    group_size: int | None
    desc_act: bool | None
    kv_granularity: str | None


UNQUANTISED = Scheme(
    method="none",
    algo="NONE",
    granularity="none",
    weight_bits=16,
    activation_bits=16,
    activation_type="none",
    group_size=0,
    desc_act=False,
    kv_granularity="none",
)


def read_scheme(model: ModelSpec, config: Config | None, sidecar: Config | None) -> Scheme:
    """Read the quantisation scheme from the config.

    Properties that the config omits are derived from the model's weights.
    """
    section = None if config is None else _section(config)
    if section is None and sidecar is not None:
        section = sidecar.optional("quantization") or sidecar
    if model.quantisation == "none" and section is None:
        return UNQUANTISED
    method = _method(model, section)
    return Scheme(
        method=method,
        algo=_algorithm(model),
        granularity=_granularity(model),
        weight_bits=_weight_bits(model),
        activation_bits=_activation_bits(method, section),
        activation_type=_activation_type(method, section),
        group_size=_group_size(model),
        desc_act=_desc_act(method, section),
        kv_granularity=_kv_granularity(section),
    )


def _section(config: Config) -> Config | None:
    for holder in (config, config.optional("text_config")):
        for key in ("quantization_config", "compression_config"):
            if holder is not None and (found := holder.optional(key)) is not None:
                return found
    return None


def _method(model: ModelSpec, section: Config | None) -> str:
    if section is not None and section.has("quant_method"):
        return section.text("quant_method").lower()
    return model.quantisation.split()[0]


def _quantised_bytes(model: ModelSpec) -> dict[str, int]:
    """Return the stored bytes of each quantised weight format."""
    counts: dict[str, int] = {}
    for weight in model.weights:
        if weight.part is not Part.MTP and weight.format.bits < _WEIGHT_ONLY_BITS:
            counts[weight.format.name] = counts.get(weight.format.name, 0) + weight.stored_bytes
    return counts


def _algorithm(model: ModelSpec) -> str:
    counts = _quantised_bytes(model)
    return max(counts, key=lambda name: counts[name]).upper() if counts else "NONE"


def _first_format(model: ModelSpec) -> tuple[int | None, int | None, int, float] | None:
    """Return scale rows, scale columns, scale bits and weight bits of the quantised format with the most bytes."""
    wanted = _algorithm(model).lower()
    for weight in model.weights:
        stored = weight.format
        if stored.name == wanted and weight.part is not Part.MTP:
            return stored.scale_rows, stored.scale_columns, stored.scale_bits, stored.bits
    return None


def _granularity(model: ModelSpec) -> str:
    found = _first_format(model)
    if found is None:
        return "none"
    rows, columns, _, _ = found
    if rows is None:
        return "tensor"
    if columns is None:
        return "channel"
    return "group" if rows == 1 else "block"


def _weight_bits(model: ModelSpec) -> float | None:
    found = _first_format(model)
    return None if found is None else found[3]


def _group_size(model: ModelSpec) -> int | None:
    found = _first_format(model)
    if found is None:
        return None
    return -1 if found[1] is None else found[1]


def _activation_group(section: Config | None) -> Config | None:
    """Return how the first compressed-tensors or ModelOpt group quantises its inputs.

    In published files, all groups have equal input schemes.
    """
    groups = None if section is None else section.optional("config_groups")
    for name in () if groups is None else groups.raw:
        group = groups.section(str(name)) if groups is not None else None
        if group is not None:
            return group.optional("input_activations")
    return None


def _quark_activation(section: Config | None) -> tuple[int, str] | None:
    """Return the number of bits and the type in which AMD Quark quantises inputs.

    If the config has no input scheme, only weights are quantised.
    """
    scheme = None if section is None else section.optional("global_quant_config")
    if scheme is None:
        return None
    if not scheme.has("input_tensors"):
        return _WEIGHT_ONLY_BITS, "none"
    inputs = scheme.raw["input_tensors"]
    dtype = inputs.get("dtype") if isinstance(inputs, dict) else None
    known = {"fp8_e4m3": (8, "float"), "fp8": (8, "float"), "fp4": (4, "float"), "int8": (8, "int")}
    return known.get(dtype) if isinstance(dtype, str) else None


def _activation_bits(method: str, section: Config | None) -> int | None:
    if method == "quark":
        quark = _quark_activation(section)
        return None if quark is None else quark[0]
    group = _activation_group(section)
    if group is not None:
        return group.integer("num_bits", default=8, low=1, high=32)
    if method == "compressed-tensors":
        return _WEIGHT_ONLY_BITS
    if method in {"awq", "gptq", "bitsandbytes", "auto-round", "mxfp4"}:
        return _WEIGHT_ONLY_BITS
    if section is not None and section.has("activation_scheme"):
        return 8
    algorithm = "" if section is None else section.text("quant_algo", default="").upper()
    known = {"FP8": 8, "FP8_PER_CHANNEL_PER_TOKEN": 8, "FP8_PB_WO": 8, "NVFP4": 4, "MXFP8": 8, "W4A16_NVFP4": 16}
    if algorithm in known:
        return known[algorithm]
    return 8 if method in {"fp8", "mxfp8", "fbgemm_fp8"} else None


def _activation_type(method: str, section: Config | None) -> str | None:
    if method == "quark":
        quark = _quark_activation(section)
        return None if quark is None else quark[1]
    group = _activation_group(section)
    if group is not None:
        return group.text("type", default="int")
    bits = _activation_bits(method, section)
    if bits == _WEIGHT_ONLY_BITS:
        return "none"
    return "float" if method in {"fp8", "modelopt", "mxfp8", "fbgemm_fp8"} else None


def _desc_act(method: str, section: Config | None) -> bool | None:
    if section is None:
        return None
    if method == "compressed-tensors":
        groups = section.optional("config_groups")
        for name in () if groups is None else groups.raw:
            weights = groups.section(str(name)).optional("weights") if groups is not None else None
            if weights is not None and weights.has("actorder"):
                return weights.raw["actorder"] in {True, "group"}
        return False
    try:
        return section.flag("desc_act", default=False)
    except ConfigError:
        return None


def _kv_granularity(section: Config | None) -> str | None:
    if section is None:
        return None
    raw = section.raw.get("kv_cache_scheme")
    if isinstance(raw, dict):
        strategy = raw.get("strategy", "tensor")
        return strategy if isinstance(strategy, str) else None
    stated = isinstance(raw, str) or section.has("kv_cache_quant_algo")
    return "tensor" if stated else "none"
