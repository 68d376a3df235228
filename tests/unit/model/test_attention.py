"""What a query reads and multiplies in each kind of layer, as arithmetic on the published shapes."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import model
from penstock.model import CacheDtype
from penstock.model.sequence_mixers import EVERYTHING, GroupedAttention, SequenceMixer, heads_on_device

BF16, FP8 = CacheDtype.BF16, CacheDtype.FP8


@given(heads=st.integers(1, 256), tp=st.integers(1, 64))
def test_devices_together_hold_every_head_and_no_device_one_too_many(heads: int, tp: int) -> None:
    each = heads_on_device(heads, tp)
    assert (each - 1) * tp < heads <= each * tp


def mixer(name: str, kind: str) -> SequenceMixer:
    return next(layer.mixer for layer in model(name).layers if layer.mixer is not None and layer.mixer.kind == kind)


def attended(of: SequenceMixer, tokens: int) -> float:
    return sum(share * min(tokens, limit) for limit, share in of.sight)


@pytest.mark.parametrize(
    ("name", "kind", "tokens", "expected"),
    [
        ("llama-3.1-70b", "full", 100_000, 100_000),
        ("gpt-oss-120b", "sliding", 100_000, 128),
        ("gpt-oss-120b", "sliding", 100, 100),
        ("deepseek-r1", "latent", 100_000, 100_000),
        ("deepseek-v3.2", "latent_sparse", 100_000, 2048),
        # Sixteen blocks of 128.
        ("minimax-m3", "sparse", 100_000, 16 * 128),
        # A window of 128 raw entries; then one entry in 128, or the 512 an indexer chooses of one in four.
        ("deepseek-v4-flash", "window", 100_000, 128),
        ("deepseek-v4-flash", "compressed_128", 128_000, 128 + 128_000 / 128),
        ("deepseek-v4-flash", "compressed_4", 1000, 128 + 1000 / 4),
        ("deepseek-v4-flash", "compressed_4", 100_000, 128 + 512),
        ("qwen3.5-397b-a17b", "gated_delta", 100_000, 0),
    ],
)
def test_a_query_attends_to_the_window_the_chosen_or_everything(
    name: str, kind: str, tokens: int, expected: float
) -> None:
    assert attended(mixer(name, kind), tokens) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "kind", "dtype", "expected"),
    [
        ("llama-3.1-70b", "full", BF16, 0),
        ("deepseek-r1", "latent", FP8, 0),
        ("deepseek-v3.2", "latent_sparse", BF16, 128 + 4),
        ("minimax-m3", "sparse", BF16, 128 * 2),
        ("minimax-m3", "sparse", FP8, 128),
        ("deepseek-v4-flash", "compressed_4", FP8, (128 + 4) / 4),
        ("deepseek-v4-flash", "compressed_128", FP8, 0),
        ("deepseek-v4-flash", "window", FP8, 0),
        ("qwen3.5-397b-a17b", "gated_delta", BF16, 0),
    ],
)
def test_index_keys_are_read_for_every_token_where_there_is_an_indexer(
    name: str, kind: str, dtype: CacheDtype, expected: float
) -> None:
    assert mixer(name, kind).index_bytes(dtype) == expected


@pytest.mark.parametrize(
    ("name", "kind", "dtype", "tp", "expected"),
    [
        ("llama-3.1-70b", "full", BF16, 1, 8 * (128 + 128) * 2),
        ("llama-3.1-70b", "full", BF16, 16, 1 * (128 + 128) * 2),
        ("deepseek-r1", "latent", BF16, 8, (512 + 64) * 2),
        ("deepseek-v3.2", "latent_sparse", FP8, 8, 512 + 4 * 4 + 64 * 2),
        ("minimax-m3", "sparse", FP8, 1, 4 * (128 + 128)),
        ("deepseek-v4-flash", "compressed_4", FP8, 1, 584),
        ("qwen3.5-397b-a17b", "gated_delta", BF16, 1, 0),
    ],
)
def test_an_entry_is_read_as_it_is_stored(name: str, kind: str, dtype: CacheDtype, tp: int, expected: float) -> None:
    assert mixer(name, kind).entry_bytes(dtype, tp) == expected


def test_what_is_held_for_a_token_is_its_entry_and_its_index_key() -> None:
    for name, kind in (("llama-3.1-70b", "full"), ("deepseek-v3.2", "latent_sparse"), ("minimax-m3", "sparse")):
        one = mixer(name, kind)
        for dtype in (BF16, FP8):
            assert one.bytes_per_token(dtype, 2) == one.entry_bytes(dtype, 2) + one.index_bytes(dtype)


def test_a_layer_that_borrows_its_keys_holds_none_and_reads_them_all_the_same() -> None:
    own = GroupedAttention(query_heads=8, kv_heads=2, key_dim=256, value_dim=256)
    borrowed = replace(own, shares_cache=True)
    assert borrowed.bytes_per_token(BF16, 1) == 0
    assert borrowed.entry_bytes(BF16, 1) == own.entry_bytes(BF16, 1) == 2 * (256 + 256) * 2


@pytest.mark.parametrize(
    ("name", "kind", "decode", "prefill"),
    [
        ("llama-3.1-70b", "full", 2 * 64 * (128 + 128), 2 * 64 * (128 + 128)),
        # Decoding multiplies with the latent (512 + 64, then 512), prefill with heads of 128 + 64 and 128.
        ("deepseek-r1", "latent", 2 * 128 * (512 + 64 + 512), 2 * 128 * (128 + 64 + 128)),
        ("deepseek-v4-flash", "window", 4 * 64 * 512, 4 * 64 * 512),
        ("qwen3.5-397b-a17b", "gated_delta", 0, 0),
    ],
)
def test_a_query_and_an_entry_multiply(name: str, kind: str, decode: float, prefill: float) -> None:
    one = mixer(name, kind)
    assert (one.decode_flops(1), one.prefill_flops(1)) == (decode, prefill)
    # Half of the heads, half of the work; less than one head is never computed.
    assert one.decode_flops(2) == decode / 2
    assert one.decode_flops(4096) == one.decode_flops(1024)


def test_indexed_compressed_and_recurrent_layers_launch_more_kernels() -> None:
    plain = [("llama-3.1-70b", "full"), ("gpt-oss-120b", "sliding"), ("deepseek-r1", "latent")]
    more = [
        ("minimax-m3", "sparse"),
        ("deepseek-v3.2", "latent_sparse"),
        ("deepseek-v4-flash", "window"),
        ("qwen3.5-397b-a17b", "gated_delta"),
    ]
    assert not any(mixer(*which).extra_kernels for which in plain)
    assert all(mixer(*which).extra_kernels for which in more)


def test_only_what_a_sequence_keeps_running_is_read_whatever_its_length() -> None:
    delta = mixer("qwen3.5-397b-a17b", "gated_delta")
    assert delta.state_bytes(BF16, 8) == delta.bytes_per_sequence(BF16, 8)
    fine = mixer("deepseek-v4-flash", "compressed_4")
    # The window is attended to, entry by entry; the compressors' state is read whole.
    assert fine.bytes_per_sequence(FP8, 1) == 128 * 584 + fine.state_bytes(FP8, 1)
    assert mixer("llama-3.1-70b", "full").state_bytes(BF16, 1) == 0


def test_full_attention_has_no_limit() -> None:
    assert mixer("llama-3.1-70b", "full").sight == ((EVERYTHING, 1.0),)
