"""What model does the real engine serve? A small Llama with random weights and one word per token."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

SPECIAL_WORDS = ("<pad>", "<bos>", "<eos>", "<unk>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A Llama of 33M weights: large enough that a step is mostly arithmetic, small enough for one core."""

    hidden_size: int = 512
    intermediate_size: int = 1536
    num_hidden_layers: int = 8
    num_attention_heads: int = 8
    num_key_value_heads: int = 4
    head_dim: int = 64
    vocab_size: int = 8192
    max_position_embeddings: int = 4096

    @property
    def kv_bytes_per_token(self) -> int:
        """Key and value of every layer in bfloat16."""
        return 2 * self.num_hidden_layers * self.num_key_value_heads * self.head_dim * 2


def write_model(folder: Path, shape: Shape, *, seed: int = 0) -> None:
    """A folder `vllm serve` opens without a hub: config, weights and a tokenizer that never merges words."""
    write_config(folder, shape)
    write_safetensors(folder / "model.safetensors", dict(_weights(shape, np.random.default_rng(seed))))


def write_config(folder: Path, shape: Shape) -> None:
    """The same folder without weights."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        **asdict(shape),
    }
    _write_json(folder / "config.json", config)
    _write_json(folder / "tokenizer.json", word_tokenizer(shape.vocab_size))
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "pad_token": "<pad>",
            "bos_token": "<bos>",
            "eos_token": "<eos>",
        },
    )


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def word_tokenizer(vocab_size: int) -> dict[str, object]:
    """Every id is a whole word, so that every generated token is text at once and reaches the client in its step."""
    words = [*SPECIAL_WORDS, *(f"w{index}" for index in range(vocab_size - len(SPECIAL_WORDS)))]
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": index, "content": word, **special} for index, word in enumerate(SPECIAL_WORDS)],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {word: index for index, word in enumerate(words)},
            "unk_token": "<unk>",
        },
    }


def _weights(
    shape: Shape, random: np.random.Generator
) -> Iterator[tuple[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]]:
    def normal(*size: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return np.float32(0.02) * random.standard_normal(size, dtype=np.float32)

    hidden, inner = shape.hidden_size, shape.intermediate_size
    queries, keys = shape.num_attention_heads * shape.head_dim, shape.num_key_value_heads * shape.head_dim
    ones = np.ones(hidden, dtype=np.float32)
    yield "model.embed_tokens.weight", normal(shape.vocab_size, hidden)
    for layer in range(shape.num_hidden_layers):
        at = f"model.layers.{layer}"
        yield f"{at}.self_attn.q_proj.weight", normal(queries, hidden)
        yield f"{at}.self_attn.k_proj.weight", normal(keys, hidden)
        yield f"{at}.self_attn.v_proj.weight", normal(keys, hidden)
        yield f"{at}.self_attn.o_proj.weight", normal(hidden, queries)
        yield f"{at}.mlp.gate_proj.weight", normal(inner, hidden)
        yield f"{at}.mlp.up_proj.weight", normal(inner, hidden)
        yield f"{at}.mlp.down_proj.weight", normal(hidden, inner)
        yield f"{at}.input_layernorm.weight", ones
        yield f"{at}.post_attention_layernorm.weight", ones
    yield "model.norm.weight", ones
    yield "lm_head.weight", normal(shape.vocab_size, hidden)


def write_safetensors(path: Path, tensors: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]) -> None:
    """Write tensors in bfloat16: a length, a JSON header and the bytes.

    Numpy has no bfloat16, which is a float32's upper half.
    """
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + 2 * tensor.size
        header[name] = {"dtype": "BF16", "shape": tensor.shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for tensor in tensors.values():
            file.write((tensor.view(np.uint32) >> 16).astype("<u2").tobytes())
