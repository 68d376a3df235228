"""Registers the architectures that can be read exactly. The key is the name under `architectures` in a config."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.model.architectures import delta, dense, interleaved, latent, mamba, moe, vision
from penstock.model.architectures.deepseek_v4 import read_deepseek_v4
from penstock.model.architectures.gemma4 import read_gemma4, read_gemma4_vision
from penstock.model.architectures.outline import Outline, Reader
from penstock.model.architectures.vision import Tower

_LLAMA4_VISION = "the vision tower (0.9B) is not counted: this config does not describe it"
_PIXTRAL_VISION = "the vision tower (0.4B) is not counted: Pixtral's layout is not read"
_STEP_VISION = "the vision tower (about 2B) is not counted: this config does not describe it"


@dataclass(frozen=True, slots=True)
class Architecture:
    """Functions that read one architecture: its decoder and, if it has one, its vision tower."""

    decoder: Reader
    tower: Tower | None = None


ARCHITECTURES: Mapping[str, Architecture] = {
    "CohereForCausalLM": Architecture(dense.read_cohere),
    "Cohere2ForCausalLM": Architecture(dense.read_cohere),
    "DeciLMForCausalLM": Architecture(dense.read_nemotron_nas),
    "DeepseekV2ForCausalLM": Architecture(latent.read_deepseek),
    "DeepseekV3ForCausalLM": Architecture(latent.read_deepseek),
    "DeepseekV32ForCausalLM": Architecture(latent.read_deepseek),
    "DeepseekV4ForCausalLM": Architecture(read_deepseek_v4),
    "Exaone4ForCausalLM": Architecture(dense.read_exaone4),
    "FalconForCausalLM": Architecture(dense.read_falcon),
    "Gemma2ForCausalLM": Architecture(dense.read_gemma2),
    "Gemma3ForCausalLM": Architecture(dense.read_gemma3),
    "Gemma3ForConditionalGeneration": Architecture(dense.read_gemma3, vision.read_siglip),
    "Gemma4ForConditionalGeneration": Architecture(read_gemma4, read_gemma4_vision),
    "Glm4ForCausalLM": Architecture(dense.read_glm4),
    "Glm4MoeForCausalLM": Architecture(moe.read_glm4_moe),
    "Glm4MoeLiteForCausalLM": Architecture(latent.read_deepseek),
    "GlmMoeDsaForCausalLM": Architecture(latent.read_deepseek),
    "GptOssForCausalLM": Architecture(interleaved.read_gpt_oss),
    "GraniteForCausalLM": Architecture(dense.read_llama),
    "GraniteMoeHybridForCausalLM": Architecture(mamba.read_granite_hybrid),
    "KimiK25ForConditionalGeneration": Architecture(latent.read_deepseek, vision.read_moonvit),
    "KimiK3ForConditionalGeneration": Architecture(delta.read_kimi_linear, vision.read_moonvit),
    "KimiLinearForCausalLM": Architecture(delta.read_kimi_linear),
    "LlamaForCausalLM": Architecture(dense.read_llama),
    "Llama4ForConditionalGeneration": Architecture(interleaved.read_llama4, vision.note_only(_LLAMA4_VISION)),
    "Llama4ForCausalLM": Architecture(interleaved.read_llama4),
    "Mamba2ForCausalLM": Architecture(mamba.read_mamba2),
    "MiMoForCausalLM": Architecture(dense.read_mimo),
    "MiMoV2FlashForCausalLM": Architecture(interleaved.read_mimo_v2),
    "MiMoV2ForCausalLM": Architecture(interleaved.read_mimo_v2),
    "MiniMaxM2ForCausalLM": Architecture(moe.read_minimax_m2),
    "MiniMaxM3ForCausalLM": Architecture(interleaved.read_minimax_m3, vision.read_minimax_vision),
    "MiniMaxM3SparseForConditionalGeneration": Architecture(interleaved.read_minimax_m3, vision.read_minimax_vision),
    "Ministral3ForCausalLM": Architecture(dense.read_llama),
    "Mistral3ForConditionalGeneration": Architecture(dense.read_llama, vision.note_only(_PIXTRAL_VISION)),
    # vLLM's class is DeepSeek-V3's with other names for the weights (mistral_large_3.py at a014e35f38c8).
    "MistralLarge3ForCausalLM": Architecture(latent.read_deepseek),
    "MistralForCausalLM": Architecture(dense.read_llama),
    "MixtralForCausalLM": Architecture(moe.read_mixtral),
    "NemotronHForCausalLM": Architecture(mamba.read_nemotron_h),
    "Olmo2ForCausalLM": Architecture(dense.read_olmo2),
    "Olmo3ForCausalLM": Architecture(dense.read_olmo2),
    "OlmoeForCausalLM": Architecture(moe.read_olmoe),
    "Phi3ForCausalLM": Architecture(dense.read_phi3),
    "PhiMoEForCausalLM": Architecture(moe.read_phimoe),
    "Qwen2ForCausalLM": Architecture(dense.read_qwen2),
    "Qwen2MoeForCausalLM": Architecture(moe.read_qwen2_moe),
    "Qwen2_5_VLForConditionalGeneration": Architecture(dense.read_qwen2, vision.read_qwen25_vision),
    "Qwen3ForCausalLM": Architecture(dense.read_qwen3),
    "Qwen3MoeForCausalLM": Architecture(moe.read_qwen3_moe),
    "Qwen3NextForCausalLM": Architecture(delta.read_qwen3_hybrid),
    "Qwen3VLForConditionalGeneration": Architecture(dense.read_qwen3, vision.read_qwen3_vision),
    "Qwen3VLMoeForConditionalGeneration": Architecture(moe.read_qwen3_moe, vision.read_qwen3_vision),
    "Qwen3_5ForCausalLM": Architecture(delta.read_qwen3_hybrid),
    "Qwen3_5ForConditionalGeneration": Architecture(delta.read_qwen3_hybrid, vision.read_qwen3_vision),
    "Qwen3_5MoeForCausalLM": Architecture(delta.read_qwen3_hybrid),
    "Qwen3_5MoeForConditionalGeneration": Architecture(delta.read_qwen3_hybrid, vision.read_qwen3_vision),
    "SeedOssForCausalLM": Architecture(dense.read_llama),
    "SmolLM3ForCausalLM": Architecture(dense.read_llama),
    "Starcoder2ForCausalLM": Architecture(dense.read_starcoder2),
    "Step3p5ForCausalLM": Architecture(interleaved.read_step3),
    "Step3p7FlashForCausalLM": Architecture(interleaved.read_step3, vision.note_only(_STEP_VISION)),
}

_INKLING = "Inkling mixes windows with short convolutions; vLLM serves it from 0.26.0, SGLang from 0.5.16"
UNREAD: Mapping[str, str] = {
    "AfmoeForCausalLM": "Trinity gates its attention; vLLM serves it from 0.11.1, SGLang from 0.5.8",
    "BailingMoeV3ForCausalLM": "Ling 3.0 mixes latent and Kimi delta attention; vLLM serves it from 0.28.0",
    "HYV3ForCausalLM": "Hy3 states its experts in a way of its own; vLLM serves it from 0.20.0, SGLang from 0.5.11",
    "InklingForCausalLM": _INKLING,
    "InklingForConditionalGeneration": _INKLING,
    "LagunaForCausalLM": "Laguna gates its attention; vLLM serves it from 0.21.0, SGLang from 0.5.12",
}
"""Architectures that engines serve but this version does not read. The reader of a similar architecture would give
wrong sizes."""

__all__ = ["ARCHITECTURES", "UNREAD", "Architecture", "Outline"]
