"""Derives every fact that rules may use. A fact that cannot be derived stays unknown."""

import re
from collections.abc import Callable, Mapping
from math import ceil
from typing import Final

from penstock.errors import UsageError
from penstock.fleet.deployment import default_cache_dtype
from penstock.fleet.release import Release
from penstock.fleet.serving_engines import serving_defaults
from penstock.model import LatentAttention, ModelSpec, Part
from penstock.model.config_json import Config
from penstock.model.sequence_mixers import CompressedAttention, GroupedAttention
from penstock.preflight.facts.drafting import drafted_count, speculative_config
from penstock.preflight.facts.situation import Launch, LaunchSituation, Situation, UnreadModel
from penstock.preflight.rules.condition import ENVIRONMENT, Facts, Kind, Unknown, Value
from penstock.preflight.rules.fact_names import VOCABULARY

UNSET: Final = "unset"
_KV_SCALES = frozenset({"k_scale", "v_scale", "kv_scale"})
_PLATFORMS = {"amd": "rocm", "nvidia": "cuda"}
_ASKED_VARIABLES = (
    "VLLM_ROCM_USE_AITER",
    "VLLM_ROCM_USE_AITER_MOE",
    "VLLM_ROCM_USE_AITER_MLA",
    "VLLM_ROCM_USE_AITER_FP4BMM",
    "VLLM_ROCM_USE_AITER_CUSTOM_AR",
    "VLLM_MLA_DISABLE",
    "SGLANG_USE_AITER",
    "SGLANG_USE_AITER_UNIFIED_ATTN",
    "SGLANG_HACK_FLASHMLA_BACKEND",
    "SGLANG_EXTERNAL_MODEL_PACKAGE",
    "ATOM_DISABLE_VLLM_PLUGIN",
    "MORI_SHMEM_MODE",
    "HSA_NO_SCRATCH_RECLAIM",
    "HIP_VISIBLE_DEVICES",
    "CUDA_VISIBLE_DEVICES",
)
_MM_PREFIX: Final = frozenset({"Gemma3ForConditionalGeneration"})
"""Architectures whose image tokens attend to each other in both directions (MM_PREFIX_LM_MODELS in vLLM's
model_arch_config_convertor.py). Gemma 4 is another, and is served by one backend in any case."""
_NO_IMAGES: Final = re.compile(r"""^0$|image["']?\s*[:=]\s*0(?!\d)""")
_TEXT_ONLY_SINCE: Final = Release("0.27.0")
"""First release of vLLM that drops this attention if the launch takes no images (config/model.py)."""


def derive_facts(situation: Situation) -> Facts:
    """Derive all facts. Every fact of the vocabulary gets a value, or the reason why it is unknown."""
    facts = dict(_launch_facts(situation))
    for group in (_model, _quantisation, _tensor_facts, _launch_of_model):
        facts.update(group(situation))
    return facts


def derive_facts_without_shape(situation: LaunchSituation, model: UnreadModel) -> Facts:
    """Derive the facts that need no shape of the model. Every other fact of the vocabulary is unknown."""
    missing = Unknown(f"the shape of {model.architecture} is not read")
    known: dict[str, Value | Unknown] = {}
    if model.config is not None:
        known = {"model.architecture": model.architecture, "quant.method": _stated_method(model.config)}
    return {**dict.fromkeys(VOCABULARY, missing), **known, **_launch_facts(situation)}


def _stated_method(config: Config) -> str:
    for holder in (config, config.optional("text_config")):
        section = None if holder is None else holder.optional("quantization_config")
        if section is not None:
            return section.text("quant_method", default="unstated").lower()
    return "none"


def _launch_facts(situation: LaunchSituation) -> Facts:
    facts: dict[str, Value | Unknown] = {}
    for group in (_device, _parallel, _launch, _host):
        facts.update(group(situation))
    for name in _ASKED_VARIABLES:
        facts[f"{ENVIRONMENT}{name}"] = situation.launch.environment.get(name, UNSET)
    for name, value in situation.launch.environment.items():
        facts[f"{ENVIRONMENT}{name}"] = value
    return facts


def chip_of(compute_target: str | None) -> str | None:
    """Return the chip family of a compiler target.

    For example, sm_90a and sm_90 are one family, because they run the same kernels.
    """
    if compute_target is None:
        return None
    return compute_target.rstrip("af") if compute_target.startswith("sm_") else compute_target


def _unknown(name: str) -> Unknown:
    fact = VOCABULARY[name]
    return Unknown(fact.settle or f"nothing states {fact.question}")


def _device(situation: LaunchSituation) -> Mapping[str, Value | Unknown]:
    accelerator = situation.accelerator
    dialect = accelerator.fp8_dialect
    has_fp8 = "fp8" in accelerator.dense_flops_per_s
    if dialect is None:
        settled: Value | Unknown = (
            Unknown(f"the catalog does not say which FP8 dialect {accelerator.id} reads") if has_fp8 else "none"
        )
    else:
        settled = dialect
    return {
        "engine": situation.engine,
        "version": situation.version,
        "accelerator": accelerator.id,
        "platform": _PLATFORMS.get(accelerator.vendor, "other"),
        "chip": chip_of(accelerator.compute_target)
        or Unknown(f"the catalog has no compiler target for {accelerator.id}"),
        "chip.fp8": settled,
        "chip.fp4": frozenset(accelerator.fp4_formats),
    }


def _model(situation: Situation) -> Mapping[str, Value | Unknown]:
    model, split = situation.subject.model, situation.parallelism
    grouped = [layer.mixer for layer in model.layers if isinstance(layer.mixer, GroupedAttention)]
    width = expert_width(model)
    has_experts = model.experts is not None
    return {
        "model.architecture": model.architecture,
        "model.attention": model.attention_kinds,
        "model.mm_prefix": model.architecture in _MM_PREFIX and not _serves_text_only(situation),
        "model.head_dim": max((mixer.key_dim for mixer in grouped), default=_latent_dim(model)),
        "model.gqa_ratio": max((mixer.query_heads // mixer.kv_heads for mixer in grouped), default=1),
        "model.moe": has_experts,
        "model.expert_dtype": _expert_dtype(model),
        "model.heads_per_rank": ceil(model.query_heads / split.tp),
        "model.expert_width_per_rank": _or_unknown(
            None if width is None else (width if split.expert_parallel else ceil(width / (split.tp * split.dp))),
            "the model has no routed experts",
        ),
        "model.rope": _unknown("model.rope") if situation.subject.rope is None else situation.subject.rope,
        "model.context": _or_unknown(model.max_context_tokens, "the config states no limit"),
        "weights.formats": frozenset(model.formats),
    }


def _serves_text_only(situation: LaunchSituation) -> bool:
    """Return whether the launch refuses images, so that the engine attends as in a model without images."""
    launch = situation.launch
    limit = launch.flag("limit-mm-per-prompt", "limit-mm-per-prompt.image") or ""
    no_images = launch.flag("language-model-only") is not None or _NO_IMAGES.search(limit) is not None
    return no_images and situation.version >= _TEXT_ONLY_SINCE


def _latent_dim(model: ModelSpec) -> int:
    for layer in model.layers:
        if isinstance(layer.mixer, LatentAttention):
            return layer.mixer.latent_dim + layer.mixer.rope_dim
        if isinstance(layer.mixer, CompressedAttention):
            return layer.mixer.entry_dim
    return 0


def expert_width(model: ModelSpec) -> int | None:
    """Return the intermediate width of one routed expert. Return None if the model has no routed experts."""
    for weight in model.weights:
        if weight.part is Part.ROUTED_EXPERTS and len(weight.shape) == 2:
            name = weight.module.rsplit(".", 1)[-1]
            if name in {"down_proj", "w2", "fc2"}:
                return weight.shape[1]
    return None


def _expert_dtype(model: ModelSpec) -> str:
    for weight in model.weights:
        if weight.part is Part.ROUTED_EXPERTS and weight.quantisable:
            return weight.format.name
    return "none"


def _quantisation(situation: Situation) -> Mapping[str, Value | Unknown]:
    scheme = situation.subject.scheme
    return {
        "quant.method": scheme.method,
        "quant.algo": scheme.algo,
        "quant.scheme": scheme.granularity,
        "quant.weight_bits": _or_unknown(scheme.weight_bits, "the config does not say"),
        "quant.activation_bits": _or_unknown(scheme.activation_bits, "the config does not say"),
        "quant.activation_type": _or_unknown(scheme.activation_type, "the config does not say"),
        "quant.group_size": _or_unknown(scheme.group_size, "the config does not say"),
        "quant.desc_act": _or_unknown(scheme.desc_act, "the config does not say"),
        "quant.kv_granularity": _or_unknown(scheme.kv_granularity, "the config does not say"),
    }


def _tensor_facts(situation: Situation) -> Mapping[str, Value | Unknown]:
    stored, scanned = situation.subject.stored, situation.subject.scanned
    has_fp8 = "fp8" in situation.subject.model.formats
    return {
        "tensors.dtypes": _unknown("tensors.dtypes") if stored is None else stored.dtypes,
        "tensors.kinds": _unknown("tensors.kinds") if stored is None else stored.kinds,
        "weights.e8m0_scales": _e8m0_scales(situation),
        "kv.scales": _unknown("kv.scales") if stored is None else bool(_KV_SCALES & stored.kinds),
        "bytes.fp8_nan": _scan_fact(has_fp8, None if scanned is None else scanned.fp8_nan, "bytes.fp8_nan"),
        "bytes.e8m0_top": _scan_fact(has_fp8, None if scanned is None else scanned.e8m0_top, "bytes.e8m0_top"),
    }


def _scan_fact(relevant: bool, found: bool | None, name: str) -> Value | Unknown:  # noqa: FBT001 - two values of one fact
    if not relevant:
        return False
    return _unknown(name) if found is None else found


def _e8m0_scales(situation: Situation) -> Value | Unknown:
    """Return whether weight scales are stored in the e8m0 format, which holds powers of two.

    `ue8m0` in a config only says that the scales are powers of two. For example, the config of DeepSeek-V3.2 says
    `ue8m0`, but its scales are stored as float32.
    """
    subject = situation.subject
    if subject.stored is not None:
        return "F8_E8M0" in subject.stored.dtypes
    if subject.model.architecture == "DeepseekV4ForCausalLM":
        return True
    powers = any(weight.format.name == "fp8" and weight.format.scale_bits == 8 for weight in subject.model.weights)
    return _unknown("weights.e8m0_scales") if powers else False


def _parallel(situation: LaunchSituation) -> Mapping[str, Value | Unknown]:
    split, launch = situation.parallelism, situation.launch
    return {
        "parallel.tp": split.tp,
        "parallel.dp": split.dp,
        "parallel.ep": split.expert_parallel,
        "parallel.devices": split.devices,
        "parallel.dcp": _number(launch, "decode-context-parallel-size", "dcp") or 1,
        "parallel.pcp": _number(launch, "prefill-context-parallel-size", "pcp") or 1,
        "parallel.all2all": launch.flag("all2all-backend", "moe-a2a-backend") or "default",
    }


def _launch_of_model(situation: Situation) -> Mapping[str, Value | Unknown]:
    """Return the facts of a launch for which the model's own settings stand in."""
    launch, model = situation.launch, situation.subject.model
    asked = launch.flag("kv-cache-dtype") or "auto"
    default = default_cache_dtype(model, situation.accelerator, situation.engine, situation.version)
    stored = default.value if asked == "auto" else ("fp8" if asked.startswith("fp8") else asked)
    return {
        "kv.stored": {"bfloat16": "bf16", "float16": "fp16"}.get(stored, stored),
        "launch.max_model_len": _or_unknown(
            _number(launch, "max-model-len", "context-length") or model.max_context_tokens,
            "neither the launch nor the config limits the context",
        ),
    }


def _launch(situation: LaunchSituation) -> Mapping[str, Value | Unknown]:
    launch = situation.launch
    eager = launch.flag("enforce-eager", "disable-cuda-graph") is not None
    backend = situation.attention_backend or "auto"
    return {
        "kv.dtype": launch.flag("kv-cache-dtype") or "auto",
        "launch.attention_backend": backend,
        "launch.attention": _unknown("launch.attention") if backend == "auto" else backend,
        "launch.moe_backend": (launch.flag("moe-backend", "moe-runner-backend") or "auto").lower(),
        "launch.dtype": {"half": "float16"}.get(dtype := launch.flag("dtype") or "auto", dtype),
        "launch.block_size": _or_unknown(_number(launch, "block-size"), "the engine chooses it"),
        "launch.graphs": not eager,
        "launch.batched_tokens": _or_unknown(
            _number(launch, "max-num-batched-tokens", "chunked-prefill-size"), "the engine's default applies"
        ),
        "launch.sequences": _number(launch, "max-num-seqs", "max-running-requests", "max-batch-size")
        or serving_defaults(situation.engine, situation.accelerator, version=str(situation.version)).max_sequences,
        **_drafting(launch),
        "launch.kv_connector": launch.flag("kv-transfer-config", "disaggregation-mode") is not None,
        "launch.image": launch.image or "none",
        "launch.image_words": image_words(launch.image),
        "launch.install": situation.host.get("install") or ("docker" if launch.image else _unknown("launch.install")),
        "launch.flags": frozenset(launch.flags),
        "launch.variables": frozenset(launch.environment),
    }


def _drafting(launch: Launch) -> Mapping[str, Value | Unknown]:
    """Return the facts of speculative decoding, from vLLM's JSON or from SGLang's flags."""
    config = speculative_config(launch.flags)
    if config is None:
        tokens = _number(launch, "speculative-num-draft-tokens", "speculative-num-steps") or 0
        method = launch.flag("speculative-algorithm") or "none"
    else:
        tokens, method = drafted_count(config), str(config.get("method") or "draft_model")
    return {"launch.speculative_tokens": tokens, "launch.speculative_method": method}


def image_words(image: str | None) -> frozenset[str]:
    """Split an image such as `lmsysorg/sglang:v0.5.18-rocm720-mi30x` into its name and the words of its tag."""
    if image is None:
        return frozenset()
    name, _, tag = image.rpartition(":") if ":" in image.rsplit("/", 1)[-1] else (image, "", "")
    return frozenset({name, *(word for word in tag.split("-") if word)})


def _number(launch: Launch, *names: str) -> int | None:
    text = launch.flag(*names)
    return int(text) if text is not None and text.isdecimal() and len(text) < 12 else None  # no flag is larger


_READ: Final[Mapping[Kind, Callable[[str], Value]]] = {
    Kind.RELEASE: Release,
    Kind.TEXT: str,
    Kind.FLAG: lambda text: text.strip().lower() in {"1", "true", "yes", "on"},
}


def _host(situation: LaunchSituation) -> Mapping[str, Value | Unknown]:
    facts: dict[str, Value | Unknown] = {}
    for name, fact in VOCABULARY.items():
        if not name.startswith("host."):
            continue
        text = situation.host.get(name.removeprefix("host."))
        facts[name] = _unknown(name) if text is None else _READ[fact.kind](text)
    known = {name.removeprefix("host.") for name in facts} | {"install"}
    strange = sorted(set(situation.host) - known)
    if strange:
        raise UsageError(f"--host: unknown fact '{strange[0]}'; write one of {', '.join(sorted(known))}")
    return facts


def _or_unknown(value: Value | None, why: str) -> Value | Unknown:
    return Unknown(why) if value is None else value
