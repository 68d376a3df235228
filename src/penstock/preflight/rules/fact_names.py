"""The vocabulary of rules. The vocabulary lists every fact that a rule can use, with its kind and meaning."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.preflight.rules.condition import Kind


@dataclass(frozen=True, slots=True)
class Fact:
    """Kind and meaning of one fact that rules can use."""

    kind: Kind
    question: str
    settle: str = ""
    """Advice for the user if the fact is unknown."""


_HEADERS: Final = "give the checkpoint's directory, so that its safetensors headers can be read"
_CONFIG: Final = "give its config.json: the catalog's copy does not say"
_HOST: Final = "state it with --host, or --host here"
_LAUNCH: Final = "state it in --command"

VOCABULARY: Final[Mapping[str, Fact]] = {
    "engine": Fact(Kind.TEXT, "vllm, sglang, vllm-atom, sglang-atom, atom or trtllm"),
    "version": Fact(Kind.RELEASE, "the engine's release", "state it with --engine-version"),
    "platform": Fact(Kind.TEXT, "rocm, cuda or other"),
    "chip": Fact(Kind.TEXT, "the compiler target: gfx942, gfx950, sm_90, sm_100"),
    "accelerator": Fact(Kind.TEXT, "the accelerator's id in the catalog: mi300x, h100_sxm, h200_sxm"),
    "chip.fp8": Fact(Kind.TEXT, "the dialect its matrix units read: ocp, fnuz or none"),
    "chip.fp4": Fact(Kind.TEXTS, "fp4 formats its matrix units read"),
    "model.architecture": Fact(Kind.TEXT, "the architecture config.json names"),
    "model.attention": Fact(
        Kind.TEXTS,
        "gqa, mla, sparse, sliding, chunked, sinks, linear, compressed: the kinds of attention in its layers",
    ),
    "model.mm_prefix": Fact(Kind.FLAG, "whether image tokens attend to each other in both directions"),
    "model.head_dim": Fact(Kind.NUMBER, "width of the widest attention head"),
    "model.gqa_ratio": Fact(Kind.NUMBER, "query heads per key-value head, the most of any layer"),
    "model.moe": Fact(Kind.FLAG, "whether it has routed experts"),
    "model.expert_dtype": Fact(Kind.TEXT, "the format its routed experts are stored in, or none"),
    "model.heads_per_rank": Fact(Kind.NUMBER, "query heads on one device"),
    "model.expert_width_per_rank": Fact(Kind.NUMBER, "intermediate channels of one expert on one device"),
    "model.context": Fact(Kind.NUMBER, "tokens of context the model allows"),
    "model.rope": Fact(Kind.TEXT, "how its config scales rotary positions: default, llama3, yarn, ...", _CONFIG),
    "quant.method": Fact(Kind.TEXT, "the quant_method its config names, or none"),
    "quant.algo": Fact(
        Kind.TEXT, "the format of most quantised weights: FP8, NVFP4, MXFP4, MXFP8, INT4, INT8, or NONE"
    ),
    "quant.scheme": Fact(Kind.TEXT, "how far a weight scale reaches: tensor, channel, block, group, none"),
    "quant.weight_bits": Fact(Kind.NUMBER, "bits of a quantised weight"),
    "quant.activation_bits": Fact(Kind.NUMBER, "bits activations are quantised to; 16 is weight-only"),
    "quant.activation_type": Fact(Kind.TEXT, "float or int, of quantised activations"),
    "quant.group_size": Fact(Kind.NUMBER, "weights that share a scale, -1 for a whole channel"),
    "quant.desc_act": Fact(Kind.FLAG, "whether GPTQ reordered its inputs (activation order)"),
    "quant.kv_granularity": Fact(Kind.TEXT, "how far a KV scale reaches: tensor, attn_head, none"),
    "weights.formats": Fact(Kind.TEXTS, "weight formats the config implies: fp8, mxfp4, nvfp4, bf16, ..."),
    "tensors.dtypes": Fact(Kind.TEXTS, "dtypes in the safetensors headers", _HEADERS),
    "tensors.kinds": Fact(Kind.TEXTS, "last words of the stored names: weight, weight_scale, k_scale, ...", _HEADERS),
    "weights.e8m0_scales": Fact(
        Kind.FLAG, "whether FP8 weights carry power-of-two scales stored as one byte", _HEADERS
    ),
    "bytes.fp8_nan": Fact(Kind.FLAG, "whether FP8 weights hold NaN codes", "run `penstock fp8 scan`"),
    "bytes.e8m0_top": Fact(Kind.FLAG, "whether e8m0 scales hold bytes 254 or 255", "run `penstock fp8 scan`"),
    "kv.dtype": Fact(Kind.TEXT, "the requested KV cache dtype: auto, bfloat16, fp8, fp8_e5m2, nvfp4, ..."),
    "kv.stored": Fact(Kind.TEXT, "the dtype in which keys and values are stored: bf16, fp16, fp8, nvfp4, ..."),
    "kv.scales": Fact(Kind.FLAG, "whether the checkpoint has k/v scales", _HEADERS),
    "parallel.tp": Fact(Kind.NUMBER, "tensor parallel ranks"),
    "parallel.dp": Fact(Kind.NUMBER, "attention data-parallel ranks"),
    "parallel.ep": Fact(Kind.FLAG, "whether experts are spread whole"),
    "parallel.devices": Fact(Kind.NUMBER, "devices of the replica"),
    "parallel.dcp": Fact(Kind.NUMBER, "decode context-parallel ranks"),
    "parallel.pcp": Fact(Kind.NUMBER, "prefill context-parallel ranks"),
    "parallel.all2all": Fact(Kind.TEXT, "the expert all-to-all backend, or default"),
    "launch.attention_backend": Fact(Kind.TEXT, "the requested backend, or auto"),
    "launch.attention": Fact(Kind.TEXT, "the backend the engine will use", "the selection for this chip was not read"),
    "launch.moe_backend": Fact(Kind.TEXT, "the requested MoE backend, or auto"),
    "launch.dtype": Fact(Kind.TEXT, "the requested dtype of activations, or auto"),
    "launch.block_size": Fact(Kind.NUMBER, "tokens of a KV cache block that the launch asks for", _LAUNCH),
    "launch.graphs": Fact(Kind.FLAG, "whether CUDA or HIP graphs are captured"),
    "launch.max_model_len": Fact(Kind.NUMBER, "the longest request"),
    "launch.batched_tokens": Fact(Kind.NUMBER, "tokens of the largest step"),
    "launch.sequences": Fact(Kind.NUMBER, "the most requests of one step"),
    "launch.speculative_tokens": Fact(Kind.NUMBER, "tokens drafted per step, 0 for none"),
    "launch.speculative_method": Fact(Kind.TEXT, "how they are drafted, or none"),
    "launch.kv_connector": Fact(Kind.FLAG, "whether KV leaves the engine (disaggregation, offload)"),
    "launch.image": Fact(Kind.TEXT, "the container image, or none", _LAUNCH),
    "launch.image_words": Fact(Kind.TEXTS, "the image's name and the words of its tag", _LAUNCH),
    "launch.install": Fact(Kind.TEXT, "docker, wheel or source", "state it with --host install=docker"),
    "launch.flags": Fact(Kind.TEXTS, "the flags of the launch command"),
    "launch.variables": Fact(Kind.TEXTS, "environment variables the launch sets"),
    "host.rocm": Fact(Kind.RELEASE, "the ROCm release under the engine", _HOST),
    "host.triton": Fact(Kind.RELEASE, "the Triton release", _HOST),
    "host.python": Fact(Kind.TEXT, "the Python in which the engine is installed, such as 3.12", _HOST),
    "host.mec_firmware": Fact(Kind.RELEASE, "the MEC firmware of the device", _HOST),
    "host.numa_balancing": Fact(Kind.FLAG, "whether the kernel moves pages between sockets", _HOST),
    "host.custom_kernels": Fact(Kind.FLAG, "whether the engine runs kernels of your own", _HOST),
}
"""All facts by name.

Rules can also use environment variables as facts. The fact `env.NAME` is the variable's value, or `unset`.
"""
