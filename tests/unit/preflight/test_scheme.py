"""How each quantisation dialect is read, as kernels see it."""

from typing import Any

import pytest

from penstock.catalog import find_model
from penstock.model import read_model
from penstock.model.config_json import Config
from penstock.preflight.facts.quantisation_scheme import UNQUANTISED, Scheme, read_scheme

FP8_STATIC = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False}
INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "actorder": "group"}


def scheme_of(section: dict[str, Any] | None, sidecar: dict[str, Any] | None = None) -> Scheme:
    raw = {key: value for key, value in find_model("llama-3.1-70b").config.items() if key != "quantization_config"}
    if section is not None:
        raw["quantization_config"] = section
    config, beside = Config(raw, "test"), None if sidecar is None else Config(sidecar, "sidecar")
    return read_scheme(read_model(config, "test", beside), config, beside)


def test_no_section_is_unquantised() -> None:
    assert scheme_of(None) == UNQUANTISED


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        (
            {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
            ("fp8", "FP8", "block", 8, 8, "float"),
        ),
        ({"quant_method": "fp8", "activation_scheme": "static"}, ("fp8", "FP8", "tensor", 8, 8, "float")),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"g": {"targets": ["Linear"], "weights": FP8_STATIC, "input_activations": FP8_STATIC}},
            },
            ("compressed-tensors", "FP8", "tensor", 8, 8, "float"),
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"g": {"targets": ["Linear"], "weights": INT4, "input_activations": None}},
            },
            ("compressed-tensors", "INT4", "group", 4, 16, "none"),
        ),
        (
            {"quant_method": "gptq", "bits": 4, "group_size": 64, "desc_act": True},
            ("gptq", "INT4", "group", 4, 16, "none"),
        ),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, ("awq", "INT4", "group", 4, 16, "none")),
        (
            {
                "quant_method": "quark",
                "global_quant_config": {
                    "weight": {"dtype": "fp8_e4m3", "qscheme": "per_tensor"},
                    "input_tensors": {"dtype": "fp8_e4m3", "qscheme": "per_tensor"},
                },
            },
            ("quark", "FP8", "tensor", 8, 8, "float"),
        ),
        (
            {"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4", "group_size": 32}}},
            ("quark", "MXFP4", "group", 4, 16, "none"),
        ),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, ("modelopt", "NVFP4", "group", 4, 4, "float")),
    ],
)
def test_each_dialect(section: dict[str, Any], expected: tuple[object, ...]) -> None:
    read = scheme_of(section)
    held = (read.method, read.algo, read.granularity, read.weight_bits, read.activation_bits, read.activation_type)
    assert held == expected


def test_activation_order_is_read_in_both_spellings() -> None:
    assert scheme_of({"quant_method": "gptq", "bits": 4, "group_size": 64, "desc_act": True}).desc_act is True
    group = {"quant_method": "compressed-tensors", "config_groups": {"g": {"targets": ["Linear"], "weights": INT4}}}
    assert scheme_of(group).desc_act is True
    assert scheme_of({"quant_method": "awq", "bits": 4}).desc_act is False


def test_a_sidecar_alone_names_modelopt_and_its_cache() -> None:
    read = scheme_of(None, {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}})
    assert (read.method, read.algo, read.granularity, read.kv_granularity) == ("modelopt", "FP8", "tensor", "tensor")


def test_scales_per_head_are_read() -> None:
    section = {
        "quant_method": "compressed-tensors",
        "config_groups": {"g": {"targets": ["Linear"], "weights": FP8_STATIC}},
        "kv_cache_scheme": {"num_bits": 8, "type": "float", "strategy": "attn_head"},
    }
    assert scheme_of(section).kv_granularity == "attn_head"
