"""Reads the storage format of each weight from a quantisation config.

All common dialects of quantisation configs, and their `ignore` lists, can be read.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from penstock.errors import ConfigError, UnknownArchitecture
from penstock.model.cache_dtypes import CacheDtype
from penstock.model.config_json import Config
from penstock.model.module_patterns import MAX_PATTERNS, is_pattern, matcher, plain_matcher
from penstock.model.weight import (
    BF16,
    FP8_BLOCK,
    FP8_CHANNEL,
    FP8_TENSOR,
    FP16,
    FP32,
    INT8_CHANNEL,
    MXFP4,
    MXFP8,
    NVFP4,
    Part,
    WeightFormat,
)


@dataclass(frozen=True, slots=True)
class _Rule:
    """Storage format of all modules that match a rule.

    If the format is None, the matching modules stay unquantised.
    """

    matches: Callable[[str], bool]
    format: WeightFormat | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantisation:
    """Quantisation scheme of a checkpoint. The first rule that matches a module applies, or else the default format."""

    scheme: str
    default: WeightFormat | None = None
    rules: tuple[_Rule, ...] = ()
    exact: dict[str, WeightFormat | None] | None = None
    cache_dtype: CacheDtype | None = None
    experts_only: WeightFormat | None = None
    """Format of the routed experts if their format differs from that of the other linear layers. DeepSeek-V4 stores
    experts in fp4 and other linear layers in fp8."""

    def format_of(self, module: str, part: Part) -> WeightFormat | None:
        """Return the storage format of a linear module, or None if the module keeps the checkpoint's dtype.

        Quantisation tools convert the output head and the router only if a rule names these modules.
        """
        if self.exact and (name := _listed_name(self.exact, module)) is not None:
            return self.exact[name]
        for rule in self.rules:
            if rule.matches(module):
                return rule.format
        if part in {Part.LM_HEAD, Part.ROUTER}:
            return None
        if part is Part.ROUTED_EXPERTS and self.experts_only is not None:
            return self.experts_only
        return self.default


UNQUANTISED = Quantisation(scheme="none")


def read_quantisation(config: Config, sidecar: Config | None) -> Quantisation:
    """Read `quantization_config`, or ModelOpt's separate file hf_quant_config.json.

    If both exist, `quantization_config` is used.
    """
    section = config.optional("quantization_config")
    text = config.optional("text_config")
    if section is None and text is not None:
        section = text.optional("quantization_config")
    if section is None and config.has("compression_config"):
        section = config.section("compression_config")
    if section is None:
        return UNQUANTISED if sidecar is None else _modelopt(sidecar)
    method = section.text("quant_method", default="modelopt" if section.has("quant_algo") else "unstated").lower()
    reader = _READERS.get(method.replace("_", "-"))
    if reader is None:
        known = ", ".join(sorted(_READERS))
        raise UnknownArchitecture(f"{section.where}: quant_method '{method}' is not known; known: {known}")
    return _with_expert_dtype(config, reader(section))


def dtype_format(name: str, where: str) -> WeightFormat:
    """Parse the value of `torch_dtype` or `dtype`."""
    spelled = name.removeprefix("torch.").lower()
    formats = {"bfloat16": BF16, "float16": FP16, "half": FP16, "float32": FP32, "float": FP32}
    if spelled not in formats:
        raise ConfigError(f"{where}: dtype '{name[:40]}' is not known; known: {', '.join(formats)}")
    return formats[spelled]


def _with_expert_dtype(config: Config, read: Quantisation) -> Quantisation:
    """Add the expert format of DeepSeek-V4, whose config states this format outside the fp8 section."""
    expert_dtype = config.text("expert_dtype", default="")
    if read.exact:
        return read
    if expert_dtype == "fp4":
        return replace(read, scheme=f"{read.scheme} + mxfp4 experts", experts_only=MXFP4)
    if expert_dtype not in {"", "fp8", "bf16", "bfloat16"}:
        raise UnknownArchitecture(f"{config.where}: expert_dtype '{expert_dtype[:40]}' is not known")
    return read


def _fp8(section: Config) -> Quantisation:
    """Read the FP8 configs of Transformers, vLLM and DeepSeek.

    FP8 configs state one scale per tensor or one scale per block.
    """
    block = section.integers("weight_block_size")
    if not block:
        stored = FP8_TENSOR
    elif len(block) == 2 and min(block) >= 1:
        scale_bits = 8 if section.text("scale_fmt", default="") == "ue8m0" else 32
        stored = WeightFormat(name="fp8", bits=8, scale_bits=scale_bits, scale_rows=block[0], scale_columns=block[1])
    else:
        raise ConfigError(f"{section.where}: weight_block_size must be two positive integers")
    ignored = (*section.texts("modules_to_not_convert"), *section.texts("ignored_layers"))
    exact = _listed_formats(section)
    return Quantisation(
        scheme=("fp8 block" if block else "fp8 tensor") + (" + listed layers" if exact else ""),
        default=stored,
        rules=_ignore_rules(ignored, contains=True),
        exact=exact,
        cache_dtype=_kv_scheme(section),
    )


def _mxfp4(section: Config) -> Quantisation:
    """Read gpt-oss. Expert matrices are in mxfp4. Modules in `modules_to_not_convert` keep the checkpoint's dtype."""
    return Quantisation(
        scheme="mxfp4",
        experts_only=MXFP4,
        rules=_ignore_rules(section.texts("modules_to_not_convert"), contains=True),
    )


def _mxfp8(section: Config) -> Quantisation:
    ignored = (*section.texts("modules_to_not_convert"), *section.texts("ignored_layers"))
    return Quantisation(scheme="mxfp8", default=MXFP8, rules=_ignore_rules(ignored, contains=True))


def _grouped_integer(section: Config) -> Quantisation:
    """Read AWQ and GPTQ: integers in groups along the input, with a scale and a packed zero point per group."""
    method = section.text("quant_method").lower()
    bits = section.integer("bits", "w_bit", low=2, high=8)
    group = section.integer("group_size", "q_group_size", default=128, low=-1)
    zero_points = section.flag("zero_point", default=not section.flag("sym", default=False))
    stored = WeightFormat(
        name=f"int{bits}",
        bits=bits,
        scale_bits=16,
        scale_columns=None if group < 1 else group,
        zero_point_bits=bits if zero_points or method == "gptq" else 0,
    )
    rules = list(_ignore_rules(section.texts("modules_to_not_convert"), contains=True))
    if section.flag("lm_head", default=False):
        rules.insert(0, _Rule(lambda module: module.endswith("lm_head"), stored))
    return Quantisation(scheme=f"{method} int{bits}", default=stored, rules=tuple(rules))


def _bitsandbytes(section: Config) -> Quantisation:
    four_bit = section.flag("load_in_4bit", default=False)
    stored = WeightFormat(name="nf4", bits=4, scale_bits=8, scale_columns=64) if four_bit else INT8_CHANNEL
    ignored = section.texts("llm_int8_skip_modules")
    return Quantisation(
        scheme=f"bitsandbytes {stored.name}", default=stored, rules=_ignore_rules(ignored, contains=True)
    )


def _compressed_tensors(section: Config) -> Quantisation:
    """Read llm-compressor's format: groups of targets, each with its own weight scheme."""
    groups = section.section("config_groups")
    rules = list(_ignore_rules(section.texts("ignore"), contains=False))
    default: WeightFormat | None = None
    for name in groups.raw:
        group = groups.section(str(name))
        weights = group.optional("weights")
        stored = None if weights is None else _scheme_format(weights)
        targets = group.texts("targets") or ("Linear",)
        for target in targets:
            if target in {"Linear", "re:.*"}:
                default = stored
            else:
                rules.append(_Rule(matcher(target, contains=False), stored))
    label = section.text("format", default="compressed")
    return Quantisation(
        scheme=f"compressed-tensors {label}",
        default=default,
        rules=tuple(rules),
        cache_dtype=_kv_scheme(section),
    )


def _modelopt(section: Config) -> Quantisation:
    """Read NVIDIA ModelOpt, in config.json or in hf_quant_config.json (under `quantization`)."""
    body = section.optional("quantization") or section
    algorithm = body.text("quant_algo", default="").upper()
    ignored = (*body.texts("exclude_modules"), *body.texts("ignore"))
    exact = _listed_formats(body)
    return Quantisation(
        scheme=f"modelopt {algorithm.lower() or 'none'}",
        default=None if exact else _algorithm_format(body),
        exact=exact,
        rules=_ignore_rules(ignored, contains=False),
        cache_dtype=_kv_scheme(body),
    )


def _listed_formats(body: Config) -> dict[str, WeightFormat | None] | None:
    """Read a mixed-precision ModelOpt config, which lists each quantised module with its algorithm."""
    listed = body.optional("quantized_layers")
    if listed is None:
        return None
    return {str(name): _algorithm_format(listed.section(str(name))) for name in listed.raw}


def _algorithm_format(body: Config) -> WeightFormat | None:
    algorithm = body.text("quant_algo", default="").upper()
    group = body.integer("group_size", default=16 if "NVFP4" in algorithm else 128)
    formats: dict[str, WeightFormat | None] = {
        "": None,
        "FP8": FP8_TENSOR,
        "FP8_PER_CHANNEL_PER_TOKEN": FP8_CHANNEL,
        "FP8_PB_WO": FP8_BLOCK,
        "FP8_BLOCK_SCALES": FP8_BLOCK,
        "NVFP4": replace(NVFP4, scale_columns=group),
        "W4A8_NVFP4_FP8": replace(NVFP4, scale_columns=group),
        "NVFP4_AWQ": replace(NVFP4, scale_columns=group),
        "W4A16_NVFP4": replace(NVFP4, scale_columns=group),
        "MXFP4": MXFP4,
        "W4A8_MXFP4_FP8": MXFP4,
        "MXFP8": MXFP8,
        "W4A16_AWQ": WeightFormat(name="int4", bits=4, scale_bits=16, scale_columns=group),
        "W4A8_AWQ": WeightFormat(name="int4", bits=4, scale_bits=16, scale_columns=group),
        "W8A16": INT8_CHANNEL,
        "INT8_SQ": INT8_CHANNEL,
        "W8A8_SQ_PER_CHANNEL": INT8_CHANNEL,
    }
    if algorithm not in formats:
        raise UnknownArchitecture(f"{body.where}: quant_algo '{algorithm[:40]}' is not known")
    return formats[algorithm]


def _quark(section: Config) -> Quantisation:
    """Read AMD Quark: a global scheme, per-layer exceptions by wildcard, and an exclude list."""
    rules = list(_ignore_rules(section.texts("exclude"), contains=False))
    by_layer = section.optional("layer_quant_config")
    for pattern in by_layer.raw if by_layer is not None else ():
        entry = by_layer.section(str(pattern)) if by_layer is not None else None
        rules.append(_Rule(matcher(str(pattern), contains=False), _quark_format(entry)))
    global_scheme = section.optional("global_quant_config")
    default = _quark_format(global_scheme)
    export = section.optional("export")
    kv_layers = export.texts("kv_cache_group") if export is not None else ()
    return Quantisation(
        scheme=f"quark {default.name if default else 'mixed'}",
        default=default,
        rules=tuple(rules),
        cache_dtype=CacheDtype.FP8 if kv_layers else _kv_scheme(section),
    )


def _quark_format(entry: Config | None) -> WeightFormat | None:
    weight = None
    if entry is not None and entry.has("weight"):
        raw = entry.raw["weight"]
        # Two-level schemes list two stages. The first stage gives the storage format of the elements.
        weight = entry.sections("weight")[0] if isinstance(raw, list) and raw else entry.section("weight")
    if weight is None:
        return None
    dtype = weight.text("dtype").lower()
    scheme = weight.text("qscheme", default="per_tensor")
    group = weight.integer("group_size", default=32)
    if dtype in {"fp8_e4m3", "fp8_e5m2", "fp8"}:
        return FP8_TENSOR if scheme == "per_tensor" else FP8_CHANNEL
    if dtype in {"fp4", "mx", "mxfp4"}:
        return replace(MXFP4, scale_columns=group)
    if dtype in {"fp6_e2m3", "fp6_e3m2", "mx6"}:
        return WeightFormat(name="mxfp6", bits=6, scale_bits=8, scale_columns=group)
    if dtype in {"int8", "uint8"}:
        return INT8_CHANNEL
    if dtype in {"int4", "uint4"}:
        return WeightFormat(name="int4", bits=4, scale_bits=16, scale_columns=group)
    raise UnknownArchitecture(f"{weight.where}: Quark dtype '{dtype[:40]}' is not known")


def _scheme_format(weights: Config) -> WeightFormat | None:
    """Read a compressed-tensors weight scheme: the bits, the type, and the number of elements per scale."""
    bits = weights.integer("num_bits", low=1, high=16)
    kind = weights.text("type", default="int")
    strategy = weights.text("strategy", default="group" if weights.has("group_size") else "tensor")
    group = weights.integer("group_size", default=128, low=-1)
    block = weights.integers("block_structure")
    if bits == 16:  # sixteen bits is not quantised
        return None
    name = f"{'fp' if kind == 'float' else 'int'}{bits}"
    if strategy in {"group", "tensor_group"} and group > 0:
        if name == "fp4":
            return replace(MXFP4 if group == 32 else NVFP4, scale_columns=group)
        symmetric = weights.flag("symmetric", default=True)
        return WeightFormat(
            name=name, bits=bits, scale_bits=16, scale_columns=group, zero_point_bits=0 if symmetric else bits
        )
    if strategy == "block" and len(block) == 2 and min(block) >= 1:
        return WeightFormat(name=name, bits=bits, scale_bits=32, scale_rows=block[0], scale_columns=block[1])
    return WeightFormat(name=name, bits=bits, scale_bits=32, scale_rows=None if strategy == "tensor" else 1)


def _kv_scheme(section: Config) -> CacheDtype | None:
    """Read the KV-cache scheme, which configs spell in three ways."""
    algorithm = section.raw.get("kv_cache_quant_algo")
    if isinstance(algorithm, str) and algorithm.upper() in {"FP8", "FP8_CAST"}:
        return CacheDtype.FP8
    scheme = section.optional("kv_cache_scheme") if isinstance(section.raw.get("kv_cache_scheme"), dict) else None
    if scheme is not None and scheme.integer("num_bits", default=16) == 8:  # an fp8 cache
        return CacheDtype.FP8
    return None


def _ignore_rules(patterns: tuple[str, ...], *, contains: bool) -> tuple[_Rule, ...]:
    """Convert an ignore list into rules. Plain names go into one set, so that long lists are matched fast."""
    if len(patterns) > MAX_PATTERNS:
        raise ConfigError(f"an ignore list has {len(patterns):,} entries; at most {MAX_PATTERNS:,} are allowed")
    plain = {pattern for pattern in patterns if not is_pattern(pattern)}
    rules = [_Rule(matcher(pattern, contains=contains), None) for pattern in patterns if is_pattern(pattern)]
    if plain:
        rules.append(_Rule(plain_matcher(plain, contains=contains), None))
    return tuple(rules)


def _listed_name(exact: dict[str, WeightFormat | None], module: str) -> str | None:
    """Return the name under which `exact` lists a module, or None if the module is not listed.

    Checkpoints list routed experts one by one. In `module`, `*` stands for the number of any expert.
    """
    if module in exact:
        return module
    first = module.replace(".*.", ".0.")
    if first in exact:
        return first
    parent = first.rsplit(".", 1)[0]
    if parent in exact:
        return parent
    grandparent = parent.removesuffix(".0")
    return grandparent if grandparent in exact else None


_READERS: dict[str, Callable[[Config], Quantisation]] = {
    "fp8": _fp8,
    "fbgemm-fp8": _fp8,
    "mxfp4": _mxfp4,
    "mxfp8": _mxfp8,
    "awq": _grouped_integer,
    "gptq": _grouped_integer,
    "auto-round": _grouped_integer,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed_tensors,
    "modelopt": _modelopt,
    "modelopt-fp4": _modelopt,
    "modelopt-mixed": _modelopt,
    "quark": _quark,
}
