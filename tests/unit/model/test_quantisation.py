"""Each quantisation dialect on one small Llama, and what its ignore list leaves alone."""

import json
from collections.abc import Mapping

import pytest

from penstock.errors import ConfigError
from penstock.model import CacheDtype, ModelSpec, read_config

HIDDEN, FFN, VOCAB, LAYERS = 256, 512, 1024, 2
LLAMA: dict[str, object] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": HIDDEN,
    "intermediate_size": FFN,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": LAYERS,
    "vocab_size": VOCAB,
    "torch_dtype": "bfloat16",
}
LINEAR = LAYERS * (2 * HIDDEN * HIDDEN + 2 * HIDDEN * HIDDEN // 2 + 3 * HIDDEN * FFN)
REST_BYTES = 2 * (2 * VOCAB * HIDDEN + (2 * LAYERS + 1) * HIDDEN)


def read(section: Mapping[str, object] | None = None, sidecar: Mapping[str, object] | None = None) -> ModelSpec:
    config = LLAMA if section is None else {**LLAMA, "quantization_config": section}
    beside = None if sidecar is None else json.dumps(sidecar).encode()
    return read_config(json.dumps(config).encode(), "small", beside)


def groups(per_row: int) -> int:
    """Scales when each covers `per_row` inputs of one output."""
    return LINEAR // per_row


def test_unquantised() -> None:
    assert read().weight_bytes == 2 * LINEAR + REST_BYTES


def test_fp8_blocks_store_a_scale_each() -> None:
    spec = read({"quant_method": "fp8", "weight_block_size": [128, 128]})
    assert spec.weight_bytes == LINEAR + 4 * LINEAR // (128 * 128) + REST_BYTES


def test_fp8_blocks_with_power_of_two_scales_store_a_byte_each() -> None:
    spec = read({"quant_method": "fp8", "weight_block_size": [128, 128], "scale_fmt": "ue8m0"})
    assert spec.weight_bytes == LINEAR + LINEAR // (128 * 128) + REST_BYTES


def test_fp8_per_tensor_stores_one_scale_a_matrix() -> None:
    assert read({"quant_method": "fp8"}).weight_bytes == LINEAR + 4 * 7 * LAYERS + REST_BYTES


def test_modules_not_converted_keep_their_dtype() -> None:
    attention = LINEAR - LAYERS * 3 * HIDDEN * FFN
    spec = read({"quant_method": "fp8", "modules_to_not_convert": ["self_attn", "lm_head"]})
    assert spec.weight_bytes == LINEAR + attention + 4 * 3 * LAYERS + REST_BYTES


@pytest.mark.parametrize(("bits", "zero_point_bits"), [(4, 4), (8, 8)])
def test_awq_stores_scales_and_zero_points(bits: int, zero_point_bits: int) -> None:
    spec = read({"quant_method": "awq", "bits": bits, "group_size": 128, "zero_point": True})
    scales = groups(128) * (16 + zero_point_bits) // 8
    assert spec.weight_bytes == LINEAR * bits // 8 + scales + REST_BYTES


def test_gptq_four_bits() -> None:
    spec = read({"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": True})
    assert spec.weight_bytes == LINEAR // 2 + groups(32) * 20 // 8 + REST_BYTES


def test_compressed_tensors_reads_groups_targets_and_regular_expressions() -> None:
    weights = {"num_bits": 8, "type": "float", "strategy": "channel"}
    spec = read(
        {
            "quant_method": "compressed-tensors",
            "format": "float-quantized",
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
            "ignore": ["lm_head", "re:.*down_proj"],
            "kv_cache_scheme": {"num_bits": 8, "type": "float"},
        }
    )
    down = LAYERS * HIDDEN * FFN
    rows = LAYERS * (HIDDEN + 2 * HIDDEN // 2 + HIDDEN + 2 * FFN)
    assert spec.weight_bytes == LINEAR + down + 4 * rows + REST_BYTES
    assert spec.cache_dtype is CacheDtype.FP8


def test_nvfp4_stores_a_byte_per_sixteen() -> None:
    section = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": ["lm_head"]}
    spec = read({**section, "kv_cache_quant_algo": "FP8"})
    assert spec.weight_bytes == LINEAR // 2 + groups(16) + REST_BYTES
    assert spec.cache_dtype is CacheDtype.FP8


def test_modelopt_sidecar_is_read_when_the_config_is_silent() -> None:
    sidecar = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    spec = read(sidecar=sidecar)
    assert spec.quantisation == "modelopt fp8"
    assert spec.weight_bytes == LINEAR + 4 * 7 * LAYERS + REST_BYTES


def test_modelopt_wildcards_cover_what_is_below_them() -> None:
    listed = ["lm_head", "model.layers.0.self_attn*"]
    spec = read({"quant_method": "modelopt", "quant_algo": "FP8", "exclude_modules": listed})
    attention = (LINEAR - LAYERS * 3 * HIDDEN * FFN) // LAYERS
    assert spec.weight_bytes == LINEAR + attention + 4 * (7 * LAYERS - 4) + REST_BYTES


def test_modelopt_mixed_precision_lists_each_module() -> None:
    listed = {"model.layers.0.mlp.up_proj": {"quant_algo": "NVFP4", "group_size": 16}}
    spec = read({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": listed})
    one = HIDDEN * FFN
    assert spec.weight_bytes == 2 * (LINEAR - one) + one // 2 + one // 16 + REST_BYTES


def test_quark_global_and_per_layer_schemes() -> None:
    spec = read(
        {
            "quant_method": "quark",
            "global_quant_config": {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}},
            "layer_quant_config": {"*down_proj": {"weight": {"dtype": "fp4", "group_size": 32}}},
            "exclude": ["lm_head"],
            "export": {"kv_cache_group": ["*k_proj", "*v_proj"]},
        }
    )
    down = LAYERS * HIDDEN * FFN
    assert spec.weight_bytes == (LINEAR - down) + 4 * 6 * LAYERS + down // 2 + down // 32 + REST_BYTES
    assert spec.cache_dtype is CacheDtype.FP8


def test_mxfp4_touches_experts_only() -> None:
    assert read({"quant_method": "mxfp4"}).weight_bytes == 2 * LINEAR + REST_BYTES


def test_bitsandbytes() -> None:
    spec = read({"quant_method": "bitsandbytes", "load_in_4bit": True})
    assert spec.weight_bytes == LINEAR // 2 + groups(64) + REST_BYTES


@pytest.mark.parametrize(
    ("section", "complaint"),
    [
        ({"quant_method": "squeeze"}, "'squeeze' is not known"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "two positive integers"),
        ({"quant_method": "modelopt", "quant_algo": "FP3"}, "'FP3' is not known"),
        ({"quant_method": "awq"}, "bits or w_bit is missing"),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "int3"}}}, "'int3' is not known"),
    ],
)
def test_an_unknown_scheme_is_refused_by_name(section: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        read(section)


def test_a_pattern_that_could_hang_is_refused_or_matched_in_bounded_time() -> None:
    section = {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float"}}},
    }
    assert read({**section, "ignore": ["re:(a*)*(a*)*(a*)*b"]}).weight_bytes > 0
    with pytest.raises(ConfigError, match="bounded time"):
        read({**section, "ignore": ["re:^(?!.*lm_head).*$"]})


def test_precision_asked_for_leaves_head_and_embeddings_alone() -> None:
    from penstock.model.weight import FP8_CHANNEL  # noqa: PLC0415

    spec = read().stored_as(FP8_CHANNEL)
    assert spec.formats["bf16"] == REST_BYTES
