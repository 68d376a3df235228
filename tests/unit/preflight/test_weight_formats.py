"""Which kernel multiplies a format, where activations or the method that stored it decide."""

from collections.abc import Mapping
from typing import Any

import pytest

from penstock.catalog import load_accelerator
from penstock.checkpoint import open_checkpoint
from penstock.fleet import Parallelism, Release
from penstock.fleet.engines import EngineName
from penstock.model import read_model
from penstock.model.config_json import Config
from penstock.preflight import LaunchChoices, Preflight, PreflightQuestion, Subject, check, load_knowledge, read_scheme

KNOWLEDGE = load_knowledge()
GPTQ_8 = {"quant_method": "gptq", "bits": 8, "group_size": 32, "sym": True, "desc_act": False}


def grouped(weights: Mapping[str, Any], inputs: Mapping[str, Any] | None, stored: str) -> dict[str, Any]:
    """Write a compressed-tensors section."""
    group = {
        "targets": ["Linear"],
        "weights": dict(weights),
        "input_activations": None if inputs is None else dict(inputs),
    }
    return {
        "quant_method": "compressed-tensors",
        "format": stored,
        "ignore": ["lm_head"],
        "config_groups": {"group_0": group},
    }


INT8 = {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True, "dynamic": False}
W8A16 = grouped({**INT8, "strategy": "group", "group_size": 128}, None, "pack-quantized")
W8A8 = grouped(
    INT8, {"num_bits": 8, "type": "int", "strategy": "token", "symmetric": True, "dynamic": True}, "int-quantized"
)
FP4 = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True}
NVFP4 = grouped({**FP4, "dynamic": False}, {**FP4, "dynamic": "local"}, "nvfp4-pack-quantized")
MODELOPT_NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": ["lm_head"]}


def ask(section: Mapping[str, Any], on: str, engine: EngineName = "vllm", version: str = "0.32.0") -> Preflight:
    known = open_checkpoint("llama-3.1-8b").config
    assert known is not None
    config = Config({**known.raw, "quantization_config": dict(section)}, "config.json")
    model = read_model(config, "quantised", None)
    return check(
        PreflightQuestion(
            subject=Subject(model=model, scheme=read_scheme(model, config, None), name="./quantised"),
            accelerator=load_accelerator(on),
            engine=engine,
            version=Release(version),
            asked=LaunchChoices(parallelism=Parallelism()),
        ),
        KNOWLEDGE,
    )


@pytest.mark.parametrize("section", [GPTQ_8, W8A16], ids=["gptq", "compressed-tensors"])
@pytest.mark.parametrize("on", ["b200", "b300", "h100", "a100_80gb_sxm", "rtx_pro_6000"])
def test_eight_bit_weights_meet_sixteen_bit_activations_in_marlin(section: Mapping[str, Any], on: str) -> None:
    answer = ask(section, on)
    assert answer.passes
    assert "Marlin" in answer.kernels[0].by


def test_eight_bit_weights_and_activations_have_no_kernel_on_blackwell() -> None:
    assert [stop.kind for stop in ask(W8A8, "b200").obstacles] == ["kernel"]
    assert ask(W8A8, "h100").passes


def test_weight_only_int8_is_undetermined_where_the_dtype_of_activations_decides() -> None:
    answer = ask(W8A16, "mi300x")
    assert (answer.passes, answer.readiness.value) == (True, "undetermined")


@pytest.mark.parametrize("on", ["h100", "a100_80gb_sxm", "mi300x", "mi355x"])
def test_sglang_refuses_nvfp4_of_compressed_tensors_below_blackwell(on: str) -> None:
    refused = ask(NVFP4, on, "sglang", "0.5.18")
    assert "quant-sglang-compressed-nvfp4" in {finding.rule.id for finding in refused.assessment.findings}
    assert not refused.passes


def test_sglang_serves_nvfp4_on_blackwell_and_widens_that_of_modelopt() -> None:
    assert ask(NVFP4, "b200", "sglang", "0.5.18").passes
    widened = ask(MODELOPT_NVFP4, "h100", "sglang", "0.5.18")
    assert (widened.passes, widened.kernels[0].kernel.value) == (True, "widened")
    assert ask(NVFP4, "h100", "vllm", "0.32.0").passes
