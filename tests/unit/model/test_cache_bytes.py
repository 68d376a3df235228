"""KV bytes per token, written as the arithmetic of each layer kind."""

import pytest

from examples import model
from penstock.model import CacheDtype
from penstock.model.sequence_mixers import heads_on_device

BF16, FP8 = CacheDtype.BF16, CacheDtype.FP8


@pytest.mark.parametrize(
    ("name", "dtype", "expected"),
    [
        ("llama-3.1-8b", BF16, 32 * 2 * 8 * 128 * 2),
        ("llama-3.1-70b", BF16, 80 * 2 * 8 * 128 * 2),
        ("llama-3.1-70b", FP8, 80 * 2 * 8 * 128),
        # Latent attention: 512 + 64 elements, once, for all heads (DeepSeek-V3 report).
        ("deepseek-r1", BF16, 61 * (512 + 64) * 2),
        # Sparse: 656 packed bytes and the indexer's 128 + 4 (vLLM's fp8_ds_mla layout).
        ("deepseek-v3.2", FP8, 61 * (512 + 4 * 4 + 64 * 2 + 128 + 4)),
        # GLM-5.2 shares indexers: 21 of 78 layers own one.
        ("glm-5.2", BF16, 78 * (512 + 64) * 2 + 21 * (128 + 4)),
        # 584-byte entries, one per 4 or 128 tokens, and index keys beside the fine ones.
        ("deepseek-v4-flash", FP8, 21 * (584 + 132) / 4 + 20 * 584 / 128),
        # Keys of 192 and values of 128; sliding layers have twice the heads.
        ("mimo-v2-flash", BF16, 9 * 4 * 320 * 2 + 39 * 8 * 320 * 2),
        # Only every fourth layer caches tokens.
        ("qwen3.5-397b-a17b", BF16, 15 * 2 * 2 * 256 * 2),
        ("codestral-mamba-7b", BF16, 0),
    ],
)
def test_bytes_per_token(name: str, dtype: CacheDtype, expected: float) -> None:
    assert model(name).cache_bytes_per_token(dtype) == pytest.approx(expected)


def test_heads_are_replicated_not_cut() -> None:
    spec = model("llama-3.1-70b")
    assert spec.cache_bytes_per_token(BF16, tp=8) == spec.cache_bytes_per_token(BF16) / 8
    assert spec.cache_bytes_per_token(BF16, tp=16) == spec.cache_bytes_per_token(BF16) / 8
    assert heads_on_device(2, 8) == 1


def test_latents_are_the_same_on_every_device() -> None:
    spec = model("deepseek-r1")
    assert spec.cache_bytes_per_token(BF16, tp=8) == spec.cache_bytes_per_token(BF16)


def test_recurrent_state_does_not_grow_and_is_split() -> None:
    spec = model("qwen3.5-397b-a17b")
    # 45 layers of 64 heads x 128 x 128 in fp32, and three taps of 12,288 channels in bf16.
    per_layer = 64 * 128 * 128 * 4 + (2 * 16 * 128 + 64 * 128) * 3 * 2
    assert spec.state_bytes_per_sequence() == 45 * per_layer
    assert spec.state_bytes_per_sequence(tp=8) == 45 * per_layer / 8


def test_layer_kinds_are_told_apart() -> None:
    assert model("gpt-oss-120b").layer_kinds == {"sliding": 18, "full": 18}
    assert model("kimi-k3").layer_kinds == {"kda": 69, "latent": 24}
    assert model("nemotron-3-nano").layer_kinds == {"mamba2": 23, "full": 6}
    assert model("minimax-m3").layer_kinds == {"full": 3, "sparse": 57}
