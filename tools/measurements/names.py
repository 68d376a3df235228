"""What do the raw files mean by their names? Models, formats, engines and sources in the words of the catalog."""

from typing import Final

from penstock.catalog import load_accelerator

MODELS: Final = {
    "llama-3-70b": "llama-3.1-70b",
    "llama-4-maverick-400b-a17b": "llama-4-maverick",
    "llama-4-scout-109b-a17b": "llama-4-scout",
    "dsr1": "deepseek-r1",
    "dsv4": "deepseek-v4-pro",
    "glm5": "glm-5",
    "glm5.1": "glm-5.1",
    "gptoss120b": "gpt-oss-120b",
    "kimik2.5": "kimi-k2.5",
    "kimi-k2.6": "kimi-k2.5",
    "llama70b": "llama-3.3-70b",
    "minimaxm2.5": "minimax-m2.5",
    "minimaxm3": "minimax-m3",
    "qwen3.5": "qwen3.5-397b-a17b",
    "qwen3.8-27b": "qwen3.6-27b",
}
"""Catalog id of each name of a raw file. Some are other models of the same shape: Kimi-K2.6, and Qwen3.8-27B, of which
SGLang's cookbook says that its architecture is that of Qwen3.6-27B."""
INFERENCEX_MODELS: Final = {"deepseek-v3": "deepseek-r1", "llama-3.1-70b": "llama-3.3-70b"}
"""aiconfigurator's file names the shape; the configurations it cites by number are InferenceX's R1 and Llama 3.3."""
ENGINES: Final = {
    "tensorrt-llm": "trtllm",
    "trt": "trtllm",
    "vllm-rocm": "vllm",
    "dynamo-sglang": "sglang",
    "dynamo-trt": "trtllm",
    "dynamo-vllm": "vllm",
    "mooncake-atom": "atom",
    "mori-sglang": "sglang",
    "vllm-disagg": "vllm",
}
_ALWAYS_MXFP4: Final = {"gpt-oss-120b", "deepseek-v4-pro"}
"""Released in MXFP4: what InferenceX calls fp4 is the checkpoint as it is, on every vendor."""


def model_name(raw: str, *, inferencex: bool = False) -> str:
    """Name a model as the catalog does."""
    name = MODELS.get(raw, raw)
    return INFERENCEX_MODELS.get(name, name) if inferencex else name


def weight_format(raw: str, model: str, accelerator: str) -> str:
    """Name a weight format; `fp4` is the vendor's own unless the model was released in one."""
    if raw == "fp16":
        return "bf16"
    if raw != "fp4":
        return raw
    amd = load_accelerator(accelerator).vendor == "amd"
    return "mxfp4" if amd or model in _ALWAYS_MXFP4 else "nvfp4"


def inner_engine(raw: str) -> str:
    """Name the engine inside whatever runs it."""
    return ENGINES.get(raw, raw)


def stack_name(raw: str) -> str:
    """Name what runs the engines, where it is more than an engine."""
    return raw if raw.startswith(("dynamo-", "mori-", "mooncake-")) or raw == "vllm-disagg" else ""
