"""Which other models does the real engine serve? Tiny random checkpoints of several architectures.

Run by the Python of the engine's environment, which has Transformers and torch: `python tiny_models.py NAME FOLDER`.
"""

import sys
from pathlib import Path

TINY: dict[str, object] = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 512,
    "max_position_embeddings": 4096,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
ARCHITECTURES: dict[str, dict[str, object]] = {
    "llama": {},
    "qwen2": {},
    "qwen3": {"head_dim": 64},
    "mistral": {"sliding_window": None},
    "olmo2": {},
    "granite": {},
    "phi3": {},
    "starcoder2": {},
}


def write(name: str, folder: Path) -> None:
    """Write config and weights; the tokenizer is the caller's."""
    import torch  # type: ignore[import-not-found]  # noqa: PLC0415 - the engine's environment has it, this project's has not
    from transformers import AutoConfig, AutoModelForCausalLM  # type: ignore[import-not-found]  # noqa: PLC0415 - as above

    torch.manual_seed(0)
    config = AutoConfig.for_model(name, **{**TINY, **ARCHITECTURES[name]})
    config.torch_dtype = "float16"
    model = AutoModelForCausalLM.from_config(config).to(torch.float16)
    model.save_pretrained(folder, safe_serialization=True)


if __name__ == "__main__":
    write(sys.argv[1], Path(sys.argv[2]))
