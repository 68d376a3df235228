"""Newer names for shapes that are read already: the same decoder under another architecture."""

import json

import pytest

from penstock.model import read_config

DECODER = {
    "hidden_size": 3072,
    "intermediate_size": 9216,
    "num_attention_heads": 32,
    "num_hidden_layers": 26,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 131072,
    "max_position_embeddings": 262144,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}


def weight_bytes(config: dict[str, object]) -> int:
    return read_config(json.dumps(config).encode(), "x").weight_bytes


@pytest.mark.parametrize("name", ["Ministral3ForCausalLM", "Mistral3ForConditionalGeneration"])
def test_a_newer_mistral_is_the_decoder_it_was(name: str) -> None:
    old = weight_bytes({"architectures": ["MistralForCausalLM"], **DECODER})
    new: dict[str, object] = {"architectures": [name], **DECODER}
    if name.endswith("Generation"):
        new = {"architectures": [name], "text_config": DECODER}
    assert weight_bytes(new) == old
