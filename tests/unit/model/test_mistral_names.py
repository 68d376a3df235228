"""Newer names for shapes that are read already: the same decoder under another architecture."""

import json

import pytest

from penstock.catalog import find_model
from penstock.errors import UnknownArchitecture
from penstock.model import read_config
from penstock.model.architectures import ARCHITECTURES, UNREAD

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


def test_mistral_large_3_is_counted_as_the_deepseek_it_is() -> None:
    deepseek = dict(find_model("deepseek-v3").config)
    assert weight_bytes({**deepseek, "architectures": ["MistralLarge3ForCausalLM"]}) == weight_bytes(deepseek)


@pytest.mark.parametrize("key", ["kv_lora_rank", "n_routed_experts", "num_local_experts", "num_experts"])
def test_experts_or_latents_inside_a_plain_wrapper_are_refused_and_not_left_out(key: str) -> None:
    inner = {**DECODER, key: 64}
    with pytest.raises(UnknownArchitecture, match=key):
        weight_bytes({"architectures": ["Mistral3ForConditionalGeneration"], "text_config": inner})


@pytest.mark.parametrize("name", sorted(UNREAD))
def test_an_architecture_engines_serve_and_we_do_not_read_is_refused_with_its_reason(name: str) -> None:
    assert name not in ARCHITECTURES
    with pytest.raises(UnknownArchitecture, match=r"cannot be read: .*vLLM serves it from 0\.\d+"):
        weight_bytes({"architectures": [name], **DECODER})
